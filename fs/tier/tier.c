/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
#include "fs/tier/tier.h"

#include <errno.h>
#include <stdlib.h>

#include "backend/pool.h"
#include "fs/core/fs.h"
#include "fs/core/worker.h"
#include "fs/file/file.h"
#include "fs/ledger/ledger.h"
#include "fs/tier/internal.h"

/* More leaves than the request needs, so that the next requests find room: this part of the device,
 * or of what the mount may take there, within these bounds. */
#define ROOM_PART 64
#define ROOM_MAX  (1ULL << 30)

uint64_t tier_room_part(const struct volume *volume)
{
	uint64_t limit = pool_limits(volume->pool).size, total = volume->device->total;
	uint64_t part = (limit < total ? limit : total) / ROOM_PART;

	return part < CHUNK_ALIGN ? CHUNK_ALIGN : part < ROOM_MAX ? part : ROOM_MAX;
}

/* Before anything leaves for a disk, the requester's file changes places with files of the device
 * if its memory is in system memory. */
static bool file_come(struct tiers *tiers, const struct eviction *eviction)
{
	struct eviction swap = *eviction;

	if (!eviction->volume->spill ||
	    !file_bytes_in(eviction->requester->inode->file, PLACE_HOST))
		return false;
	swap.only_to = PLACE_HOST;
	return room_make(tiers, &swap) || exchange_file(tiers, &swap);
}

static bool tier_make_room(void *owner, const struct volume *volume, enum memory_place place,
			   enum place_short shortage, uint64_t bytes, const struct file *keep)
{
	struct inode_call *requester = owner;
	uid_t uid = atomic_load(&requester->inode->uid);
	struct tiers *tiers = tiers_of(requester->fs);
	uint64_t part = tier_room_part(volume);

	if (volume_place_below(volume, place) == PLACES)
		return false;
	/* A file costs as many descriptors in another place: what lacks is not memory. */
	if (ledger_room(requester->fs, uid, LEDGER_DESCRIPTORS) < LEDGER_DESCRIPTOR)
		return false;
	struct eviction eviction = {
	    .fs = requester->fs,
	    .copier = requester->call.copier,
	    .volume = volume,
	    .tier = tier_of(tiers, volume, place),
	    .place = place,
	    .requester = requester,
	    .keep = keep,
	    .may_use_own_file = place != PLACE_GPU,
	    .only_owner = shortage == PLACE_OWNER_LIMIT ? &uid : NULL,
	    .bytes_wanted = bytes > part ? bytes : part,
	    .departures_seen = requester->evictions_seen,
	};
	bool comes = place == PLACE_GPU && keep && keep == requester->inode->file;
	bool has_room = (comes && file_come(tiers, &eviction)) || room_make(tiers, &eviction) ||
			(comes && exchange_file(tiers, &eviction));

	/* Nothing is gained by files without leases if there is no place for them. */
	if (!has_room && place == PLACE_GPU && !eviction.lower_places_full)
		tier_ask(tiers, volume, eviction.bytes_wanted);
	/* The front of a file that is written leaves for its end. */
	if (!has_room && place == PLACE_GPU && !keep)
		has_room = own_file_leave(tiers, &eviction);
	requester->evictions_seen = atomic_load(&eviction.tier->departures);
	return has_room;
}

bool tier_evict(struct fs *fs, const struct volume *volume, uint64_t bytes)
{
	struct tier *tier = tier_of(tiers_of(fs), volume, PLACE_GPU);
	struct eviction eviction = {
	    .fs = fs,
	    .copier = worker_copier(fs),
	    .volume = volume,
	    .tier = tier,
	    .bytes_wanted = bytes,
	    .departures_seen = atomic_load(&tier->departures),
	};

	if (!eviction.copier)
		return false;
	bool has_room = room_make(tiers_of(fs), &eviction);

	if (!has_room)
		tier_ask(tiers_of(fs), volume, bytes);
	return has_room;
}

int tier_free(struct fs *fs, const struct volume *volume, uint64_t bytes)
{
	struct device_memory memory;
	int rc;

	if (!tiers_of(fs))
		return -ENOTSUP;
	for (;;) {
		rc = device_memory(volume->device, &memory);
		if (rc < 0 || memory.free >= bytes)
			return rc;
		if (tier_evict(fs, volume, bytes - memory.free))
			continue;
		pool_trim(volume->pool);
		rc = device_memory(volume->device, &memory);
		return rc < 0 || memory.free >= bytes ? rc : -ENOSPC;
	}
}

static bool volumes_are_tiered(const struct fs *fs)
{
	for (unsigned i = 0; i < fs->n_volumes; i++)
		if (volume_is_tiered(&fs->volumes[i]))
			return true;
	return false;
}

static void tier_init(struct tier *tier)
{
	pthread_mutex_init(&tier->lock, NULL);
	for (unsigned place = 0; place < PLACES; place++)
		pthread_mutex_init(&tier->turns[place], NULL);
}

static void tier_destroy(struct tier *tier)
{
	victims_free(&tier->victims);
	for (unsigned place = 0; place < PLACES; place++)
		pthread_mutex_destroy(&tier->turns[place]);
	pthread_mutex_destroy(&tier->lock);
}

int tiers_open(struct fs *fs)
{
	struct tiers *tiers;

	if (!volumes_are_tiered(fs))
		return 0;
	tiers = calloc(1, sizeof(*tiers) + fs->n_volumes * sizeof(tiers->gpus[0]));
	if (!tiers)
		return -ENOMEM;
	tiers->n_gpus = fs->n_volumes;
	for (unsigned i = 0; i < tiers->n_gpus; i++)
		tier_init(&tiers->gpus[i]);
	tier_init(&tiers->host);
	pthread_mutex_init(&tiers->exchange_lock, NULL);
	pthread_mutex_init(&tiers->ask_lock, NULL);
	exchange_open(fs);
	fs->states[FS_TIERS] = tiers;
	fs->make_room = tier_make_room;
	return 0;
}

void tiers_close(struct fs *fs)
{
	struct tiers *tiers = tiers_of(fs);

	fs->make_room = NULL;
	fs->states[FS_TIERS] = NULL;
	if (!tiers)
		return;
	for (unsigned i = 0; i < tiers->n_gpus; i++)
		tier_destroy(&tiers->gpus[i]);
	tier_destroy(&tiers->host);
	pthread_mutex_destroy(&tiers->ask_lock);
	pthread_mutex_destroy(&tiers->exchange_lock);
	free(tiers);
}

struct tier_counters tier_counters(const struct fs *fs)
{
	const struct tiers *tiers = tiers_of(fs);

	if (!tiers)
		return (struct tier_counters){0};
	return (struct tier_counters){
	    .evictions = atomic_load(&tiers->evictions),
	    .evicted_bytes = atomic_load(&tiers->evicted_bytes),
	    .returned_bytes = atomic_load(&tiers->returned_bytes),
	};
}
