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
#include "fs/tree/inode_table.h"

/* More leaves than the request needs, so that the next requests find room: this part of the device,
 * within these bounds. */
#define ROOM_PART 64
#define ROOM_MAX  (1ULL << 30)

/* Why files leave. */
struct making {
	struct fs *fs;
	struct copier *copier;
	const struct volume *volume;
	const struct inode_call *asking; /* for the memory of this file; NULL: for other programs */
	const struct file *but;		 /* stays */
	bool waits;			 /* for files that are in use */
	uint64_t wanted, freed;
};

uint64_t tier_room_part(const struct volume *volume)
{
	uint64_t part = volume->device->total / ROOM_PART;

	return part < CHUNK_ALIGN ? CHUNK_ALIGN : part < ROOM_MAX ? part : ROOM_MAX;
}

/* Whether whole chunks of this size fit: free blocks inside of shared chunks do not count. */
static bool has_room(const struct volume *volume, uint64_t bytes)
{
	struct pool_usage usage = pool_usage(volume->pool);
	uint64_t available;

	return pool_available(volume->pool, &available) == 0 &&
	       available - (usage.chunk_bytes - usage.span_bytes) >= bytes;
}

/* Whether the file may leave for the file that needs room: of the same user by the priority, so
 * that no user can hold a GPU by a number; of another user by the share. */
static bool victim_may_leave(const struct making *making, const struct victims *victims,
			     const struct victim *victim, struct inode *inode)
{
	const struct inode_call *asking = making->asking;

	if (inode->file == making->but || file_used(inode->file) != victim->used)
		return false;
	if (!asking)
		return true;
	if (victim->uid == atomic_load(&asking->inode->uid))
		return victim->priority <= asking->call.attrs.priority;
	return victims_over_share(victims, victim->uid);
}

/* -ENOSPC: the spill is full. */
static int victim_move(struct making *making, struct victims *victims, struct victim *victim)
{
	struct inode *inode = inode_table_get(making->fs->inodes, victim->ino);
	struct inode_call call;
	uint64_t moved = 0;
	int rc = 0;

	if (inode && victim_may_leave(making, victims, victim, inode)) {
		inode_call_init(&call, making->fs, inode, making->copier);
		uint64_t more = making->wanted - making->freed;

		rc = making->waits ? file_place(inode->file, &call.call, PLACE_HOST, more, &moved)
				   : file_evict(inode->file, &call.call, more, &moved);
		victims_note_moved(victims, victim->uid, moved);
		making->freed += moved;
	}
	if (inode)
		inode_put(making->fs, inode, 1);
	return rc;
}

static void victims_move(struct making *making, struct victims *victims)
{
	for (unsigned i = 0; i < victims->n && making->freed < making->wanted; i++)
		if (victim_move(making, victims, &victims->list[i]) == -ENOSPC)
			return;
}

/* tiers->lock is held. */
static bool room_make(struct tiers *tiers, struct making *making)
{
	struct victims *victims = &tiers->victims;

	if (victims->volume == making->volume)
		victims_move(making, victims);
	if (!making->freed) {
		victims_scan(victims, making->fs, making->volume);
		victims_move(making, victims);
	}
	/* A long copy of one file must not hold up all threads that need room, if others can go. */
	if (!making->freed) {
		making->waits = true;
		victims_move(making, victims);
	}
	if (!making->freed)
		return false;
	atomic_fetch_add(&tiers->evictions, 1);
	atomic_fetch_add(&tiers->evicted_bytes, making->freed);
	return true;
}

static bool tier_make_room(void *owner, const struct volume *volume, uint64_t bytes,
			   const struct file *but)
{
	struct inode_call *asking = owner;
	struct tiers *tiers = asking->fs->tiers;
	uint64_t part = tier_room_part(volume);
	struct making making = {
	    .fs = asking->fs,
	    .copier = asking->call.copier,
	    .volume = volume,
	    .asking = asking,
	    .but = but,
	    .wanted = bytes > part ? bytes : part,
	};

	scoped_lock(&tiers->lock);
	uint64_t evictions = atomic_load(&tiers->evictions);

	/* Another thread has made room since this thread asked last. */
	if (asking->evictions_seen != evictions && has_room(volume, making.wanted)) {
		asking->evictions_seen = evictions;
		return true;
	}
	bool made = room_make(tiers, &making);

	asking->evictions_seen = atomic_load(&tiers->evictions);
	return made;
}

bool tier_evict(struct fs *fs, const struct volume *volume, uint64_t bytes)
{
	struct making making = {
	    .fs = fs,
	    .copier = worker_copier(fs),
	    .volume = volume,
	    .wanted = bytes,
	};

	if (!making.copier)
		return false;
	scoped_lock(&fs->tiers->lock);
	return room_make(fs->tiers, &making);
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

static bool volumes_have_spill(const struct fs *fs)
{
	for (unsigned i = 0; i < fs->n_volumes; i++)
		if (fs->volumes[i].spill)
			return true;
	return false;
}

int tiers_open(struct fs *fs)
{
	if (!volumes_have_spill(fs))
		return 0;
	fs->tiers = calloc(1, sizeof(*fs->tiers));
	if (!fs->tiers)
		return -ENOMEM;
	pthread_mutex_init(&fs->tiers->lock, NULL);
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
	victims_free(&tiers->victims);
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
