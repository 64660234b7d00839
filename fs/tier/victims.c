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
#include "fs/tree/inode_table.h"

struct tier_user {
	uid_t uid;
	uint64_t bytes; /* in the place */
	UT_hash_handle hh;
};

/* A user that finds no memory to be counted in has no share to protect. */
static struct tier_user *user_get(struct victims *victims, uid_t uid)
{
	struct tier_user *user;

	HASH_FIND(hh, victims->users, &uid, sizeof(uid), user);
	if (user)
		return user;
	user = calloc(1, sizeof(*user));
	if (!user)
		return NULL;
	user->uid = uid;
	if (HASH_ADD_NEW(hh, victims->users, uid, sizeof(user->uid), user))
		return user;
	free(user);
	return NULL;
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

static void inode_consider(struct victims *victims, struct inode *inode)
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
	struct tier_user *user = user_get(victims, victim.uid);

	if (user)
		user->bytes += bytes;
	if (!file_leases(inode->file))
		victim_add(victims, &victim);
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
	victims->place_bytes =
	    place == PLACE_GPU ? volume->device->total : fs_place_budget(fs, place)->size;
	while ((inode = inode_table_next(fs->inodes, &slot))) {
		inode_consider(victims, inode);
		inode_put(fs, inode, 1);
	}
}

bool victims_are_of(const struct victims *victims, const struct volume *volume)
{
	return victims->filled && (!victims->volume || victims->volume == volume);
}

bool victims_over_share(const struct victims *victims, uid_t uid)
{
	struct tier_user *user;

	HASH_FIND(hh, victims->users, &uid, sizeof(uid), user);
	return !user || user->bytes > victims->place_bytes / HASH_COUNT(victims->users);
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
	victims->n = 0;
}
