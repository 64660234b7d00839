/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* The functions that tree.c, rename.c and root.c share: directory entries and the inodes that the
 * entries name. */
#ifndef FS_TREE_INTERNAL_H
#define FS_TREE_INTERNAL_H

struct dentry;
struct fs;
struct inode;
struct tree_new;

/* 0 if names may be added to and removed from the directory, else the error. */
int tree_writable(struct inode *parent, const char *name);

/* Makes an inode without a name for the directory, which pays for the inode. Topology is held. */
int tree_child_new(struct fs *fs, struct inode *parent, const struct tree_new *params,
		   struct inode **inode);

/* Puts an entry into, or takes an entry out of, a directory whose lock is held exclusively. */
int tree_attach(struct inode *parent, struct dentry *entry);
void tree_detach(struct inode *parent, struct dentry *entry);
/* Counts off a subdirectory of a directory whose lock is held exclusively. */
void tree_subdir_removed(struct inode *parent);

/* Marks an empty directory as removed: 0 or -ENOTEMPTY. The lock of the directory's parent is
 * held. */
int tree_remove_check(struct inode *dir);

/* Call after a name was detached: lowers the link count, and frees the inode or its data after the
 * last reference. Under no lock. */
void tree_name_removed(struct fs *fs, struct inode *inode);

/* If quota_dir has no name for the inode any more, charges another directory that has a name. */
void tree_update_quota_dir(struct fs *fs, struct inode *inode);

#endif
