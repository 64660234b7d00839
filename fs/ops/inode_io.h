/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* Every request that changes the bytes of a file goes through inode_io, which also does all that
 * such a change brings with it: blocks become dirty for the spool, set-id bits are cleared, times
 * move, counters rise, and a full device is tried again while memory is on its way back. */
#ifndef FS_OPS_INODE_IO_H
#define FS_OPS_INODE_IO_H

#include "fs/ops/ops.h"

enum inode_io_kind { INODE_WRITE, INODE_ALLOCATE, INODE_TRUNCATE, INODE_COPY };

struct inode_io {
	enum inode_io_kind kind;
	enum op_told told; /* what the kernel said about set-id bits */
	/* The range that may change; for INODE_TRUNCATE the new size is offset, and bytes is 0. */
	uint64_t offset, bytes;
	union {
		const void *from; /* INODE_WRITE: that many bytes */
		int mode;	  /* INODE_ALLOCATE: as fallocate(2)'s */
		struct {	  /* INODE_COPY */
			struct inode *source;
			uint64_t source_offset;
		};
	};
};

/* Bytes written or copied, 0 for the other kinds, or -errno; under no lock, before the reply. */
ssize_t inode_io(struct op *op, struct inode *inode, const struct inode_io *io);

#endif
