/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
#include "fs/tree/user_limits.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/cleanup.h"
#include "common/descriptors.h"
#include "common/hash.h"
#include "common/log.h"
#include "common/protocol.h"
#include "fs/core/caller.h"
#include "fs/core/fs.h"
#include "fs/tree/inode.h"
#include "fs/tree/quota.h"

struct user {
	UT_hash_handle hh;
	uid_t uid;
	uint64_t counts[USER_KINDS];
	bool refused; /* memory in a place, and logged; until some of the user's is given back */
};

#define TEXTS	   128
#define TEXT_BYTES (2U << 20)
/* Limits of all ordinary users together; the remainder is for root. Needed because a user namespace
 * gives a user any number of uids. */
#define ALL_TEXT_BYTES (14U << 20)

static const struct {
	const char *name, *remedy;
	uint64_t of_one, of_all; /* limits for ordinary users; 0: no such limit */
	int64_t cost;		 /* bytes of the daemon's memory, approximately */
} kinds[] = {
    [USER_LEASES] = {"leases", " (-o user_leases=)", 0, 0, 512},
    [USER_CONNECTIONS] = {"connections", "", GPUMEM_CONNECTIONS_MAX, 0, 512},
    [USER_TEXTS] = {"open files of .gpumem/", "", TEXTS, 0, 256},
    [USER_TEXT_BYTES] = {"bytes of open files of .gpumem/", "", TEXT_BYTES, ALL_TEXT_BYTES, 1},
    [USER_HOST_FILES] = {"files of host/",
			 " (-o user_host_files=, below the daemon's limit of open files)", 0, 0, 0},
    [USER_SPILL_HOST] = {"bytes of files that left a GPU in system memory", " (-o user_spill=)", 0,
			 0, 0},
    [USER_SPILL_DISK] = {"bytes of files that left a GPU on the disk", " (-o user_spill=)", 0, 0,
			 0},
};

_Static_assert(sizeof(kinds) / sizeof(kinds[0]) == USER_KINDS, "a row for each");

int user_limits_new(struct user_limits **made)
{
	struct user_limits *limits = calloc(1, sizeof(*limits));

	if (!limits)
		return -ENOMEM;
	pthread_mutex_init(&limits->lock, NULL);
	*made = limits;
	return 0;
}

static void user_free(struct user_limits *limits, struct user *user)
{
	HASH_DEL(limits->by_uid, user);
	free(user);
}

void user_limits_free(struct user_limits *limits)
{
	struct user *user, *next;

	HASH_ITER (hh, limits->by_uid, user, next)
		user_free(limits, user);
	pthread_mutex_destroy(&limits->lock);
	free(limits);
}

/* Each file costs a descriptor here and a descriptor in the keeper. A user gets at most half of the
 * descriptors. */
static uint64_t user_host_files_limit(const struct fs *fs)
{
	uint64_t files = descriptors_for(DESCRIPTOR_MEMORY, descriptors_limit());

	if (fs->options.user_host_files)
		return fs->options.user_host_files;
	return files / (fs->fdstore ? 4 : 2);
}

static uint64_t user_limit(const struct fs *fs, enum user_kind kind)
{
	switch (kind) {
	case USER_LEASES:
		return fs->options.user_leases;
	case USER_HOST_FILES:
		return user_host_files_limit(fs);
	case USER_SPILL_HOST:
		return amount_bytes(&fs->options.user_spill, fs->spill_budget.size, 0);
	case USER_SPILL_DISK:
		return amount_bytes(&fs->options.user_spill, fs->disk_budget.size, 0);
	default:
		return kinds[kind].of_one;
	}
}

static struct user *user_find(const struct user_limits *limits, uid_t uid)
{
	struct user *user = NULL;

	HASH_FIND(hh, limits->by_uid, &uid, sizeof(uid), user);
	return user;
}

static struct user *user_find_or_new(struct user_limits *limits, uid_t uid)
{
	struct user *user = user_find(limits, uid);

	if (user)
		return user;
	user = calloc(1, sizeof(*user));
	if (!user)
		return NULL;
	user->uid = uid;
	if (HASH_ADD_NEW(hh, limits->by_uid, uid, sizeof(uid), user))
		return user;
	free(user);
	return NULL;
}

/* lock is held. */
static int limit_check(const struct fs *fs, uid_t uid, enum user_kind kind, uint64_t more)
{
	const struct user *user = user_find(fs->users, uid);
	uint64_t has = user ? user->counts[kind] : 0, of_all = kinds[kind].of_all;

	if (user_is_privileged(uid))
		return 0;
	if (has + more > user_limit(fs, kind))
		return -EMFILE;
	return of_all && fs->users->ordinary[kind] + more > of_all ? -ENFILE : 0;
}

/* lock is held. */
static int count_add(struct fs *fs, uid_t uid, enum user_kind kind, uint64_t more)
{
	struct user *user = user_find_or_new(fs->users, uid);

	if (!user)
		return -ENOMEM;
	user->counts[kind] += more;
	if (!user_is_privileged(uid))
		fs->users->ordinary[kind] += more;
	return 0;
}

/* lock is held. */
static void count_give(struct fs *fs, uid_t uid, enum user_kind kind, uint64_t fewer)
{
	struct user *user = user_find(fs->users, uid);

	if (!user)
		return;
	user->counts[kind] -= fewer;
	if (!user_is_privileged(uid))
		fs->users->ordinary[kind] -= fewer;
	for (unsigned i = 0; i < USER_KINDS; i++)
		if (user->counts[i])
			return;
	user_free(fs->users, user);
}

static int count_take(struct fs *fs, uid_t uid, enum user_kind kind, uint64_t more)
{
	scoped_lock(&fs->users->lock);
	int error = limit_check(fs, uid, kind, more);

	return error ? error : count_add(fs, uid, kind, more);
}

/* The current thread may serve a request of another user, or no request. */
static void refusal_log(const struct fs *fs, uid_t uid, enum user_kind kind, int error)
{
	struct log_caller before = log_caller_change((struct log_caller){true, uid});

	if (error == -EMFILE)
		log_warn("uid %u: refused: a user may have at most %" PRIu64 " %s%s", uid,
			 user_limit(fs, kind), kinds[kind].name, kinds[kind].remedy);
	else
		log_warn("uid %u: refused: all users together may have at most %" PRIu64 " %s", uid,
			 kinds[kind].of_all, kinds[kind].name);
	log_caller_change(before);
}

int user_limits_take(struct fs *fs, uid_t uid, enum user_kind kind, uint64_t more)
{
	int64_t bytes = (int64_t)more * kinds[kind].cost;
	int error = quota_metadata(fs, bytes);

	if (error)
		return error;
	error = count_take(fs, uid, kind, more);
	if (error)
		quota_metadata(fs, -bytes);
	if (error == -EMFILE || error == -ENFILE)
		refusal_log(fs, uid, kind, error);
	return error;
}

int user_limits_restore(struct fs *fs, uid_t uid, enum user_kind kind, uint64_t more)
{
	scoped_lock(&fs->users->lock);
	int error = count_add(fs, uid, kind, more);

	if (!error)
		atomic_fetch_add(&fs->metadata_bytes, (int64_t)more * kinds[kind].cost);
	return error;
}

void user_limits_give(struct fs *fs, uid_t uid, enum user_kind kind, uint64_t fewer)
{
	quota_metadata(fs, -(int64_t)fewer * kinds[kind].cost);
	scoped_lock(&fs->users->lock);
	count_give(fs, uid, kind, fewer);
}

bool user_limits_reached(struct fs *fs, uid_t uid, enum user_kind kind)
{
	scoped_lock(&fs->users->lock);
	return limit_check(fs, uid, kind, 1) != 0;
}

int user_limits_check(struct fs *fs, uid_t uid, enum user_kind kind)
{
	pthread_mutex_lock(&fs->users->lock);
	int error = limit_check(fs, uid, kind, 1);

	pthread_mutex_unlock(&fs->users->lock);
	if (error)
		refusal_log(fs, uid, kind, error);
	return error;
}

uint64_t user_limits_count(struct fs *fs, uid_t uid, enum user_kind kind)
{
	scoped_lock(&fs->users->lock);
	const struct user *user = user_find(fs->users, uid);

	return user ? user->counts[kind] : 0;
}

/* USER_SPILL_HOST and the kinds after it have the order of the places. */
static enum user_kind place_kind(enum memory_place place)
{
	return (enum user_kind)(USER_SPILL_HOST + (place - PLACE_HOST));
}

_Static_assert(USER_KINDS - USER_SPILL_HOST == PLACES - PLACE_HOST, "a kind for each place");

/* lock is held. */
static int place_add(struct fs *fs, struct inode *inode, enum memory_place place, uint64_t more)
{
	int error = count_add(fs, inode->uid, place_kind(place), more);

	if (!error)
		inode->spilled[place - PLACE_HOST] += (uint32_t)(more / POOL_BLOCK_MIN);
	return error;
}

/* lock is held. Memory that could not be counted when the owner changed is not counted off. */
static void place_give(struct fs *fs, struct inode *inode, enum memory_place place, uint64_t fewer)
{
	uint32_t *spilled = &inode->spilled[place - PLACE_HOST];
	struct user *user = user_find(fs->users, inode->uid);

	if (fewer > *spilled * POOL_BLOCK_MIN)
		fewer = *spilled * POOL_BLOCK_MIN;
	*spilled -= (uint32_t)(fewer / POOL_BLOCK_MIN);
	if (user)
		user->refused = false;
	count_give(fs, inode->uid, place_kind(place), fewer);
}

/* lock is held. One line for a request that is refused piece by piece. */
static bool refusal_is_first(const struct fs *fs, uid_t uid)
{
	struct user *user = user_find(fs->users, uid);
	bool first = !user || !user->refused;

	if (user)
		user->refused = true;
	return first;
}

int user_limits_charge(struct fs *fs, struct inode *inode, enum memory_place place, int64_t bytes)
{
	enum user_kind kind = place_kind(place);
	bool first = false;
	int error = 0;

	pthread_mutex_lock(&fs->users->lock);
	uid_t uid = inode->uid;

	if (bytes <= 0)
		place_give(fs, inode, place, (uint64_t)-bytes);
	else
		error = limit_check(fs, uid, kind, (uint64_t)bytes)
			    ?: place_add(fs, inode, place, (uint64_t)bytes);
	if (error == -EMFILE)
		first = refusal_is_first(fs, uid);
	pthread_mutex_unlock(&fs->users->lock);
	if (first)
		refusal_log(fs, uid, kind, error);
	return error;
}

int user_limits_charge_restored(struct fs *fs, struct inode *inode, enum memory_place place,
				uint64_t bytes)
{
	scoped_lock(&fs->users->lock);
	return place_add(fs, inode, place, bytes);
}

uint64_t user_limits_room(struct fs *fs, uid_t uid, enum memory_place place)
{
	enum user_kind kind = place_kind(place);

	if (user_is_privileged(uid))
		return UINT64_MAX;
	uint64_t has = user_limits_count(fs, uid, kind), limit = user_limit(fs, kind);

	return has < limit ? limit - has : 0;
}

void user_limits_chown(struct fs *fs, struct inode *inode, uid_t uid)
{
	uint64_t had[PLACES - PLACE_HOST];

	scoped_lock(&fs->users->lock);
	for (enum memory_place place = PLACE_HOST; place < PLACES; place++) {
		had[place - PLACE_HOST] = inode->spilled[place - PLACE_HOST] * POOL_BLOCK_MIN;
		place_give(fs, inode, place, had[place - PLACE_HOST]);
	}
	inode->uid = uid;
	for (enum memory_place place = PLACE_HOST; place < PLACES; place++)
		if (had[place - PLACE_HOST])
			place_add(fs, inode, place, had[place - PLACE_HOST]);
}
