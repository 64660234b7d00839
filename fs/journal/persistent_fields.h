/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* What of an inode and of its file changes with every read and write. It lies in the inode and the
 * file themselves, or, where a daemon that comes after this one is to find it, in memory that
 * outlives this one (journal.h): the same stores either way, and nothing more. */
#ifndef FS_JOURNAL_PERSISTENT_FIELDS_H
#define FS_JOURNAL_PERSISTENT_FIELDS_H

#include <stdatomic.h>
#include <stdint.h>

struct inode_fields {
	_Atomic uint64_t lookups; /* the kernel's part of an inode's references */
	/* Nanoseconds since the epoch. Stores race harmlessly: the last one wins, as on any disk.
	 */
	_Atomic int64_t atime, mtime, ctime;
	int64_t object_mtime; /* of a host/ file's object, as mtime already has it; inode->lock */
};

struct file_fields {
	_Atomic uint64_t size;	   /* gpuN/ only: host/ asks the object */
	_Atomic uint64_t reserved; /* fallocate with KEEP_SIZE reached this far; 0 */
	/* Memory beyond the size may hold something else than zeroes just now: it is being made
	 * shorter. */
	_Atomic uint32_t unclean;
	_Atomic uint32_t missing; /* its memory, for good: file_missing.h */
};

#endif
