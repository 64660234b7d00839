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

/* Why files leave. */
struct making {
	struct fs *fs;
	struct copier *copier;
	const struct volume *volume;
	enum memory_place place;   /* where room is needed */
	struct inode_call *asking; /* for the memory of this file; NULL: for other programs */
	const struct file *but;	   /* stays */
	const uid_t *only;	   /* files of this user leave, by priority; NULL: of all */
	bool own;		   /* memory of the asking file may leave, too */
	bool waits;		   /* for files that are in use */
	bool full;		   /* files could not leave without their leases either */
	uint64_t wanted, freed;
};

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

/* The bytes of the file that may leave for the file that needs room: of the same user by the
 * priority, so that no user can hold a GPU by a number; of another user by the share. */
static uint64_t victim_part(const struct making *making, const struct victims *victims,
			    const struct victim *victim, struct inode *inode)
{
	const struct inode_call *asking = making->asking;
	uint64_t more = making->wanted - making->freed, above;

	if (inode->file == making->but || file_used(inode->file) != victim->used ||
	    (making->only && victim->uid != *making->only))
		return 0;
	if (!asking || making->only)
		return more;
	if (inode == asking->inode)
		return making->own ? more : 0;
	if (victim->uid == atomic_load(&asking->inode->uid))
		return victim->priority <= asking->call.attrs.priority ? more : 0;
	above = victims_above_share(victims, victim->uid);
	return above < more ? above : more;
}

static bool room_make(struct tiers *tiers, struct making *making);

/* For a file that leaves the place of making. only: the file's owner, who may have no more in the
 * place below; or NULL. */
static bool room_make_below(struct tiers *tiers, const struct making *making,
			    enum memory_place place, const uid_t *only)
{
	struct making below = *making;

	below.place = place;
	below.wanted = making->wanted - making->freed;
	below.freed = 0;
	below.own = true;
	below.only = only;
	below.waits = false;
	return volume_place_below(making->volume, place) < PLACES && room_make(tiers, &below);
}

/* Up to most bytes go to the next slower place, or to the place behind if the next is full and
 * stays full, or the owner may have no more there. -ENOSPC: for files of other owners too. */
static int victim_evict(struct tiers *tiers, struct making *making, struct inode *inode,
			uint64_t most, uint64_t *moved)
{
	const struct volume *volume = file_volume(inode->file);
	enum file_wait wait = making->waits ? FILE_MAY_WAIT : FILE_NO_WAIT;
	enum memory_place to = making->place;
	struct inode_call call;
	int rc = -ENOSPC;
	bool limited = false;
	uid_t uid = atomic_load(&inode->uid);

	inode_call_init(&call, making->fs, inode, making->copier);
	while ((rc == -ENOSPC || rc == -EDQUOT) && (to = volume_place_below(volume, to)) < PLACES) {
		uint64_t part;

		do {
			rc = file_evict(inode->file, &call.call, making->place, to, wait,
					most - *moved, &part);
			*moved += part;
			limited |= rc == -EDQUOT;
		} while ((rc == -ENOSPC || rc == -EDQUOT) && *moved < most &&
			 room_make_below(tiers, making, to, rc == -EDQUOT ? &uid : NULL));
	}
	return limited && rc == -ENOSPC ? -EDQUOT : rc;
}

/* -ENOSPC: all slower places are full. */
static int victim_move(struct tiers *tiers, struct making *making, struct victim *victim)
{
	struct inode *inode = inode_table_get(making->fs->inodes, victim->ino);
	struct victims *victims = &tiers->victims[making->place];
	uint64_t part = inode ? victim_part(making, victims, victim, inode) : 0, moved = 0;
	int rc = 0;

	if (part) {
		struct observed_work work;

		observe_work_begin(making->fs, &work);
		rc = victim_evict(tiers, making, inode, part, &moved);
		observe_work_end(making->fs, &work, "evict", inode);
		making->full |= rc == -ENOSPC;
		victims_note_moved(victims, victim->uid, moved);
		making->freed += moved;
	}
	if (inode)
		inode_put(making->fs, inode, 1);
	return rc;
}

static void victims_move(struct tiers *tiers, struct making *making)
{
	struct victims *victims = &tiers->victims[making->place];

	if (making->asking)
		victims_count_user(victims, making->fs, atomic_load(&making->asking->inode->uid));
	for (unsigned i = 0; i < victims->n && making->freed < making->wanted; i++)
		if (victim_move(tiers, making, &victims->list[i]) == -ENOSPC)
			return;
}

/* tiers->lock is held. */
static bool room_make(struct tiers *tiers, struct making *making)
{
	struct victims *victims = &tiers->victims[making->place];

	if (victims_are_of(victims, making->volume))
		victims_move(tiers, making);
	if (!making->freed) {
		victims_scan(victims, making->fs, making->volume, making->place);
		making->full |= !victims->leased;
		victims_move(tiers, making);
	}
	/* A long copy of one file must not hold up all threads that need room, if others can go. */
	if (!making->freed) {
		making->waits = true;
		victims_move(tiers, making);
	}
	if (!making->freed)
		return false;
	atomic_fetch_add(&tiers->evictions, 1);
	if (making->place == PLACE_GPU)
		atomic_fetch_add(&tiers->evicted_bytes, making->freed);
	return true;
}

/* The files that could not leave before have lost leases meanwhile. */
static bool room_make_again(void *context)
{
	struct making *making = context;
	struct tiers *tiers = making->fs->tiers;

	scoped_lock(&tiers->lock);
	making->waits = false;
	return has_room(making->volume->pool, making->wanted) || room_make(tiers, making);
}

/* False: nothing can leave. */
static bool room_find(struct tiers *tiers, struct making *making)
{
	struct inode_call *asking = making->asking;
	struct pool *pool = volume_pool(making->volume, making->place);

	scoped_lock(&tiers->lock);
	uint64_t evictions = atomic_load(&tiers->evictions);

	making->waits = false;
	/* Another thread may have made room since this thread asked last. */
	bool made = (!making->only && asking->evictions_seen != evictions &&
		     has_room(pool, making->wanted)) ||
		    room_make(tiers, making);

	asking->evictions_seen = atomic_load(&tiers->evictions);
	return made;
}

static bool tier_make_room(void *owner, const struct volume *volume, enum memory_place place,
			   enum place_short why, uint64_t bytes, const struct file *but)
{
	struct inode_call *asking = owner;
	uid_t uid = atomic_load(&asking->inode->uid);
	struct tiers *tiers = asking->fs->tiers;
	uint64_t part = tier_room_part(volume);
	struct making making = {
	    .fs = asking->fs,
	    .copier = asking->call.copier,
	    .volume = volume,
	    .place = place,
	    .asking = asking,
	    .but = but,
	    .own = place != PLACE_GPU,
	    .only = why == PLACE_OWNER_LIMIT ? &uid : NULL,
	    .wanted = bytes > part ? bytes : part,
	};

	if (volume_place_below(volume, place) == PLACES)
		return false;
	if (room_find(tiers, &making))
		return true;
	if (making.own)
		return false;
	/* Nothing is gained by files without leases if there is no place for them. */
	if (!making.full &&
	    tier_ask_and_wait(tiers, volume, making.wanted, room_make_again, &making))
		return true;
	/* The front of a file that is written leaves for its end. */
	making.own = true;
	return room_find(tiers, &making);
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
	pthread_mutex_lock(&fs->tiers->lock);
	bool made = room_make(fs->tiers, &making);

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
