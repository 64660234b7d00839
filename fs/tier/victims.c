/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
#include "fs/tier/victims.h"

#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "common/hash.h"
#include "fs/core/fs.h"
#include "fs/file/export.h"
#include "fs/file/file.h"
#include "fs/ledger/ledger.h"
#include "fs/tier/internal.h"
#include "fs/tree/inode_table.h"
#include "fs/tree/owner.h"

struct victim_user {
	uid_t uid;
	unsigned weight;
	uint64_t bytes;	     /* in the place */
	struct victim *list; /* the first to leave first */
	unsigned n, capacity;
	UT_hash_handle hh;
};

static struct victim_user *user_find(const struct victims *victims, uid_t uid)
{
	struct victim_user *user;

	HASH_FIND(hh, victims->users, &uid, sizeof(uid), user);
	return user;
}

/* A user that finds no memory to be counted in has no share to protect. */
static struct victim_user *user_get(struct victims *victims, const struct fs *fs, uid_t uid)
{
	struct victim_user *user = user_find(victims, uid);

	if (user)
		return user;
	user = calloc(1, sizeof(*user));
	if (!user)
		return NULL;
	user->uid = uid;
	user->weight = options_weight(&fs->options, uid);
	if (HASH_ADD_NEW(hh, victims->users, uid, sizeof(user->uid), user)) {
		victims->weights += user->weight;
		return user;
	}
	free(user);
	return NULL;
}

void victims_count_user(struct victims *victims, const struct fs *fs, uid_t uid)
{
	user_get(victims, fs, uid);
}

/* Files that are stuck do not keep others off a full list. */
static bool leaves_before(const struct victim *a, const struct victim *b)
{
	if (a->is_stuck != b->is_stuck)
		return b->is_stuck;
	return a->priority != b->priority ? a->priority < b->priority : a->used < b->used;
}

/* Most users have few files: the list grows with them. */
static bool list_has_room(struct victim_user *user)
{
	if (user->n < user->capacity)
		return true;
	if (user->n == VICTIMS_MAX)
		return false;
	unsigned capacity = user->capacity ? user->capacity * 2 : 4;
	struct victim *list = realloc(user->list, capacity * sizeof(*list));

	if (!list)
		return false;
	user->list = list;
	user->capacity = capacity;
	return true;
}

/* Keeps the list in order, and the first of all files if there are more than the list takes. */
static void victim_add(struct victim_user *user, const struct victim *victim)
{
	unsigned at = user->n;

	if (list_has_room(user))
		user->n++;
	else if (!at || !leaves_before(victim, &user->list[--at]))
		return;
	while (at && leaves_before(victim, &user->list[at - 1]))
		at--;
	memmove(&user->list[at + 1], &user->list[at], (user->n - 1 - at) * sizeof(*victim));
	user->list[at] = *victim;
}

static bool may_be_below(struct fs *fs, const struct volume *volume, enum memory_place place,
			 uid_t uid, uint64_t bytes)
{
	if (bytes > volume->max_chunk)
		bytes = volume->max_chunk;
	do
		place = volume_place_below(volume, place);
	while (place < PLACES && ledger_room(fs, uid, owner_place_kind(place)) < bytes);
	return place < PLACES;
}

static void inode_add(struct victims *victims, struct fs *fs, struct inode *inode, uint64_t bytes)
{
	struct attr_values attrs = atomic_load(&inode->attrs);
	struct victim victim = {
	    .ino = inode->ino,
	    .uid = atomic_load(&inode->uid),
	    .priority = attrs.priority,
	    .used = file_used(inode->file),
	};

	if (!bytes)
		return;
	struct victim_user *user = user_get(victims, fs, victim.uid);

	if (!user)
		return;
	user->bytes += bytes;
	victim.is_stuck =
	    !may_be_below(fs, file_volume(inode->file), victims->place, victim.uid, bytes);
	if (!file_leases(inode->file))
		victim_add(user, &victim);
	else if (!victim.is_stuck)
		victims->leased = true;
}

static void inode_consider(struct victims *victims, struct fs *fs, struct inode *inode)
{
	uint64_t bytes;

	if (!S_ISREG(atomic_load(&inode->mode)) ||
	    (victims->volume && file_volume(inode->file) != victims->volume))
		return;
	if (file_try_bytes_in(inode->file, victims->place, &bytes))
		inode_add(victims, fs, inode, bytes);
	else if (victims->n_busy < VICTIMS_BUSY_MAX &&
		 user_get(victims, fs, atomic_load(&inode->uid)))
		victims->busy[victims->n_busy++] = (struct busy_victim){
		    .ino = inode->ino,
		    .uid = atomic_load(&inode->uid),
		    .bytes_most = file_allocated(inode->file),
		};
}

/* Other programs and the limits of the mount make the device smaller. */
static uint64_t shared_bytes(struct fs *fs, const struct volume *volume, enum memory_place place)
{
	uint64_t available;

	if (place != PLACE_GPU)
		return fs->budgets[place].size - fs->budgets[place].spare;
	if (pool_available(volume->pool, &available) < 0)
		return volume->device->total;
	return pool_usage(volume->pool).span_bytes + available;
}

void victims_scan(struct victims *victims, struct fs *fs, const struct volume *volume,
		  enum memory_place place)
{
	struct inode *inode;
	uint32_t slot = 0;

	victims_free(victims);
	victims->scans++;
	victims->place = place;
	victims->volume = place == PLACE_GPU ? volume : NULL;
	victims->shared = shared_bytes(fs, volume, place);
	while ((inode = inode_table_next(fs->inodes, &slot))) {
		inode_consider(victims, fs, inode);
		inode_put(fs, inode, 1);
	}
}

static uint64_t bytes_above_share(const struct victims *victims, const struct victim_user *user,
				  uint64_t bytes)
{
	uint64_t share = victims->shared * user->weight / victims->weights;

	return bytes > share ? bytes - share : 0;
}

/* Of a user with so many bytes, how many may leave for the file that needs room: of the same user
 * by the priorities of files, so that no user can hold a GPU by a number; of another user by the
 * share. */
static uint64_t user_part(const struct victims *victims, const struct victim_user *user,
			  uint64_t bytes, const struct eviction *eviction)
{
	const struct inode_call *requester = eviction->requester;

	if (eviction->only_owner)
		return user->uid == *eviction->only_owner ? UINT64_MAX : 0;
	if (!requester || user->uid == atomic_load(&requester->inode->uid))
		return UINT64_MAX;
	return bytes_above_share(victims, user, bytes);
}

static bool is_own_file(uint64_t ino, const struct eviction *eviction)
{
	return eviction->requester && ino == eviction->requester->inode->ino;
}

static bool own_file_may_leave(const struct eviction *eviction)
{
	return eviction->may_use_own_file && !eviction->keep;
}

static bool victim_may_leave(const struct victim *victim, const struct eviction *eviction)
{
	const struct inode_call *requester = eviction->requester;

	if (victim->is_stuck && !eviction->exchanges)
		return false;
	if (!requester)
		return true;
	if (is_own_file(victim->ino, eviction))
		return own_file_may_leave(eviction);
	return eviction->only_owner || victim->uid != atomic_load(&requester->inode->uid) ||
	       victim->priority <= requester->call.attrs.priority;
}

uint64_t victims_busy(const struct victims *victims, const struct eviction *eviction,
		      unsigned index)
{
	const struct busy_victim *file = &victims->busy[index];
	const struct victim_user *user = user_find(victims, file->uid);

	if (!user || (is_own_file(file->ino, eviction) && !own_file_may_leave(eviction)))
		return 0;
	return user_part(victims, user, user->bytes + file->bytes_most, eviction) ? file->ino : 0;
}

void victims_add_busy(struct victims *victims, struct fs *fs, unsigned index, struct inode *inode,
		      uint64_t bytes)
{
	if (victims->busy[index].ino != inode->ino)
		return;
	victims->busy[index].ino = 0;
	if (!victims->volume || file_volume(inode->file) == victims->volume)
		inode_add(victims, fs, inode, bytes);
}

/* The user's file to leave first, or NULL. */
static struct victim *user_victim(const struct victim_user *user, const struct eviction *eviction)
{
	for (unsigned i = 0; i < user->n; i++)
		if (victim_may_leave(&user->list[i], eviction))
			return &user->list[i];
	return NULL;
}

/* A file that may leave, before it is known to be the first. */
struct candidate {
	struct victim_user *user;
	struct victim *victim;
	uint64_t excess; /* the user's bytes above the share */
};

static bool candidate_is_first(const struct candidate *candidate, const struct candidate *best)
{
	if (!best->victim || candidate->excess != best->excess)
		return !best->victim || candidate->excess > best->excess;
	return leaves_before(candidate->victim, best->victim);
}

bool victims_take(struct victims *victims, const struct eviction *eviction, struct victim *victim,
		  uint64_t *max_bytes)
{
	uint64_t missing = eviction->bytes_wanted - eviction->bytes_freed, part;
	struct candidate best = {0};
	struct victim_user *user, *next;

	HASH_ITER (hh, victims->users, user, next) {
		struct candidate candidate = {.user = user};

		if (!user_part(victims, user, user->bytes, eviction))
			continue;
		candidate.victim = user_victim(user, eviction);
		candidate.excess = bytes_above_share(victims, user, user->bytes);
		if (candidate.victim && candidate_is_first(&candidate, &best))
			best = candidate;
	}
	if (!best.victim)
		return false;
	*victim = *best.victim;
	part = user_part(victims, best.user, best.user->bytes, eviction);
	*max_bytes = part < missing ? part : missing;
	user = best.user;
	user->n--;
	memmove(best.victim, best.victim + 1,
		(size_t)(&user->list[user->n] - best.victim) * sizeof(*victim));
	return true;
}

void victims_put_back(struct victims *victims, const struct victim *victim)
{
	struct victim_user *user = user_find(victims, victim->uid);

	if (user)
		victim_add(user, victim);
}

void victims_note_moved(struct victims *victims, uid_t uid, uint64_t bytes)
{
	struct victim_user *user = user_find(victims, uid);

	if (user)
		user->bytes -= bytes < user->bytes ? bytes : user->bytes;
}

void victims_free(struct victims *victims)
{
	struct victim_user *user, *next;

	HASH_ITER (hh, victims->users, user, next) {
		HASH_DEL(victims->users, user);
		free(user->list);
		free(user);
	}
	victims->users = NULL;
	victims->leased = false;
	victims->n_busy = 0;
	victims->weights = 0;
}
