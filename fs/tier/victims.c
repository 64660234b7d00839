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
#include "fs/tree/inode_table.h"
#include "fs/tree/owner.h"

struct tier_user {
	uid_t uid;
	unsigned weight;
	uint64_t bytes; /* in the place */
	UT_hash_handle hh;
};

/* A user that finds no memory to be counted in has no share to protect. */
static struct tier_user *user_get(struct victims *victims, const struct fs *fs, uid_t uid)
{
	struct tier_user *user;

	HASH_FIND(hh, victims->users, &uid, sizeof(uid), user);
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

static bool leaves_before(const struct victim *a, const struct victim *b)
{
	return a->priority != b->priority ? a->priority < b->priority : a->used < b->used;
}

/* Keeps the list in order, and the first of all files if there are more than the list takes. */
static void victim_add(struct victims *victims, const struct victim *victim)
{
	unsigned at = victims->n;

	if (at == VICTIMS_MAX && !leaves_before(victim, &victims->list[--at]))
		return;
	while (at && leaves_before(victim, &victims->list[at - 1]))
		at--;
	if (victims->n < VICTIMS_MAX)
		victims->n++;
	memmove(&victims->list[at + 1], &victims->list[at],
		(victims->n - 1 - at) * sizeof(*victim));
	victims->list[at] = *victim;
}

/* Files that their owners may not have in a slower place would keep other files off the list. */
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

static void inode_consider(struct victims *victims, struct fs *fs, struct inode *inode)
{
	if (!S_ISREG(atomic_load(&inode->mode)) ||
	    (victims->volume && file_volume(inode->file) != victims->volume))
		return;
	uint64_t bytes = file_bytes_in_now(inode->file, victims->place);
	struct attr_values attrs = atomic_load(&inode->attrs);
	struct victim victim = {
	    .ino = inode->ino,
	    .uid = atomic_load(&inode->uid),
	    .priority = attrs.priority,
	    .used = file_used(inode->file),
	};

	if (!bytes)
		return;
	struct tier_user *user = user_get(victims, fs, victim.uid);

	if (user)
		user->bytes += bytes;
	if (!may_be_below(fs, file_volume(inode->file), victims->place, victim.uid, bytes))
		return;
	if (file_leases(inode->file))
		victims->leased = true;
	else
		victim_add(victims, &victim);
}

/* Other programs and the limits of the mount make the device smaller. */
static uint64_t shared_bytes(struct fs *fs, const struct volume *volume, enum memory_place place)
{
	uint64_t available;

	if (place != PLACE_GPU)
		return fs_place_budget(fs, place)->size;
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
	victims->filled = true;
	victims->place = place;
	victims->volume = place == PLACE_GPU ? volume : NULL;
	victims->shared = shared_bytes(fs, volume, place);
	while ((inode = inode_table_next(fs->inodes, &slot))) {
		inode_consider(victims, fs, inode);
		inode_put(fs, inode, 1);
	}
}

bool victims_are_of(const struct victims *victims, const struct volume *volume)
{
	return victims->filled && (!victims->volume || victims->volume == volume);
}

uint64_t victims_above_share(const struct victims *victims, uid_t uid)
{
	struct tier_user *user;

	HASH_FIND(hh, victims->users, &uid, sizeof(uid), user);
	if (!user)
		return UINT64_MAX;
	uint64_t share = victims->shared * user->weight / victims->weights;

	return user->bytes > share ? user->bytes - share : 0;
}

void victims_note_moved(struct victims *victims, uid_t uid, uint64_t bytes)
{
	struct tier_user *user;

	HASH_FIND(hh, victims->users, &uid, sizeof(uid), user);
	if (user)
		user->bytes -= bytes < user->bytes ? bytes : user->bytes;
}

void victims_free(struct victims *victims)
{
	struct tier_user *user, *next;

	HASH_ITER (hh, victims->users, user, next) {
		HASH_DEL(victims->users, user);
		free(user);
	}
	victims->users = NULL;
	victims->filled = false;
	victims->leased = false;
	victims->n = 0;
	victims->weights = 0;
}
