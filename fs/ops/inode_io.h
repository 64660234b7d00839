/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* The common path of all requests that change the bytes of a file. inode_io makes the change and
 * also does everything that belongs to a change: inode_io marks blocks dirty for the spool, clears
 * set-id bits, moves times, counts bytes, and tries again on a full device while removed files
 * still return memory. */
#ifndef FS_OPS_INODE_IO_H
#define FS_OPS_INODE_IO_H

#include "fs/ops/ops.h"

enum inode_io_kind { INODE_WRITE, INODE_ALLOCATE, INODE_TRUNCATE, INODE_COPY };

struct inode_io {
	enum inode_io_kind kind;
	enum op_told told; /* whether the kernel wants set-id bits cleared */
	/* The range that may change. For INODE_TRUNCATE offset is the new size, and bytes is 0. */
	uint64_t offset, bytes;
	union {
		const void *from; /* INODE_WRITE: the bytes to write */
		int mode;	  /* INODE_ALLOCATE: the mode of fallocate(2) */
		struct {	  /* INODE_COPY */
			struct inode *source;
			uint64_t source_offset;
		};
	};
};

/* The number of bytes written or copied, 0 for the other kinds, or -errno. Called under no lock,
 * before the reply. */
ssize_t inode_io(struct op *op, struct inode *inode, const struct inode_io *io);

#endif
