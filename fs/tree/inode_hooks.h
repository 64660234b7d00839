/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* Calls of the tree to parts above the tree, which a part names in fs_part.inode. */
#ifndef FS_TREE_INODE_HOOKS_H
#define FS_TREE_INODE_HOOKS_H

#include <errno.h>
#include <stdatomic.h>
#include <stdio.h>

#include "fs/core/fs.h"
#include "fs/tree/inode.h"

/* inode->residency: where a file's bytes are. Only the part with the hook recall changes the
 * value. */
enum inode_residency {
	INODE_RESIDENT, /* in memory */
	INODE_AWAY,	/* outside memory alone, until the file is recalled */
	INODE_DAMAGED	/* outside memory, and not as saved: an error for every reader */
};

/* Any thread may call the functions, also before the part has started and after its stop. Each may
 * be NULL. Only recall can fail. */
struct inode_hooks {
	/* Names, attributes, times or the owner changed, or the last name went. The caller holds
	 * no lock of the tree. */
	void (*changed)(struct fs *fs, struct inode *inode);
	/* The inode took the name of `replaced` in `dir`; `changed` for `replaced` follows. The
	 * saved copy of `replaced` must stay until the inode that has the name by then is saved: a
	 * program that replaces a file by a rename relies on finding the old or the new file after
	 * a crash. The caller holds no lock of the tree. */
	void (*replaced)(struct fs *fs, struct inode *inode, struct inode *replaced,
			 struct inode *dir, const char *name);
	/* A process has opened the file. Takes no lock. */
	void (*opened)(struct inode *inode);
	/* Writes the value of an attribute that the tree does not know: 0; -ENODATA: the part does
	 * not know it either, or the inode has no value; -ENOMEM. */
	int (*attribute)(struct inode *inode, enum attr_id id, FILE *out);
	/* A lease or a mapping may have written any byte of the file without the daemon's
	 * knowledge. Takes no lock. */
	void (*unseen_stores)(struct inode *inode);
	/* The process has ended that allocated the file's memory, or has closed the file
	 * (file_adopt). The caller has a reference. */
	void (*producer_ended)(struct fs *fs, struct inode *inode);
	/* At most one part has this hook. Brings the bytes of a file that is not resident into
	 * memory. 0; -EIO: the copy is damaged; another -errno (-ENOSPC, ...): a later call may
	 * succeed. No lock of the tree. */
	int (*recall)(struct fs *fs, struct inode *inode);
	/* Frees the part's state of the inode. The caller has the last reference. */
	void (*freed)(struct inode *inode);
};

/* For each part that has the hook. */
#define INODE_HOOKS_EACH(fs, hooks, hook)                                                          \
	for (const struct inode_hooks *const *hooks = (fs)->inode_hooks; *hooks; hooks++)          \
		if ((*hooks)->hook)

static inline void inode_notify_changed(struct fs *fs, struct inode *inode)
{
	INODE_HOOKS_EACH(fs, hooks, changed)
	(*hooks)->changed(fs, inode);
}

static inline void inode_notify_replaced(struct fs *fs, struct inode *inode, struct inode *replaced,
					 struct inode *dir, const char *name)
{
	INODE_HOOKS_EACH(fs, hooks, replaced)
	(*hooks)->replaced(fs, inode, replaced, dir, name);
}

static inline void inode_notify_opened(struct fs *fs, struct inode *inode)
{
	INODE_HOOKS_EACH(fs, hooks, opened)
	(*hooks)->opened(inode);
}

static inline void inode_notify_producer_ended(struct fs *fs, struct inode *inode)
{
	INODE_HOOKS_EACH(fs, hooks, producer_ended)
	(*hooks)->producer_ended(fs, inode);
}

/* The value of an attribute of a part, as the hook `attribute`. */
static inline int inode_part_attribute(struct fs *fs, struct inode *inode, enum attr_id id,
				       FILE *out)
{
	int error = -ENODATA;

	INODE_HOOKS_EACH(fs, hooks, attribute)
	if (error == -ENODATA)
		error = (*hooks)->attribute(inode, id, out);
	return error;
}

static inline void inode_notify_unseen_stores(struct fs *fs, struct inode *inode)
{
	INODE_HOOKS_EACH(fs, hooks, unseen_stores)
	(*hooks)->unseen_stores(inode);
}

/* To be called before the bytes of a file are read, changed or laid out anew: 0 when the bytes are
 * in memory, else the error of `recall`; -EIO if no part recalls files. */
static inline int inode_require_bytes(struct fs *fs, struct inode *inode)
{
	if (atomic_load_explicit(&inode->residency, memory_order_acquire) == INODE_RESIDENT)
		return 0;
	INODE_HOOKS_EACH(fs, hooks, recall)
	return (*hooks)->recall(fs, inode);
	return -EIO;
}

static inline void inode_notify_freed(struct fs *fs, struct inode *inode)
{
	INODE_HOOKS_EACH(fs, hooks, freed)
	(*hooks)->freed(inode);
}

#endif
