/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
#include <errno.h>
#include <linux/capability.h>
#include <sys/statvfs.h>
#include <sys/sysmacros.h>

#include "common/cleanup.h"
#include "fs/control/nodes.h"
#include "fs/core/caller.h"
#include "fs/core/file_time.h"
#include "fs/file/export.h"
#include "fs/ledger/ledger.h"
#include "fs/ops/inode_io.h"
#include "fs/share/share.h"
#include "fs/spool/spool.h"
#include "fs/tree/dir.h"
#include "fs/tree/quota.h"
#include "fs/tree/tree.h"

static void op_getattr(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *info)
{
	struct op op;
	struct stat st;

	(void)info;
	if (!op_begin(&op, req, ino, STAT_GETATTR))
		return;
	inode_stat(op.inode, &st);
	op_end(&op, 0);
	fuse_reply_attr(req, &st, op_attr_seconds(op.inode, &st));
}

/* The kernel asks for the time of birth, for which getattr has no member. The reply is never
 * ENOSYS, not even for a node of .gpumem/: after ENOSYS the kernel would not ask again for any
 * file. */
static void op_statx(fuse_req_t req, fuse_ino_t ino, int flags, int mask,
		     struct fuse_file_info *info)
{
	struct op op;
	struct stat st;

	(void)flags, (void)mask, (void)info;
	if (!op_begin(&op, req, ino, STAT_STATX))
		return;
	inode_stat(op.inode, &st);
	struct statx stx = inode_statx(&st, file_time_to_spec(op.inode->btime));

	op_end(&op, 0);
	fuse_reply_statx(req, 0, &stx, op_attr_seconds(op.inode, &st));
}

static int inode_set_size(struct op *op, uint64_t size, int mask)
{
	if (S_ISDIR(op->inode->mode))
		return -EISDIR;
	if (!S_ISREG(op->inode->mode))
		return -EINVAL;
	return (int)inode_io(
	    op, op->inode,
	    &(struct inode_io){.kind = INODE_TRUNCATE,
			       .offset = size,
			       .told = op_told(op, mask & FUSE_SET_ATTR_KILL_SUID)});
}

/* Whether a new size may zero or free much memory. */
static bool size_is_far(const struct op *op, uint64_t size)
{
	uint64_t old, memory;

	if (!S_ISREG(op->inode->mode))
		return false;
	memory = file_allocated(op->inode->file);
	old = file_size(op->inode->file);
	old = old < memory ? memory : old;
	return memory && (old < size ? size - old : old - size) > OP_SMALL_BYTES;
}

/* Refuses times that would come back as other times. */
static int times_check(const struct stat *st, int mask)
{
	bool atime = mask & FUSE_SET_ATTR_ATIME && !(mask & FUSE_SET_ATTR_ATIME_NOW);
	bool mtime = mask & FUSE_SET_ATTR_MTIME && !(mask & FUSE_SET_ATTR_MTIME_NOW);

	return (atime && !file_time_fits(&st->st_atim)) || (mtime && !file_time_fits(&st->st_mtim))
		   ? -EOVERFLOW
		   : 0;
}

static void attrs_from(const struct stat *st, int mask, struct tree_attrs *attrs)
{
	int64_t now = time_now();

	if (mask & FUSE_SET_ATTR_MODE)
		attrs->mask |= TREE_MODE;
	if (mask & FUSE_SET_ATTR_UID)
		attrs->mask |= TREE_UID;
	if (mask & FUSE_SET_ATTR_GID)
		attrs->mask |= TREE_GID;
	if (mask & FUSE_SET_ATTR_ATIME)
		attrs->mask |= TREE_ATIME;
	if (mask & FUSE_SET_ATTR_MTIME)
		attrs->mask |= TREE_MTIME;
	attrs->mode = st->st_mode;
	attrs->uid = st->st_uid;
	attrs->gid = st->st_gid;
	attrs->atime = mask & FUSE_SET_ATTR_ATIME_NOW ? now : file_time_from_spec(&st->st_atim);
	attrs->mtime = mask & FUSE_SET_ATTR_MTIME_NOW ? now : file_time_from_spec(&st->st_mtim);
}

static bool caller_is_owner(const struct op *op, const struct caller *caller)
{
	pthread_mutex_lock(&op->inode->lock);
	uid_t owner = op->inode->uid;

	pthread_mutex_unlock(&op->inode->lock);
	return caller->uid == owner || caller_is_capable(caller, CAP_FOWNER);
}

/* Whether processes can write to the file without the daemon: the kernel has the file's object, and
 * a handle is open for writing. */
static bool inode_has_passthrough_writers(struct inode *inode)
{
	scoped_lock(&inode->lock);
	return S_ISREG(inode->mode) && inode->uses.writers && *file_backing_id(inode->file);
}

/* In two cases the kernel sends a setattr without attributes.
 *
 * First: chown(2) of neither owner nor group. Such a chown(2) clears the set-id bits if the owner
 * calls; for other callers chown(2) fails if there are bits to clear.
 *
 * Second: a caller without CAP_FSETID is about to change the file. For most changes the daemon
 * clears the bits itself, but not for writes that the kernel passes through.
 *
 * Only the caller's system call tells the two apart. A write that looks like a chown(2) fails, so
 * that no bit survives a write. */
static int setattr_none_drop_set_id(struct op *op)
{
	struct caller caller = op_caller(op);

	if (!op_set_id_to_drop(op, op->inode, OP_TOLD_KILL))
		return 0;
	if (!caller_is_owner(op, &caller)) {
		if (caller_is_in_chown(caller.pid))
			return -EPERM;
		if (!inode_has_passthrough_writers(op->inode))
			return 0;
	}
	op_drop_set_id(op, op->inode, OP_TOLD_KILL);
	return 0;
}

static int setattr_drop_set_id(struct op *op, int mask, struct tree_attrs *attrs)
{
	const int owner = FUSE_SET_ATTR_UID | FUSE_SET_ATTR_GID;

	if (S_ISDIR(op->inode->mode))
		return 0;
	if (mask == 0)
		return setattr_none_drop_set_id(op);
	if (mask & owner)
		op_drop_set_id(op, op->inode, OP_TOLD_KILL);
	/* Without killpriv the kernel also sends a mode, in which too many bits may be set. */
	if (mask & (owner | FUSE_SET_ATTR_SIZE))
		attrs->mode &= op->inode->mode | ~(mode_t)(S_ISUID | S_ISGID);
	return 0;
}

/* Whether a new owner gets the memory of the file from users who may have the memory mapped: what
 * root alone had is the new owner's alone. */
static bool gives_memory(const struct op *op, const struct stat *st, int mask)
{
	uid_t uid = atomic_load(&op->inode->uid);

	return mask & FUSE_SET_ATTR_UID && S_ISREG(op->inode->mode) && st->st_uid != uid &&
	       (!user_is_privileged(uid) || file_is_unclean(op->inode->file)) &&
	       file_allocated(op->inode->file);
}

static int memory_renew(struct op *op)
{
	struct copier *copier = worker_copier(op->fs);
	struct inode_call call;

	if (!copier)
		return -ENOMEM;
	inode_call_init(&call, op->fs, op->inode, copier);
	/* The former owner must not be able to keep the file. */
	call.unasked = true;
	call.overdraft = true;
	return file_renew(op->inode->file, &call.call);
}

static void op_setattr(fuse_req_t req, fuse_ino_t ino, struct stat *st, int mask,
		       struct fuse_file_info *info)
{
	struct tree_attrs attrs = {0};
	struct op op;
	int error = times_check(st, mask);

	(void)info;
	if (!op_begin(&op, req, ino, STAT_SETATTR))
		return;
	if (!error && mask & FUSE_SET_ATTR_SIZE) {
		op.bytes = (uint64_t)st->st_size;
		if (size_is_far(&op, op.bytes) && op_defer(&op))
			return;
		error = inode_set_size(&op, op.bytes, mask);
	}
	if (!error && gives_memory(&op, st, mask)) {
		if (file_allocated(op.inode->file) > OP_SMALL_BYTES && op_defer(&op))
			return;
		error = memory_renew(&op);
	}
	if (!error) {
		attrs_from(st, mask, &attrs);
		error = setattr_drop_set_id(&op, mask, &attrs);
	}
	if (!error && attrs.mask)
		error = tree_set_attrs(op.fs, op.inode, &attrs);
	if (error) {
		op_done(&op, req, error);
		return;
	}
	inode_stat(op.inode, st);
	op_end(&op, 0);
	fuse_reply_attr(req, st, op_attr_seconds(op.inode, st));
}

static int usage_add(struct volume *volume, struct volume_usage *sum)
{
	struct volume_usage usage;
	int error = volume_usage(volume, &usage);

	if (error)
		return error;
	/* What volumes share counts once. */
	uint64_t overlap = sum->shared ? usage.shared : 0;

	sum->total += usage.total - overlap;
	sum->free += usage.free - overlap;
	sum->available += usage.available - overlap;
	sum->shared = usage.shared;
	return 0;
}

/* The usage of the volume; for the root and .gpumem/ the sum over all GPUs. host/ is not in the
 * sum, as its memory is not GPU memory. */
static int usage_sum(struct fs *fs, struct volume *volume, struct volume_usage *sum)
{
	int error = 0;

	*sum = (struct volume_usage){0};
	if (volume)
		return usage_add(volume, sum);
	for (unsigned i = 0; !error && i < fs->n_volumes; i++)
		if (fs->volumes[i].device)
			error = usage_add(&fs->volumes[i], sum);
	return error;
}

/* The memory for metadata bounds the number of inodes. */
static void statfs_inodes(struct op *op, struct statvfs *st)
{
	uid_t uid = op_caller(op).uid;
	uint64_t all = user_is_privileged(uid) ? (uint64_t)ledger_of(op->fs)->metadata_max
					       : ledger_limit(op->fs, LEDGER_METADATA);

	st->f_files = all / METADATA_INODE;
	st->f_ffree = ledger_room(op->fs, uid, LEDGER_METADATA) / METADATA_INODE;
	st->f_favail = st->f_ffree;
}

/* For a directory with a quota, and for everything below, statfs shows the quota instead of the
 * volume, as XFS does for project quotas. The size is that of the nearest quota, and the free space
 * that of the quota with the least space left. */
static void statfs_quota(struct op *op, struct statvfs *st)
{
	struct quota_report quota;
	brlock_token token = brlock_read_lock(&op->fs->topology);
	struct inode *dir = S_ISDIR(op->inode->mode) ? op->inode : op->inode->quota_dir;

	quota_report(dir, &quota);
	brlock_read_unlock(&op->fs->topology, token);
	if (quota.max_bytes != UINT64_MAX) {
		uint64_t limit = quota.max_bytes / POOL_BLOCK_MIN;
		uint64_t used = (quota.used_bytes + POOL_BLOCK_MIN - 1) / POOL_BLOCK_MIN;
		uint64_t blocks_left = quota.bytes_left / POOL_BLOCK_MIN;

		if (st->f_blocks > limit)
			st->f_blocks = limit;
		st->f_bfree = st->f_blocks > used ? st->f_blocks - used : 0;
		if (st->f_bavail > blocks_left)
			st->f_bavail = blocks_left;
	}
	if (quota.max_files != UINT64_MAX && st->f_files > quota.max_files) {
		st->f_files = quota.max_files;
		if (st->f_ffree > quota.files_left)
			st->f_ffree = st->f_favail = quota.files_left;
	}
}

static void op_statfs(fuse_req_t req, fuse_ino_t ino)
{
	struct volume_usage usage;
	struct op op;

	if (!op_begin(&op, req, control_owns(ino) ? INODE_ROOT : ino, STAT_STATFS))
		return;
	int error = usage_sum(op.fs, op.inode->volume, &usage);

	if (error) {
		op_done(&op, req, error);
		return;
	}
	struct statvfs st = {
	    .f_bsize = POOL_BLOCK_MIN,
	    .f_frsize = POOL_BLOCK_MIN,
	    .f_blocks = usage.total / POOL_BLOCK_MIN,
	    .f_bfree = usage.free / POOL_BLOCK_MIN,
	    .f_bavail = usage.available / POOL_BLOCK_MIN,
	    .f_namemax = NAME_BYTES_MAX,
	};
	statfs_inodes(&op, &st);
	statfs_quota(&op, &st);
	op_end(&op, 0);
	fuse_reply_statfs(req, &st);
}

void ops_attr(struct fuse_lowlevel_ops *ops)
{
	ops->getattr = op_getattr;
	ops->statx = op_statx;
	ops->setattr = op_setattr;
	ops->statfs = op_statfs;
}
