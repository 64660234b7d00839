/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
#include "fs/tier/tier.h"

#include <errno.h>
#include <stdlib.h>

#include "backend/pool.h"
#include "common/cleanup.h"
#include "fs/core/fs.h"
#include "fs/core/worker.h"
#include "fs/file/file.h"
#include "fs/tier/internal.h"
#include "fs/trace/observe.h"
#include "fs/tree/inode_table.h"

/* More leaves than the request needs, so that the next requests find room: this part of the device,
 * within these bounds. */
#define ROOM_PART 64
#define ROOM_MAX  (1ULL << 30)

uint64_t tier_room_part(const struct volume *volume)
{
	uint64_t part = volume->device->total / ROOM_PART;

	return part < CHUNK_ALIGN ? CHUNK_ALIGN : part < ROOM_MAX ? part : ROOM_MAX;
}

/* Whether whole chunks of this size fit: free blocks inside of shared chunks do not count. */
static bool has_room(struct pool *pool, uint64_t bytes)
{
	struct pool_usage usage = pool_usage(pool);
	uint64_t available;

	return pool_available(pool, &available) == 0 &&
	       available - (usage.chunk_bytes - usage.span_bytes) >= bytes;
}

static bool room_make(struct tiers *tiers, struct eviction *eviction);

/* For a file that leaves the place of eviction. only: the file's owner, who may have no more in the
 * place below; or NULL. */
static bool room_make_below(struct tiers *tiers, const struct eviction *eviction,
			    enum memory_place place, const uid_t *only_owner)
{
	struct eviction below = *eviction;

	below.place = place;
	below.bytes_wanted = eviction->bytes_wanted - eviction->bytes_freed;
	below.bytes_freed = 0;
	below.may_use_own_file = true;
	below.only_owner = only_owner;
	below.may_block = below.found_busy = false;
	return volume_place_below(eviction->volume, place) < PLACES && room_make(tiers, &below);
}

/* Up to most bytes go to the next slower place, or to the place behind if the next is full and
 * stays full, or the owner may have no more there. -ENOSPC: for files of other owners too. */
static int victim_evict(struct tiers *tiers, struct eviction *eviction, struct inode *inode,
			uint64_t most, uint64_t *moved)
{
	const struct volume *volume = file_volume(inode->file);
	enum file_wait wait = eviction->may_block ? FILE_MAY_WAIT : FILE_NO_WAIT;
	enum memory_place to = eviction->place;
	struct inode_call call;
	int rc = -ENOSPC;
	bool limited = false;
	uid_t uid = atomic_load(&inode->uid);

	inode_call_init(&call, eviction->fs, inode, eviction->copier);
	while ((rc == -ENOSPC || rc == -EDQUOT) && (to = volume_place_below(volume, to)) < PLACES) {
		uint64_t part;

		do {
			rc = file_evict(inode->file, &call.call, eviction->place, to, wait,
					most - *moved, &part);
			*moved += part;
			limited |= rc == -EDQUOT;
		} while ((rc == -ENOSPC || rc == -EDQUOT) && *moved < most &&
			 room_make_below(tiers, eviction, to, rc == -EDQUOT ? &uid : NULL));
	}
	return limited && rc == -ENOSPC ? -EDQUOT : rc;
}

/* -ENOSPC: all slower places are full. A file that was used since the scan stays. */
static int victim_move(struct tiers *tiers, struct eviction *eviction, const struct victim *victim,
		       uint64_t most)
{
	struct inode *inode = inode_table_get(eviction->fs->inodes, victim->ino);
	struct victims *victims = &tiers->victims[eviction->place];
	uint64_t moved = 0;
	int rc = 0;

	if (inode && file_used(inode->file) == victim->used) {
		struct observed_work work;

		observe_work_begin(eviction->fs, &work);
		rc = victim_evict(tiers, eviction, inode, most, &moved);
		observe_work_end(eviction->fs, &work, "evict", inode);
		victims_note_moved(victims, victim->uid, moved);
		eviction->bytes_freed += moved;
	}
	if (rc == -ENOSPC || (rc == 0 && moved >= most))
		victims_put_back(victims, victim);
	eviction->found_busy |= rc == -EAGAIN;
	if (inode)
		inode_put(eviction->fs, inode, 1);
	return rc;
}

/* False: all slower places are full. */
static bool victims_move(struct tiers *tiers, struct eviction *eviction)
{
	struct victims *victims = &tiers->victims[eviction->place];
	const struct inode_call *requester = eviction->requester;
	struct victim victim;
	uint64_t most;

	if (requester)
		victims_count_user(victims, eviction->fs, atomic_load(&requester->inode->uid));
	while (eviction->bytes_freed < eviction->bytes_wanted &&
	       victims_take(victims, eviction, &victim, &most))
		if (victim_move(tiers, eviction, &victim, most) == -ENOSPC) {
			eviction->lower_places_full = true;
			return false;
		}
	return true;
}

/* Moves files after a scan: false if all slower places are full. */
static bool victims_scan_and_move(struct tiers *tiers, struct eviction *eviction)
{
	struct victims *victims = &tiers->victims[eviction->place];

	victims_scan(victims, eviction->fs, eviction->volume, eviction->place);
	eviction->lower_places_full |= !victims->leased;
	return victims_move(tiers, eviction);
}

/* tiers->lock is held. A long copy of one file must not hold up all threads that need room, if
 * others can go, so files that are in use come last. */
static bool room_make(struct tiers *tiers, struct eviction *eviction)
{
	bool go_on = true;

	if (victims_are_of(&tiers->victims[eviction->place], eviction->volume))
		go_on = victims_move(tiers, eviction);
	if (go_on && !eviction->bytes_freed)
		go_on = victims_scan_and_move(tiers, eviction);
	if (go_on && !eviction->bytes_freed && eviction->found_busy) {
		eviction->may_block = true;
		victims_scan_and_move(tiers, eviction);
	}
	if (!eviction->bytes_freed)
		return false;
	atomic_fetch_add(&tiers->evictions, 1);
	if (eviction->place == PLACE_GPU)
		atomic_fetch_add(&tiers->evicted_bytes, eviction->bytes_freed);
	return true;
}

/* False: nothing can leave. */
static bool room_find(struct tiers *tiers, struct eviction *eviction)
{
	struct inode_call *requester = eviction->requester;
	struct pool *pool = volume_pool(eviction->volume, eviction->place);

	scoped_lock(&tiers->lock);
	uint64_t evictions = atomic_load(&tiers->evictions);

	eviction->may_block = false;
	/* Another thread may have made room since this thread asked last. */
	bool made = (!eviction->only_owner && requester->evictions_seen != evictions &&
		     has_room(pool, eviction->bytes_wanted)) ||
		    room_make(tiers, eviction);

	requester->evictions_seen = atomic_load(&tiers->evictions);
	return made;
}

static bool tier_make_room(void *owner, const struct volume *volume, enum memory_place place,
			   enum place_short why, uint64_t bytes, const struct file *keep)
{
	struct inode_call *requester = owner;
	uid_t uid = atomic_load(&requester->inode->uid);
	struct tiers *tiers = requester->fs->tiers;
	uint64_t part = tier_room_part(volume);
	struct eviction eviction = {
	    .fs = requester->fs,
	    .copier = requester->call.copier,
	    .volume = volume,
	    .place = place,
	    .requester = requester,
	    .keep = keep,
	    .may_use_own_file = place != PLACE_GPU,
	    .only_owner = why == PLACE_OWNER_LIMIT ? &uid : NULL,
	    .bytes_wanted = bytes > part ? bytes : part,
	};

	if (volume_place_below(volume, place) == PLACES)
		return false;
	if (room_find(tiers, &eviction))
		return true;
	if (eviction.may_use_own_file)
		return false;
	/* Nothing is gained by files without leases if there is no place for them. */
	if (!eviction.lower_places_full)
		tier_ask(tiers, volume, eviction.bytes_wanted);
	/* The front of a file that is written leaves for its end. */
	eviction.may_use_own_file = true;
	return room_find(tiers, &eviction);
}

bool tier_evict(struct fs *fs, const struct volume *volume, uint64_t bytes)
{
	struct eviction eviction = {
	    .fs = fs,
	    .copier = worker_copier(fs),
	    .volume = volume,
	    .bytes_wanted = bytes,
	};

	if (!eviction.copier)
		return false;
	pthread_mutex_lock(&fs->tiers->lock);
	bool made = room_make(fs->tiers, &eviction);

	pthread_mutex_unlock(&fs->tiers->lock);
	if (!made)
		tier_ask(fs->tiers, volume, bytes);
	return made;
}

int tier_free(struct fs *fs, const struct volume *volume, uint64_t bytes)
{
	struct device_memory memory;
	int rc;

	if (!fs->tiers)
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

int tiers_open(struct fs *fs)
{
	if (!volumes_are_tiered(fs))
		return 0;
	fs->tiers = calloc(1, sizeof(*fs->tiers));
	if (!fs->tiers)
		return -ENOMEM;
	pthread_mutex_init(&fs->tiers->lock, NULL);
	pthread_mutex_init(&fs->tiers->ask_lock, NULL);
	fs->make_room = tier_make_room;
	return 0;
}

void tiers_close(struct fs *fs)
{
	struct tiers *tiers = fs->tiers;

	fs->make_room = NULL;
	fs->tiers = NULL;
	if (!tiers)
		return;
	for (unsigned place = 0; place < PLACES; place++)
		victims_free(&tiers->victims[place]);
	pthread_mutex_destroy(&tiers->ask_lock);
	pthread_mutex_destroy(&tiers->lock);
	free(tiers);
}

struct tier_counters tier_counters(const struct fs *fs)
{
	const struct tiers *tiers = fs->tiers;

	if (!tiers)
		return (struct tier_counters){0};
	return (struct tier_counters){
	    .evictions = atomic_load(&tiers->evictions),
	    .evicted_bytes = atomic_load(&tiers->evicted_bytes),
	    .returned_bytes = atomic_load(&tiers->returned_bytes),
	};
}
