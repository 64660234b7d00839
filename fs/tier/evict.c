/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* Eviction: threads that need room in a place move files to slower places. No lock is held across a
 * move but the turn of the two places, so a move to the disk stops no move to system memory, and a
 * full GPU stops no other GPU. */
#include <errno.h>

#include "backend/pool.h"
#include "common/cleanup.h"
#include "fs/core/fs.h"
#include "fs/file/file.h"
#include "fs/tier/internal.h"
#include "fs/trace/observe.h"
#include "fs/tree/inode_table.h"

/* Threads that need room at the same time renew the list for each other. */
#define ROUNDS_MAX 64

/* Whether whole chunks of this size fit: free blocks inside of shared chunks do not count. */
static bool has_room(struct pool *pool, uint64_t bytes)
{
	struct pool_usage usage = pool_usage(pool);
	uint64_t available;

	return pool_available(pool, &available) == 0 &&
	       available >= bytes + pool_usage_unused(&usage);
}

/* Whether other threads have made the room since this thread looked last. */
static bool room_is_made(struct eviction *eviction)
{
	uint64_t departures = atomic_load(&eviction->tier->departures);

	if (departures == eviction->departures_seen || eviction->only_owner)
		return false;
	eviction->departures_seen = departures;
	eviction->is_served =
	    has_room(volume_pool(eviction->volume, eviction->place), eviction->bytes_wanted);
	return eviction->is_served;
}

static void departure_note(struct eviction *eviction)
{
	if (atomic_fetch_add(&eviction->tier->departures, 1) == eviction->departures_seen)
		eviction->departures_seen++;
}

/* Up to max_bytes go to one slower place. Threads take turns: most find the room that they need
 * made when it is their turn. */
static int inode_move(struct eviction *eviction, struct inode *inode, enum memory_place to,
		      uint64_t max_bytes, uint64_t *moved)
{
	enum file_wait wait = eviction->may_block ? FILE_MAY_WAIT : FILE_NO_WAIT;
	struct inode_call call;

	*moved = 0;
	inode_call_init(&call, eviction->fs, inode, eviction->copier);
	call.call.exchanges = eviction->exchanges;
	call.unasked = true;
	/* The owner of both files has no more in the place after the exchange than before. */
	call.overdraft = eviction->may_overdraw &&
			 atomic_load(&inode->uid) == atomic_load(&eviction->requester->inode->uid);
	scoped_lock(&eviction->tier->turns[to]);
	if (room_is_made(eviction))
		return 0;
	int rc = file_evict(inode->file, &call.call, eviction->place, to, wait, max_bytes, moved);

	if (*moved)
		departure_note(eviction);
	return rc;
}

/* For a file that leaves the place of the eviction. only_owner: the file's owner, who may have no
 * more in the place below; or NULL. */
static bool room_make_below(struct tiers *tiers, const struct eviction *eviction,
			    enum memory_place place, const uid_t *only_owner,
			    uint64_t departures_seen)
{
	struct eviction lower = *eviction;

	if (volume_place_below(eviction->volume, place) == PLACES)
		return false;
	lower.tier = tier_of(tiers, eviction->volume, place);
	lower.place = place;
	lower.bytes_wanted = eviction->bytes_wanted - eviction->bytes_freed;
	lower.bytes_freed = 0;
	lower.departures_seen = departures_seen;
	lower.may_use_own_file = true;
	lower.only_owner = only_owner;
	lower.may_block = lower.found_busy = lower.is_served = false;
	return room_make(tiers, &lower);
}

static uint64_t departures_from(struct tiers *tiers, const struct volume *volume,
				enum memory_place place)
{
	return place == PLACE_DISK ? 0 : atomic_load(&tier_of(tiers, volume, place)->departures);
}

/* Up to max_bytes go to the next slower place, or to the place behind if the next is full and
 * stays full, or the owner may have no more there. -ENOSPC: for files of other owners too. */
static int inode_evict(struct tiers *tiers, struct eviction *eviction, struct inode *inode,
		       uint64_t max_bytes, uint64_t *moved)
{
	const struct volume *volume = file_volume(inode->file);
	enum memory_place to = eviction->place;
	uid_t uid = atomic_load(&inode->uid);
	bool limited = false;
	int rc = -ENOSPC;

	*moved = 0;
	while ((rc == -ENOSPC || rc == -EDQUOT) && (to = volume_place_below(volume, to)) < PLACES) {
		uint64_t part, departures;

		if (eviction->only_to && to != eviction->only_to)
			continue;
		do {
			departures = departures_from(tiers, volume, to);
			rc = inode_move(eviction, inode, to, max_bytes - *moved, &part);
			*moved += part;
			limited |= rc == -EDQUOT;
		} while (
		    (rc == -ENOSPC || rc == -EDQUOT) && *moved < max_bytes &&
		    room_make_below(tiers, eviction, to, rc == -EDQUOT ? &uid : NULL, departures));
	}
	/* A file with smaller chunks may find room. */
	limited |= eviction->exchanges;
	return limited && rc == -ENOSPC ? -EDQUOT : rc;
}

static int inode_leave(struct tiers *tiers, struct eviction *eviction, struct inode *inode,
		       uint64_t max_bytes, uint64_t *moved)
{
	struct observed_work work;

	observe_work_begin(eviction->fs, &work);
	int rc = inode_evict(tiers, eviction, inode, max_bytes, moved);

	observe_work_end(eviction->fs, &work, "evict", inode);
	eviction->bytes_freed += *moved;
	if (eviction->place == PLACE_GPU)
		atomic_fetch_add(&tiers->evicted_bytes, *moved);
	return rc;
}

/* In an exchange small files, whose blocks free no chunk, leave for small files only. */
static bool inode_may_leave(const struct eviction *eviction, const struct inode *inode)
{
	return !eviction->exchanges || file_allocated(inode->file) >= CHUNK_ALIGN ||
	       (eviction->may_overdraw &&
		file_allocated(eviction->requester->inode->file) < CHUNK_ALIGN);
}

/* -ENOSPC: all slower places are full. A file that was used since the scan stays. */
static int victim_leave(struct tiers *tiers, struct eviction *eviction, const struct victim *victim,
			uint64_t max_bytes)
{
	struct inode *inode = inode_table_get(eviction->fs->inodes, victim->ino);
	struct victims *victims = &eviction->tier->victims;
	bool moves = inode && file_used(inode->file) == victim->used &&
		     inode_may_leave(eviction, inode) &&
		     (eviction->place != PLACE_GPU || file_volume(inode->file) == eviction->volume);
	uint64_t moved = 0;
	int rc = moves ? inode_leave(tiers, eviction, inode, max_bytes, &moved) : 0;

	if (inode)
		inode_put(eviction->fs, inode, 1);
	eviction->found_busy |= rc == -EAGAIN;
	scoped_lock(&eviction->tier->lock);
	victims_note_moved(victims, victim->uid, moved);
	if (moves && (rc == -ENOSPC || (rc == 0 && (moved >= max_bytes || eviction->is_served))))
		victims_put_back(victims, victim);
	return rc;
}

static bool victim_next(struct eviction *eviction, struct victim *victim, uint64_t *max_bytes)
{
	const struct inode_call *requester = eviction->requester;
	struct victims *victims = &eviction->tier->victims;

	if (eviction->is_served || eviction->bytes_freed >= eviction->bytes_wanted)
		return false;
	scoped_lock(&eviction->tier->lock);
	eviction->scan_seen = victims->scans;
	if (requester)
		victims_count_user(victims, eviction->fs, atomic_load(&requester->inode->uid));
	return victims_take(victims, eviction, victim, max_bytes);
}

/* Whether to go on with other victims: no room was made, but not all slower places are full. */
static bool victims_leave(struct tiers *tiers, struct eviction *eviction)
{
	struct victim victim;
	uint64_t max_bytes;

	while (victim_next(eviction, &victim, &max_bytes))
		if (victim_leave(tiers, eviction, &victim, max_bytes) == -ENOSPC) {
			eviction->lower_places_full = true;
			return false;
		}
	return !eviction->is_served && !eviction->bytes_freed;
}

/* The number of the first busy file from *index on that may leave for the eviction; 0: none.
 * *is_current: the list is that of the scan that this thread looked at. */
static uint64_t busy_next(struct eviction *eviction, unsigned *index, bool *is_current)
{
	const struct victims *victims = &eviction->tier->victims;
	uint64_t ino = 0;

	scoped_lock(&eviction->tier->lock);
	*is_current = eviction->scan_seen == victims->scans;
	for (; *is_current && *index < victims->n_busy; ++*index) {
		ino = victims_busy(victims, eviction, *index);
		if (ino)
			break;
	}
	return ino;
}

/* Waits for the files that the scan could not look at, without a lock that other threads need.
 * False: another thread has renewed the list meanwhile. */
static bool busy_files_await(struct eviction *eviction)
{
	struct victims *victims = &eviction->tier->victims;
	bool is_current, waited = false;
	unsigned index = 0;
	uint64_t ino;

	while ((ino = busy_next(eviction, &index, &is_current))) {
		struct inode *inode = inode_table_get(eviction->fs->inodes, ino);
		uint64_t bytes = inode ? file_bytes_in(inode->file, eviction->place) : 0;

		waited = true;
		pthread_mutex_lock(&eviction->tier->lock);
		if (inode && eviction->scan_seen == victims->scans)
			victims_add_busy(victims, eviction->fs, index, inode, bytes);
		pthread_mutex_unlock(&eviction->tier->lock);
		if (inode)
			inode_put(eviction->fs, inode, 1);
		index++;
	}
	/* A file that has left by itself has made room. */
	if (waited && !eviction->only_owner)
		eviction->is_served = has_room(volume_pool(eviction->volume, eviction->place),
					       eviction->bytes_wanted);
	return is_current;
}

/* False: another thread has renewed the list since this thread looked. */
static bool victims_renew(struct eviction *eviction)
{
	struct victims *victims = &eviction->tier->victims;

	scoped_lock(&eviction->tier->lock);
	bool is_old = eviction->scan_seen == victims->scans;

	if (is_old)
		victims_scan(victims, eviction->fs, eviction->volume, eviction->place);
	eviction->scan_seen = victims->scans;
	for (unsigned i = 0; i < victims->n_busy; i++)
		eviction->found_busy |= victims_busy(victims, eviction, i);
	return is_old;
}

static bool has_leased_victims(struct tier *tier)
{
	scoped_lock(&tier->lock);
	return tier->victims.leased;
}

static bool victims_renew_and_leave(struct tiers *tiers, struct eviction *eviction)
{
	bool go_on = true, renewed = false;

	for (unsigned round = 0; go_on && !renewed && round < ROUNDS_MAX; round++) {
		renewed = victims_renew(eviction);
		if (eviction->may_block)
			renewed &= busy_files_await(eviction);
		eviction->lower_places_full |= !has_leased_victims(eviction->tier);
		go_on = victims_leave(tiers, eviction);
	}
	return go_on;
}

bool room_make(struct tiers *tiers, struct eviction *eviction)
{
	if (room_is_made(eviction))
		return true;
	/* Files of an earlier scan, then of a new scan. A long copy of one file must not hold up
	 * all threads that need room, so files that are in use come last. */
	bool go_on = victims_leave(tiers, eviction) && victims_renew_and_leave(tiers, eviction);

	if (go_on && eviction->found_busy) {
		eviction->may_block = true;
		victims_renew_and_leave(tiers, eviction);
	}
	if (!eviction->bytes_freed)
		return eviction->is_served || room_is_made(eviction);
	atomic_fetch_add(&tiers->evictions, 1);
	return true;
}

bool own_file_leave(struct tiers *tiers, struct eviction *eviction)
{
	struct inode *inode = eviction->requester->inode;
	uint64_t moved;

	if (file_volume(inode->file) != eviction->volume)
		return false;
	eviction->may_use_own_file = eviction->may_block = true;
	inode_leave(tiers, eviction, inode, eviction->bytes_wanted, &moved);
	atomic_fetch_add(&tiers->evictions, moved > 0);
	return moved || eviction->is_served;
}
