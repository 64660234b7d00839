/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
#include "fs/ops/inode_io.h"

#include <errno.h>

#include "fs/core/calibrate.h"
#include "fs/share/share.h"
#include "fs/spool/spool.h"
#include "fs/tree/inode_hooks.h"
#include "fs/tree/inode_table.h"

static ssize_t io_once(struct inode *inode, const struct inode_io *io, struct inode_call *call)
{
	switch (io->kind) {
	case INODE_WRITE:
		return file_write(inode->file, &call->call, io->from, io->bytes, io->offset);
	case INODE_ALLOCATE:
		return file_allocate(inode->file, &call->call, io->mode, io->offset, io->bytes);
	case INODE_TRUNCATE:
		return file_truncate(inode->file, &call->call, io->offset);
	case INODE_COPY:
		return file_copy(io->source->file, io->source_offset, inode->file, &call->call,
				 io->offset, io->bytes);
	}
	return -EINVAL;
}

/* Whether to try again after an error that may pass. A full device may soon get memory back from
 * removed files, after their last close or forget. A lease refuses only changes of the layout, and
 * the daemon may drop the lease. */
static bool io_may_pass(struct op *op, struct inode *inode, const struct inode_io *io, ssize_t rc,
			int *attempts)
{
	if (rc == -ENOSPC)
		return atomic_load(&op->fs->inodes->n_unlinked_open) > 0 &&
		       op_wait_release(attempts);
	return rc == -EBUSY && (io->kind == INODE_ALLOCATE || io->kind == INODE_TRUNCATE) &&
	       share_drop_expired(op->fs, inode);
}

/* A truncation changes the bytes between the two sizes. */
static void io_mark_dirty(struct inode *inode, const struct inode_io *io, uint64_t old_size)
{
	uint64_t offset = io->offset, bytes = io->bytes;

	if (io->kind == INODE_TRUNCATE) {
		bytes = old_size < offset ? offset - old_size : old_size - offset;
		offset = old_size < offset ? old_size : offset;
	}
	spool_mark_dirty(inode, offset, bytes);
}

static void io_count(struct op *op, struct inode *inode, const struct inode_io *io, uint64_t n)
{
	struct stats_volume *volume = op_volume(op, inode);

	if (io->kind == INODE_WRITE)
		stats_add(&volume->write_bytes, n);
	else if (io->kind == INODE_COPY)
		stats_add(&volume->copy_bytes, n);
	else
		return;
	op_count_busy(op, inode, n);
}

ssize_t inode_io(struct op *op, struct inode *inode, const struct inode_io *io)
{
	int error = inode_require_bytes(op->fs, inode), attempts = 0;
	struct inode_call call;
	ssize_t n;

	if (error)
		return error;
	uint64_t old_size = io->kind == INODE_TRUNCATE ? file_size(inode->file) : 0;

	inode_call_init(&call, op->fs, inode, op->worker->copier);
	if (io->kind == INODE_WRITE)
		calibrate_start(op->fs, atomic_load(&inode->volume)->device);
	do {
		n = io_once(inode, io, &call);
	} while (n < 0 && io_may_pass(op, inode, io, n, &attempts));
	/* Also after an error: some bytes may have been written before the error. */
	io_mark_dirty(inode, io, old_size);
	if (n < 0)
		return n;
	op_drop_set_id(op, inode, io->told);
	inode_touch_write(inode);
	io_count(op, inode, io, (uint64_t)n);
	return n;
}
