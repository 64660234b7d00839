/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
#include <errno.h>
#include <fcntl.h>

#include "common/cleanup.h"
#include "common/log.h"
#include "fs/file/core/missing.h"
#include "fs/file/export.h"
#include "fs/fuse/session.h"
#include "fs/holders/host_out.h"
#include "fs/ops/ops.h"
#include "fs/spool/spool.h"
#include "fs/tree/inode_hooks.h"
#include "fs/tree/inode_unseen.h"
#include "fs/tree/quota.h"
#include "fs/tree/record.h"
#include "fs/tree/tree.h"

static bool flags_write(int flags)
{
	return (flags & O_ACCMODE) != O_RDONLY;
}

/* Smaller files take less than 3 ms. */
#define AT_ONCE_MIN (8UL << 20)

/* A handle of Linux's access mode 3 is for ioctls only: the kernel refuses reads and writes. */
static bool flags_read(int flags)
{
	return (flags & O_ACCMODE) == O_RDONLY || (flags & O_ACCMODE) == O_RDWR;
}

/* The kernel sends a large read(2) as requests of 1 MiB: one after the other through a handle for
 * direct I/O (FOPEN_DIRECT_IO), and through another handle that was opened with O_DIRECT all at
 * once, which several workers answer: 5.9 GB/s instead of 3.2 (two processors). Such a handle reads
 * through the page cache once fcntl(2) has taken O_DIRECT away. Writers stay with direct I/O, as
 * else the kernel lets one write at a time into a file. A file of host/ may get a backing id, which
 * the kernel refuses beside such handles. */
static bool reads_at_once(const struct inode *inode, int flags)
{
	return flags & O_DIRECT && (flags & O_ACCMODE) == O_RDONLY &&
	       !file_volume(inode->file)->system && file_size(inode->file) >= AT_ONCE_MIN;
}

/* Sets how the kernel uses the page cache, by the option cache=; the caller holds inode->lock. A
 * GPU may change a file at any time, so by default the kernel caches nothing. With cache=auto a
 * handle that is opened during a lease has no cache, and pages stay from handle to handle only if
 * there never was a lease: a process keeps its mapping when its lease is dropped. Every read must
 * report missing data. */
static void info_set_cache(struct op *op, const struct inode *inode, struct fuse_file_info *info)
{
	enum cache_mode cache = op->fs->options.cache;

	info->direct_io = cache == CACHE_NONE || info->flags & O_DIRECT ||
			  (cache == CACHE_AUTO && inode->uses.leases);
	if (reads_at_once(inode, info->flags))
		info->direct_io = 0;
	if (file_is_missing(inode->file))
		info->direct_io = 1;
	info->keep_cache = cache == CACHE_ALWAYS || (cache == CACHE_AUTO && !info->direct_io &&
						     !file_was_leased(inode->file));
	info->parallel_direct_writes = 1;
}

/* Gives the file's object to the kernel; the caller holds inode->lock. Either all open handles of a
 * file share one backing id, because after a second registration of the same object every later
 * open fails; or no handle has a backing id, because an open with a backing id fails (EIO) while
 * another handle has pages in the kernel's cache. */
static void info_set_passthrough(struct op *op, fuse_req_t req, struct inode *inode,
				 struct fuse_file_info *info, bool limited, bool *promised)
{
	_Atomic int32_t *backing = file_backing_id(inode->file);
	struct inode_call call;

	if (!*backing && (!*promised || inode->uses.opens || inode->moving))
		return;
	if (!*backing) {
		inode_call_init(&call, op->fs, inode, op->worker->copier);
		call.call.limits = limited ? FILE_LIMITS_QUOTA : FILE_LIMITS_NONE;
		inode_update_mtime(inode);
		int fd = file_object(inode->file, &call.call);
		int id = fd < 0 ? 0 : fuse_passthrough_open(req, fd);

		/* The creation of an object changes its mtime, but is no write: set mtime again. */
		inode_set_mtime(inode, inode->fields->mtime);
		if (id <= 0)
			return;
		*backing = id;
		*promised = false; /* the backing id has the charge from here on */
		inode->uses.keep_data = true;
	}
	info->backing_id = *backing;
	info->keep_cache = 0; /* the kernel refuses keep_cache with passthrough */
}

/* Whether the kernel may get the object. If so, the file is charged by its size, as any process may
 * map the object. Called before the lock is taken, because file_promise waits. Below a quota no
 * such charge is needed for a handle that writes but cannot map, nor for readers: the owner would
 * pay for holes that readers only look at. And the kernel keeps an object until the last handle is
 * closed, so it does not get an object that a lease would have to replace. */
static bool object_promise(struct op *op, struct inode *inode, int flags, bool limited)
{
	struct inode_call call;

	if (!op->fs->can.passthrough.on || !file_volume(inode->file)->system ||
	    *file_backing_id(inode->file))
		return false;
	/* An empty file needs no object until a process can write to the file. */
	if (!flags_write(flags) && file_size(inode->file) == 0)
		return false;
	if (limited && (flags & O_ACCMODE) != O_RDWR &&
	    (flags_write(flags) || file_is_sparse(inode->file)))
		return false;
	if (limited && flags_write(flags) && file_is_unbounded(inode->file))
		return false;
	inode_call_init(&call, op->fs, inode, op->worker->copier);
	return file_promise(inode->file, &call.call) == 0;
}

/* Whether reads and writes by a handle come to the daemon, while the kernel maps the object: if
 * writes must clear set-id bits, or the handle was opened with O_APPEND. The kernel opens the
 * object with the handle's flags. F_SETFL and RWF_NOAPPEND, which take O_APPEND away, change the
 * handle and not the object; RWF_APPEND, and O_APPEND that is set later, reach the object with each
 * write. */
static bool handle_needs_daemon(const struct inode *inode, int flags)
{
	return flags_write(flags) && (flags & O_APPEND || inode->mode & (S_ISUID | S_ISGID));
}

/* The caller holds inode->lock. */
static void note_direct_io(const struct op *op, struct inode *inode)
{
	if (inode->uses.direct_io)
		return;
	inode->uses.direct_io = true;
	/* The kernel asks for st_blksize again. */
	session_changed(session_of(op->fs), inode->ino);
}

static int handle_count_locked(struct op *op, fuse_req_t req, struct inode *inode,
			       struct fuse_file_info *info, bool limited, bool *promised)
{
	scoped_lock(&inode->lock);
	if (inode->uses.data_freed)
		return -ESTALE;
	info_set_cache(op, inode, info);
	if (info->flags & O_DIRECT)
		note_direct_io(op, inode);
	if (op->fs->can.passthrough.on && file_volume(inode->file)->system) {
		info_set_passthrough(op, req, inode, info, limited, promised);
		bool daemon_io = limited || file_is_bounded(inode->file) ||
				 handle_needs_daemon(inode, info->flags);

		info->direct_io = info->backing_id ? daemon_io : info->direct_io;
	}
	if (op->completed & JOURNAL_COMPLETED_OPEN)
		return 0;
	/* The kernel drops all pages of the file before the new handle can be used. */
	if (!inode->uses.opens && !info->keep_cache)
		inode_pages_clear(inode);
	inode->uses.opens++;
	/* Frees nothing, because the file is open. A file of O_TMPFILE has no name from the start,
	 * and inode_may_drop counts such a file as unlinked and open. */
	inode_may_drop(op->fs, inode);
	inode->uses.writers += flags_write(info->flags);
	record_open(op->fs, inode, JOURNAL_COMPLETED_OPEN);
	return 0;
}

static int handle_count(struct op *op, fuse_req_t req, struct inode *inode,
			struct fuse_file_info *info)
{
	struct inode_call call;

	/* Before the inode's lock, because topology comes first: a quota above the inode decides
	 * whether reads and writes bypass the daemon. */
	inode_call_init(&call, op->fs, inode, op->worker->copier);
	bool limited = quota_limits(&call) == FILE_LIMITS_QUOTA;
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
	int error = inode_require_bytes(op->fs, inode);

	if (error)
		return error;
	info->fh = (flags_write(info->flags) ? OP_HANDLE_WRITES : 0) |
		   (flags_read(info->flags) ? 0 : OP_HANDLE_NO_READS);
	error = handle_count(op, req, inode, info);
	if (!error)
		inode_notify_opened(op->fs, inode);
	return error;
}

void op_closed(struct op *op, fuse_req_t req, struct inode *inode, int flags)
{
	struct inode_call call;
	bool trim, last, drop = false;
	int backing = 0;

	inode_call_init(&call, op->fs, inode, op->worker->copier);
	call.overdraft = true;
	pthread_mutex_lock(&inode->lock);
	inode->uses.opens--;
	inode->uses.writers -= flags_write(flags);
	trim = flags_write(flags) && inode->uses.writers == 0;
	last = inode->uses.opens == 0;
	if (last) {
		backing = atomic_exchange(file_backing_id(inode->file), 0);
		drop = inode_may_drop(op->fs, inode);
	}
	/* Record the close first: if the next daemon closed the backing id once more, the id might
	 * belong to another file by then. If this daemon is killed here, the id stays open until
	 * the mount ends. */
	record_open(op->fs, inode, JOURNAL_COMPLETED_CLOSE);
	/* Close the backing id before another open can register the object again. */
	if (backing && req)
		fuse_passthrough_close(req, backing);
	pthread_mutex_unlock(&inode->lock);
	if (backing)
		file_unpromise(inode->file);
	if (last) {
		host_out_update_accounting(op->fs, inode);
		session_drop_pages(session_of(op->fs), inode);
	}
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
	if (atomic_load(&op.inode->residency) == INODE_AWAY && op_defer(&op))
		return;
	int flags = info->flags;
	int error = op_open_flags(&op, req, op.inode, info);

	if (error) {
		op_done(&op, req, error);
		return;
	}
	if (flags_write(flags) && inode_has_unseen_stores(op.inode))
		session_changed(session_of(op.fs), ino);
	op_end(&op, 0);
	if (fuse_reply_open(req, info))
		op_closed(&op, NULL, op.inode, flags);
}

static void op_release(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *info)
{
	struct op op;

	if (!op_begin(&op, req, ino, STAT_RELEASE))
		return;
	if (!(op.completed & JOURNAL_COMPLETED_CLOSE))
		op_closed(&op, req, op.inode, info->flags);
	op_done(&op, req, 0);
}

/* After the first ENOSYS the kernel sends no more flushes, but still writes back the pages of
 * mappings at close; FOPEN_NOFLUSH would end the writing back. */
static void op_flush(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *info)
{
	(void)ino, (void)info;
	op_unsupported(req, STAT_FLUSH);
}

/* A write that was answered is in its place; only the copy on disk may be missing. Without a spool
 * nothing can be missing: after ENOSYS the kernel writes back the pages of mappings at fsync, as
 * before, and asks no more. */
static void op_save(fuse_req_t req, fuse_ino_t ino, enum stat_op kind)
{
	const struct fs *fs = fuse_req_userdata(req);
	struct op op;

	if (!fs->options.spool) {
		op_unsupported(req, kind);
		return;
	}
	if (!op_begin(&op, req, ino, kind) || op_defer(&op))
		return;
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

/* open has an operation: the daemon counts open handles for unlink, for the end of writing and for
 * passthrough. */
void ops_open(struct fuse_lowlevel_ops *ops)
{
	ops->open = op_open;
	ops->release = op_release;
	ops->flush = op_flush;
	ops->fsync = op_fsync;
	ops->fsyncdir = op_fsyncdir;
}
