/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
#include <errno.h>
#include <fcntl.h>

#include "common/cleanup.h"
#include "fs/ahead/ahead.h"
#include "fs/fuse/capabilities.h"
#include "fs/fuse/session.h"
#include "fs/fuse/uring_buffer.h"
#include "fs/ops/inode_io.h"
#include "fs/tree/inode_unseen.h"

static void op_range(struct op *op, off_t offset, size_t bytes)
{
	op->offset = (uint64_t)offset;
	op->bytes = bytes;
}

/* Gets the bytes of a read into to; or sets *at to bytes that are there already, and *block to the
 * block that has them. The number of bytes, or -errno. */
static ssize_t read_bytes(struct op *op, char *to, const char **at, struct ahead_block **block)
{
	struct file *file = op->inode->file;
	struct inode_call call;

	inode_call_init(&call, op->fs, op->inode, op->worker->copier);
	*at = to;
	*block = NULL;
	/* The data of a reply over a ring must be in the ring's buffer. */
	if (to == op->worker->reply)
		*block = file_read_ahead(file, &call.call, op->bytes, op->offset, at);
	return *block ? (ssize_t)op->bytes : file_read(file, &call.call, to, op->bytes, op->offset);
}

/* The kernel reads the range of the request into pages, which a program may change from then on. */
static void pages_note(const struct op *op)
{
	struct session *session = session_of(op->fs);

	if (inode_pages_add(op->inode, op->offset, op->bytes) && inode_has_unseen_stores(op->inode))
		session_changed(session, op->inode->ino);
	session_page_read(session, op->inode, fuse_req_ctx(op->req)->pid, op->offset, op->bytes);
}

static void op_read(fuse_req_t req, fuse_ino_t ino, size_t bytes, off_t offset,
		    struct fuse_file_info *info)
{
	struct ahead_block *block;
	const char *at;
	struct op op;

	if (!op_begin(&op, req, ino, STAT_READ))
		return;
	char *to = uring_buffer_reply(op.worker, req, &bytes);

	op_range(&op, offset, bytes);
	/* Only reads by a program have an owner; a read without one fills the page cache. */
	if (!info->lock_owner)
		pages_note(&op);
	ssize_t n = read_bytes(&op, to, &at, &block);

	if (n < 0) {
		op_done(&op, req, (int)n);
		return;
	}
	if (!op.fs->options.noatime && !(info->flags & O_NOATIME))
		inode_touch_read(op.inode);
	stats_add(&op_volume(&op, op.inode)->read_bytes, (uint64_t)n);
	if (block)
		stats_add(&op_volume(&op, op.inode)->ahead_bytes, (uint64_t)n);
	op_count_busy(&op, op.inode, (uint64_t)n);
	op_end(&op, n);
	fuse_reply_buf(req, at, (size_t)n);
	ahead_put(block);
}

static void op_write(fuse_req_t req, fuse_ino_t ino, const char *from, size_t bytes, off_t offset,
		     struct fuse_file_info *info)
{
	struct op op;

	if (!op_begin(&op, req, ino, STAT_WRITE))
		return;
	uring_buffer_pin(op.worker, req);
	op_range(&op, offset, bytes);
	ssize_t n = inode_io(&op, op.inode,
			     &(struct inode_io){.kind = INODE_WRITE,
						.offset = (uint64_t)offset,
						.bytes = bytes,
						.from = from,
						.told = op_told(&op, capabilities_kills(info))});

	if (n < 0) {
		op_done(&op, req, (int)n);
		return;
	}
	op_end(&op, n);
	fuse_reply_write(req, (size_t)n);
}

static void op_fallocate(fuse_req_t req, fuse_ino_t ino, int mode, off_t offset, off_t bytes,
			 struct fuse_file_info *info)
{
	struct op op;

	(void)info;
	if (!op_begin(&op, req, ino, STAT_FALLOCATE))
		return;
	op_range(&op, offset, (size_t)bytes);
	if (op.bytes > OP_SMALL_BYTES && op_defer(&op))
		return;
	op_done(&op, req,
		(int)inode_io(&op, op.inode,
			      &(struct inode_io){.kind = INODE_ALLOCATE,
						 .offset = (uint64_t)offset,
						 .bytes = (uint64_t)bytes,
						 .mode = mode}));
}

static struct inode_pages dirty_pages(struct inode *inode)
{
	scoped_lock(&inode->lock);
	return inode_dirty_pages(inode);
}

static int64_t hole_find(struct inode *inode, const struct inode_pages *pages, uint64_t offset)
{
	int64_t found = file_seek(inode->file, offset, SEEK_HOLE);
	uint64_t size = file_size(inode->file);

	if (found < 0 || (uint64_t)found < pages->from || (uint64_t)found >= pages->to)
		return found;
	return pages->to < size ? file_seek(inode->file, pages->to, SEEK_HOLE) : (int64_t)size;
}

static int64_t data_find(struct inode *inode, const struct inode_pages *pages, uint64_t offset)
{
	int64_t found = file_seek(inode->file, offset, SEEK_DATA);
	uint64_t start = offset < pages->from ? pages->from : offset;

	if (start >= pages->to || start >= file_size(inode->file) ||
	    (found < 0 && found != -ENXIO) || (found >= 0 && (uint64_t)found < start))
		return found;
	return (int64_t)start;
}

/* Dirty pages of the kernel count as data, which a copy would lose in a hole. */
static int64_t inode_seek(struct inode *inode, uint64_t offset, int whence)
{
	struct inode_pages pages = dirty_pages(inode);

	if (pages.from >= pages.to)
		return file_seek(inode->file, offset, whence);
	return whence == SEEK_HOLE ? hole_find(inode, &pages, offset)
				   : data_find(inode, &pages, offset);
}

static void op_lseek(fuse_req_t req, fuse_ino_t ino, off_t offset, int whence,
		     struct fuse_file_info *info)
{
	struct op op;

	(void)info;
	if (!op_begin(&op, req, ino, STAT_LSEEK))
		return;
	op_range(&op, offset, 0);
	int64_t found = inode_seek(op.inode, (uint64_t)offset, whence);

	if (found < 0) {
		op_done(&op, req, (int)found);
		return;
	}
	op_end(&op, found);
	fuse_reply_lseek(req, found);
}

ssize_t op_copy_bytes(struct op *op, uint64_t from, uint64_t to, uint64_t bytes)
{
	ssize_t n = inode_io(op, op->to,
			     &(struct inode_io){.kind = INODE_COPY,
						.offset = to,
						.bytes = bytes,
						.source = op->inode,
						.source_offset = from});

	if (n < 0)
		return n;
	if (!op->fs->options.noatime)
		inode_touch_read(op->inode);
	op_count_busy(op, op->inode, (uint64_t)n);
	return n;
}

/* The bytes that a copy may move: programs ask for more than the source has. */
static uint64_t copy_bytes_possible(struct inode *from, uint64_t offset, uint64_t bytes)
{
	uint64_t size = file_size(from->file), remaining = offset < size ? size - offset : 0;

	return bytes < remaining ? bytes : remaining;
}

static void op_copy(fuse_req_t req, fuse_ino_t from_ino, off_t from_offset,
		    struct fuse_file_info *from_info, fuse_ino_t to_ino, off_t to_offset,
		    struct fuse_file_info *to_info, size_t bytes, int flags)
{
	struct op op;

	(void)from_info, (void)to_info;
	if (!op_begin(&op, req, from_ino, STAT_COPY) || !op_begin_to(&op, req, to_ino))
		return;
	op_range(&op, from_offset, bytes);
	if (flags) {
		op_done(&op, req, -EINVAL);
		return;
	}
	if (copy_bytes_possible(op.inode, op.offset, bytes) > OP_SMALL_BYTES && op_defer(&op))
		return;
	ssize_t n = op_copy_bytes(&op, (uint64_t)from_offset, (uint64_t)to_offset, bytes);

	if (n < 0) {
		op_done(&op, req, (int)n);
		return;
	}
	op_end(&op, n);
	fuse_reply_write(req, (size_t)n);
}

/* After ENOSYS the kernel treats all files as always ready. io_uring polls a file up to 255 times
 * for each buffered write, and no reply is fast enough for so many polls. Therefore the accesslog
 * has no poll either, although a read of the accesslog may have to wait. */
static void op_poll(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *info,
		    struct fuse_pollhandle *handle)
{
	(void)ino, (void)info;
	if (handle)
		fuse_pollhandle_destroy(handle);
	op_unsupported(req, STAT_POLL);
}

void ops_io(struct fuse_lowlevel_ops *ops)
{
	ops->read = op_read;
	ops->write = op_write;
	ops->fallocate = op_fallocate;
	ops->lseek = op_lseek;
	ops->poll = op_poll;
	ops->copy_file_range = op_copy;
}
