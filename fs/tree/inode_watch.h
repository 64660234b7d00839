/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* The tree's calls to the module that saves inodes outside memory (fs/spool). The module registers
 * its functions in fs->inode_watch; the tree and the FUSE callbacks call the helpers below and know
 * nothing else of the module. */
#ifndef FS_TREE_INODE_WATCH_H
#define FS_TREE_INODE_WATCH_H

#include <errno.h>
#include <stdatomic.h>

#include "fs/core/fs.h"
#include "fs/tree/inode.h"

/* inode->residency: where a file's bytes are. Only the watch changes the value. */
enum inode_residency {
	INODE_RESIDENT, /* in memory */
	INODE_AWAY,	/* outside memory alone, until the watch recalls the file */
	INODE_DAMAGED	/* outside memory, and not as saved: an error for every reader */
};

/* Any thread may call the functions. Only `recall` can fail. */
struct inode_watch {
	/* Names, attributes, times or the owner changed, or the last name went. The caller holds
	 * no lock of the tree. */
	void (*changed)(struct fs *fs, struct inode *inode);
	/* The inode took the name of `replaced` in `dir`; `changed` for `replaced` follows. The
	 * saved copy of `replaced` must stay until the inode that has the name by then is saved: a
	 * program that replaces a file by a rename relies on finding the old or the new file after
	 * a crash. The caller holds no lock of the tree. */
	void (*replaced)(struct fs *fs, struct inode *inode, struct inode *replaced,
			 struct inode *dir, const char *name);
	/* A lease or a mapping may have written any byte of the file without the daemon's
	 * knowledge. Takes no lock. */
	void (*mark_unknown)(struct inode *inode);
	/* Brings the bytes of a file that is not resident into memory. 0; -EIO: the copy is
	 * damaged; another -errno (-ENOSPC, ...): a later call may succeed. No lock of the tree. */
	int (*recall)(struct fs *fs, struct inode *inode);
	/* Frees inode->spool. The caller has the last reference. */
	void (*free)(struct inode *inode);
};

static inline const struct inode_watch *inode_watch_of(struct fs *fs)
{
	return atomic_load_explicit(&fs->inode_watch, memory_order_acquire);
}

static inline void inode_watch_changed(struct fs *fs, struct inode *inode)
{
	const struct inode_watch *watch = inode_watch_of(fs);

	if (watch)
		watch->changed(fs, inode);
}

static inline void inode_watch_replaced(struct fs *fs, struct inode *inode, struct inode *replaced,
					struct inode *dir, const char *name)
{
	const struct inode_watch *watch = inode_watch_of(fs);

	if (watch)
		watch->replaced(fs, inode, replaced, dir, name);
}

static inline void inode_watch_mark_unknown(struct fs *fs, struct inode *inode)
{
	const struct inode_watch *watch = inode_watch_of(fs);

	if (watch)
		watch->mark_unknown(inode);
}

/* To be called before the bytes of a file are read, changed or laid out anew: 0 when the bytes are
 * in memory, else the error of `recall`. A daemon that goes on without a spool has no watch, and
 * files that are away cannot be read: -EIO. */
static inline int inode_watch_require(struct fs *fs, struct inode *inode)
{
	if (atomic_load_explicit(&inode->residency, memory_order_acquire) == INODE_RESIDENT)
		return 0;
	const struct inode_watch *watch = inode_watch_of(fs);

	return watch ? watch->recall(fs, inode) : -EIO;
}

static inline void inode_watch_free(struct fs *fs, struct inode *inode)
{
	const struct inode_watch *watch = inode_watch_of(fs);

	if (watch)
		watch->free(inode);
}

#endif
