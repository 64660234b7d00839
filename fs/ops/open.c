/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
#include <errno.h>

#include "common/cleanup.h"
#include "common/log.h"
#include "fs/file/missing.h"
#include "fs/ops/ops.h"
#include "fs/spool/spool.h"
#include "fs/tree/host_out.h"
#include "fs/tree/inode_watch.h"
#include "fs/tree/quota.h"
#include "fs/tree/record.h"
#include "fs/tree/tree.h"

static bool flags_write(int flags)
{
	return (flags & O_ACCMODE) != O_RDONLY;
}

/* Access mode 3 of Linux is a handle for ioctls alone: the kernel refuses both reads and writes. */
static bool flags_read(int flags)
{
	return (flags & O_ACCMODE) == O_RDONLY || (flags & O_ACCMODE) == O_RDWR;
}

/* How the page cache is used, by the option cache=. A GPU may change a file at any time, so by
 * default nothing is kept. */
static void info_set_cache(struct op *op, struct fuse_file_info *info)
{
	enum cache_mode cache = op->fs->options.cache;

	info->direct_io = cache == CACHE_NONE || info->flags & O_DIRECT;
	info->keep_cache = cache == CACHE_ALWAYS;
	info->parallel_direct_writes = 1;
}

/* Opens the file's object straight to the kernel; inode->lock is held. All opens of one file at a
 * time share one backing id, because a second registration of the same object fails every later
 * open; or none has one, because the kernel fails such an open (EIO) where another handle has pages
 * in its cache. */
static void info_set_passthrough(struct op *op, fuse_req_t req, struct inode *inode,
				 struct fuse_file_info *info, bool *promised)
{
	_Atomic int32_t *backing = file_backing_id(inode->file);
	struct inode_call call;

	if (!*backing && (!*promised || inode->opens || inode->moving))
		return;
	if (!*backing) {
		inode_call_init(&call, op->fs, inode, op->worker->copier);
		inode_update_mtime(inode);
		int fd = file_object(inode->file, &call.call);
		int id = fd < 0 ? 0 : fuse_passthrough_open(req, fd);

		inode_set_mtime(inode,
				inode->fields->mtime); /* to make an object is to write nothing */
		if (id <= 0)
			return;
		*backing = id;
		*promised = false; /* from here on it is the backing id's */
		inode->keep_data = true;
	}
	info->backing_id = *backing;
	info->keep_cache = 0; /* refused by the kernel together with passthrough */
}

/* Whether the kernel may be given the object, which is charged by its size then, as it may be
 * mapped. Before the lock: it waits. Below a quota writes through a handle that cannot map need no
 * such charge, nor do readers, who would have the owner pay for holes that they only look at. */
static bool object_promise(struct op *op, struct inode *inode, int flags, bool limited)
{
	struct inode_call call;

	if (!op->fs->can.passthrough.on || !file_volume(inode->file)->system ||
	    *file_backing_id(inode->file))
		return false;
	/* An empty file costs no object until somebody may write to it. */
	if (!flags_write(flags) && file_size(inode->file) == 0)
		return false;
	if (limited && (flags & O_ACCMODE) != O_RDWR &&
	    (flags_write(flags) || file_is_sparse(inode->file)))
		return false;
	inode_call_init(&call, op->fs, inode, op->worker->copier);
	return file_promise(inode->file, &call.call) == 0;
}

static int handle_count_locked(struct op *op, fuse_req_t req, struct inode *inode,
			       struct fuse_file_info *info, bool limited, bool *promised)
{
	scoped_lock(&inode->lock);
	if (inode->data_freed)
		return -ESTALE;
	if (op->fs->can.passthrough.on && file_volume(inode->file)->system) {
		info_set_passthrough(op, req, inode, info, promised);
		/* Below a quota, and where a write takes set-id bits away, the kernel maps the
		 * object, but reads and writes come here. */
		bool here =
		    limited || (flags_write(info->flags) && inode->mode & (S_ISUID | S_ISGID));

		info->direct_io = info->backing_id ? here : info->direct_io;
	}
	if (op->completed & JOURNAL_DID_OPEN)
		return 0;
	inode->opens++;
	inode_may_drop(op->fs, inode); /* not now, but O_TMPFILE has no name from the start */
	inode->writers += flags_write(info->flags);
	record_open(op->fs, inode, JOURNAL_DID_OPEN);
	return 0;
}

static int handle_count(struct op *op, fuse_req_t req, struct inode *inode,
			struct fuse_file_info *info)
{
	/* Topology before the lock: a quota above decides who moves the bytes. */
	brlock_token token = brlock_read_lock(&op->fs->topology);
	bool limited = inode->quota_dir && quota_limited(inode->quota_dir);

	brlock_read_unlock(&op->fs->topology, token);
	bool promised = object_promise(op, inode, info->flags, limited);
	int error = handle_count_locked(op, req, inode, info, limited, &promised);

	if (promised) {
		file_unpromise(inode->file);
		host_out_update_accounting(op->fs, inode);
	}
	return error;
}

int op_open_flags(struct op *op, fuse_req_t req, struct inode *inode, struct fuse_file_info *info)
{
	int error = inode_watch_require(op->fs, inode);

	if (error)
		return error;
	info_set_cache(op, info);
	/* Every read is to hear of it. */
	if (file_is_missing(inode->file))
		info->direct_io = 1;
	info->fh = (flags_write(info->flags) ? OP_HANDLE_WRITES : 0) |
		   (flags_read(info->flags) ? 0 : OP_HANDLE_NO_READS);
	return handle_count(op, req, inode, info);
}

void op_closed(struct op *op, fuse_req_t req, struct inode *inode, int flags)
{
	struct inode_call call;
	bool trim, last, drop = false;
	int backing = 0;

	inode_call_init(&call, op->fs, inode, op->worker->copier);
	call.overdraft = true;
	pthread_mutex_lock(&inode->lock);
	inode->opens--;
	inode->writers -= flags_write(flags);
	trim = flags_write(flags) && inode->writers == 0;
	last = inode->opens == 0;
	if (last) {
		backing = atomic_exchange(file_backing_id(inode->file), 0);
		drop = inode_may_drop(op->fs, inode);
	}
	/* First, for a number that is closed twice may be another file's by then; a daemon that is
	 * killed in between leaves it open until the mount ends. */
	record_open(op->fs, inode, JOURNAL_DID_CLOSE);
	/* Before another open can register the object anew. */
	if (backing && req)
		fuse_passthrough_close(req, backing);
	pthread_mutex_unlock(&inode->lock);
	if (backing)
		file_unpromise(inode->file);
	if (last)
		host_out_update_accounting(op->fs, inode);
	if (drop)
		inode_drop_data(op->fs, inode);
	else if (trim)
		file_trim(inode->file, &call.call);
}

static void op_open(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *info)
{
	struct op op;

	if (!op_begin(&op, req, ino, STAT_OPEN))
		return;
	int flags = info->flags;
	int error = op_open_flags(&op, req, op.inode, info);

	if (error) {
		op_done(&op, req, error);
		return;
	}
	op_end(&op, 0);
	if (fuse_reply_open(req, info))
		op_closed(&op, NULL, op.inode, flags);
}

static void op_release(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *info)
{
	struct op op;

	if (!op_begin(&op, req, ino, STAT_RELEASE))
		return;
	if (!(op.completed & JOURNAL_DID_CLOSE))
		op_closed(&op, req, op.inode, info->flags);
	op_done(&op, req, 0);
}

/* After the first ENOSYS the kernel asks no more, but goes on writing back at close the pages of
 * mappings, which FOPEN_NOFLUSH would end. */
static void op_flush(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *info)
{
	(void)ino, (void)info;
	op_unsupported(req, STAT_FLUSH);
}

static void op_save(fuse_req_t req, fuse_ino_t ino, enum stat_op kind)
{
	struct op op;

	/* A write that was answered is where it has to be, but for the disk. */
	if (op_begin(&op, req, ino, kind))
		op_done(&op, req, spool_save(op.fs, op.inode));
}

static void op_fsync(fuse_req_t req, fuse_ino_t ino, int datasync, struct fuse_file_info *info)
{
	(void)datasync, (void)info;
	op_save(req, ino, STAT_FSYNC);
}

static void op_fsyncdir(fuse_req_t req, fuse_ino_t ino, int datasync, struct fuse_file_info *info)
{
	(void)datasync, (void)info;
	op_save(req, ino, STAT_FSYNCDIR);
}

/* Open stays: handles are counted for unlink, for the end of writing and for passthrough. */
void ops_open(struct fuse_lowlevel_ops *ops)
{
	ops->open = op_open;
	ops->release = op_release;
	ops->flush = op_flush;
	ops->fsync = op_fsync;
	ops->fsyncdir = op_fsyncdir;
}
