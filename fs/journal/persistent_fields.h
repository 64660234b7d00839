/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* The fields of an inode and its file that change with every read and write. The fields are part of
 * inode and file; in a daemon with a journal they are in the journal's memory instead, which
 * outlives the daemon. The stores are the same, and no record is logged. */
#ifndef FS_JOURNAL_PERSISTENT_FIELDS_H
#define FS_JOURNAL_PERSISTENT_FIELDS_H

#include <stdatomic.h>
#include <stdint.h>

struct inode_fields {
	_Atomic uint64_t lookups; /* references that the kernel holds on the inode */
	/* Nanoseconds since the epoch. Concurrent stores are harmless: the last store wins, as on
	 * any file system. */
	_Atomic int64_t atime, mtime, ctime;
	int64_t object_mtime; /* the object's mtime that mtime includes already (host/ only);
				 inode->lock */
};

struct file_fields {
	_Atomic uint64_t size;	   /* gpuN/ only: the object has the size of a host/ file */
	_Atomic uint64_t reserved; /* fallocate with KEEP_SIZE reached this far; 0: never */
	/* Memory beyond the size may be other than zero, while the file is being shortened. */
	_Atomic uint16_t unclean;
	/* The kernel has no pages of the file that a program may have changed. 0 also in a slot
	 * that an older daemon filled, for which unclean had 32 bits. */
	_Atomic uint16_t unpaged;
	_Atomic uint32_t missing; /* 0, or enum missing_cause: fs/file/core/missing.h */
};

/* Why a file has no memory for good: the journal's records of it were inconsistent, or the program
 * that had allocated it has ended. */
enum missing_cause { MISSING_LOST = 1, MISSING_ENDED = 2 };

#endif
