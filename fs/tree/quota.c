/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
#include <errno.h>

#include "fs/core/fs.h"
#include "fs/core/worker.h"
#include "fs/ledger/ledger.h"
#include "fs/tree/dir.h"
#include "fs/tree/inode.h"
#include "fs/tree/owner.h"
#include "fs/tree/quota.h"

static struct inode *dir_parent(struct inode *dir)
{
	return dir->dir->parent;
}

static void sums_add(struct dir *dir, int64_t bytes, int64_t files)
{
	if (bytes)
		atomic_fetch_add_explicit(&dir->rbytes, bytes, memory_order_relaxed);
	if (files)
		atomic_fetch_add_explicit(&dir->rfiles, files, memory_order_relaxed);
}

static bool sum_is_within(_Atomic int64_t *sum, _Atomic uint64_t *limit, int64_t added)
{
	return added <= 0 || (uint64_t)atomic_load_explicit(sum, memory_order_relaxed) <=
				 atomic_load_explicit(limit, memory_order_relaxed);
}

int quota_add(struct inode *quota_dir, int64_t bytes, int64_t files)
{
	for (struct inode *dir = quota_dir; dir; dir = dir_parent(dir)) {
		struct dir *sums = dir->dir;

		/* Add before the check: otherwise two simultaneous charges could pass under the
		 * limit together. */
		sums_add(sums, bytes, files);
		if (sum_is_within(&sums->rbytes, &sums->max_bytes, bytes) &&
		    sum_is_within(&sums->rfiles, &sums->max_files, files))
			continue;
		for (struct inode *undo = quota_dir;; undo = dir_parent(undo)) {
			sums_add(undo->dir, -bytes, -files);
			if (undo == dir)
				return -EDQUOT;
		}
	}
	return 0;
}

void quota_force(struct inode *quota_dir, int64_t bytes, int64_t files)
{
	for (struct inode *dir = quota_dir; dir; dir = dir_parent(dir))
		sums_add(dir->dir, bytes, files);
}

/* Topology is held. */
static int bytes_charge(const struct inode_call *call, int64_t bytes)
{
	struct inode *inode = call->inode;
	int error = 0;

	if (inode->quota_dir && call->overdraft)
		quota_force(inode->quota_dir, bytes, 0);
	else if (inode->quota_dir)
		error = quota_add(inode->quota_dir, bytes, 0);

	if (!error) {
		error = owner_charge_bytes(call->fs, inode, bytes);
		if (error && inode->quota_dir)
			quota_force(inode->quota_dir, -bytes, 0);
	}
	if (!error)
		worker_memory_add(call->fs, inode->ino, bytes);
	return error;
}

int quota_charge(void *quota_owner, int64_t bytes)
{
	struct inode_call *call = quota_owner;
	brlock_token token = brlock_read_lock(&call->fs->topology);
	int error = bytes_charge(call, bytes);

	brlock_read_unlock(&call->fs->topology, token);
	return error;
}

int quota_charge_place(void *quota_owner, enum memory_place place, int64_t bytes, bool replaces)
{
	struct inode_call *call = quota_owner;
	enum owner_charge charge = call->overdraft ? OWNER_ALWAYS : OWNER_WITHIN_LIMITS;
	int error = 0;

	if (bytes > 0)
		error = owner_take_span(call->fs, call->inode, place, (uint64_t)bytes, charge,
					replaces ? OWNER_ALWAYS : charge);
	else
		owner_give_span(call->fs, call->inode, place, (uint64_t)-bytes);
	if (!error && place != PLACE_GPU)
		worker_memory_add_place(call->fs, call->inode->ino, place, bytes);
	return error;
}

int quota_charge_span(const struct file_call *call, enum memory_place place, int64_t span_bytes,
		      int64_t bytes)
{
	int error = bytes_charge(call->quota_owner, bytes);

	if (error)
		return error;
	error = quota_charge_place(call->quota_owner, place, span_bytes, call->replaces);
	if (error)
		bytes_charge(call->quota_owner, -bytes);
	return error;
}

int quota_object(void *quota_owner, int change, enum system_tmpfs tmpfs)
{
	struct inode_call *call = quota_owner;

	if (change > 0)
		return owner_take_object(call->fs, call->inode, tmpfs, OWNER_WITHIN_LIMITS);
	if (change < 0)
		owner_give_object(call->fs, call->inode, tmpfs);
	else if (tmpfs == SYSTEM_TMPFS_OWN)
		owner_give_tmpfs(call->fs, call->inode);
	return 0;
}

enum file_limits quota_limits_in(struct fs *fs, struct inode *dir)
{
	brlock_token token = brlock_read_lock(&fs->topology);
	bool limited = quota_limited(dir);

	brlock_read_unlock(&fs->topology, token);
	return limited ? FILE_LIMITS_QUOTA : FILE_LIMITS_NONE;
}

/* Under topology: another thread may give the inode another quota_dir, and free the old one. */
enum file_limits quota_limits(void *quota_owner)
{
	const struct inode_call *call = quota_owner;
	brlock_token token = brlock_read_lock(&call->fs->topology);
	bool limited = quota_limited(call->inode->quota_dir);

	brlock_read_unlock(&call->fs->topology, token);
	return limited ? FILE_LIMITS_QUOTA : FILE_LIMITS_NONE;
}

/* Moves a charge to another directory: 0, or -EDQUOT without a change. A quota above both
 * directories sees no change. */
static int quota_move(struct inode *from, struct inode *to, int64_t bytes, int64_t files)
{
	/* Subtract first: a quota above both directories must not see the amount twice. */
	quota_force(from, -bytes, -files);
	int error = quota_add(to, bytes, files);

	if (error)
		quota_force(from, bytes, files);
	return error;
}

/* The bytes and files that the inode adds to the sums of a directory. */
static void inode_weight(struct inode *inode, int64_t *bytes, int64_t *files)
{
	*bytes = (int64_t)atomic_load(&inode->charges.bytes);
	*files = inode->charges.counted;
	if (S_ISDIR(inode->mode)) {
		*bytes += inode->dir->rbytes;
		*files += inode->dir->rfiles;
	}
}

static void inode_set_quota_dir(struct inode *inode, struct inode *from, struct inode *to)
{
	inode->quota_dir = to;
	inode_ref(to);
	atomic_fetch_sub(&from->refs,
			 1); /* never the last reference: the request's lookup holds another */
}

int quota_move_inode(struct inode *inode, struct inode *from, struct inode *to)
{
	int64_t bytes, files;

	if (inode->quota_dir != from)
		return 0;
	inode_weight(inode, &bytes, &files);
	int error = quota_move(from, to, bytes, files);

	if (error)
		return error;
	inode_set_quota_dir(inode, from, to);
	return 0;
}

void quota_return_inode(struct inode *inode, struct inode *from, struct inode *to)
{
	int64_t bytes, files;

	if (inode->quota_dir != to)
		return;
	inode_weight(inode, &bytes, &files);
	quota_force(to, -bytes, -files);
	quota_force(from, bytes, files);
	inode_set_quota_dir(inode, to, from);
}

bool quota_limited(struct inode *quota_dir)
{
	for (struct inode *dir = quota_dir; dir; dir = dir_parent(dir))
		if (atomic_load_explicit(&dir->dir->max_bytes, memory_order_relaxed) != UINT64_MAX)
			return true;
	return false;
}

/* Narrows *room to what this quota leaves; sets *nearest to the limit if no nearer
 * directory has a limit. */
static void quota_narrow(_Atomic uint64_t *limit, uint64_t used, uint64_t *nearest, uint64_t *room)
{
	uint64_t max = atomic_load_explicit(limit, memory_order_relaxed);
	uint64_t dir_room = max > used ? max - used : 0;

	if (max == UINT64_MAX)
		return;
	if (*nearest == UINT64_MAX)
		*nearest = max;
	if (dir_room < *room)
		*room = dir_room;
}

static uint64_t sum_read(_Atomic int64_t *sum)
{
	int64_t value = atomic_load_explicit(sum, memory_order_relaxed);

	return value > 0 ? (uint64_t)value : 0;
}

void quota_report(struct inode *dir, struct quota_report *quota)
{
	*quota = (struct quota_report){UINT64_MAX, 0, UINT64_MAX, UINT64_MAX, UINT64_MAX};
	for (; dir; dir = dir_parent(dir)) {
		struct dir *sums = dir->dir;
		uint64_t bytes = sum_read(&sums->rbytes), files = sum_read(&sums->rfiles);
		bool first = quota->max_bytes == UINT64_MAX;

		quota_narrow(&sums->max_bytes, bytes, &quota->max_bytes, &quota->bytes_left);
		if (first && quota->max_bytes != UINT64_MAX)
			quota->used_bytes = bytes;
		quota_narrow(&sums->max_files, files, &quota->max_files, &quota->files_left);
	}
}

uint64_t quota_room(struct inode *quota_dir)
{
	struct quota_report quota;

	quota_report(quota_dir, &quota);
	return quota.bytes_left;
}
