/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* Shared by tree.c and rename.c: entries and the inodes that they name. */
#ifndef FS_TREE_INTERNAL_H
#define FS_TREE_INTERNAL_H

struct dentry;
struct fs;
struct inode;

/* 0 where names may be added to and taken from the directory, else why not. */
int tree_writable(struct inode *parent, const char *name);

/* An entry into or out of a directory whose lock is held exclusively. */
int tree_attach(struct inode *parent, struct dentry *entry);
void tree_detach(struct inode *parent, struct dentry *entry);

/* Marks an empty directory as removed: 0 or -ENOTEMPTY. Its parent's lock is held. */
int tree_remove_check(struct inode *dir);

/* After a name was detached: counts it off, frees what nobody can reach. Under no lock. */
void tree_name_removed(struct fs *fs, struct inode *inode);

/* Where home has no name for the inode any more, another directory that has one pays. */
void tree_update_quota_dir(struct fs *fs, struct inode *inode);

#endif
