/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* What is written into the journal when something changes: a function per change. Called under the
 * locks of the change, after it was made and before anybody can see it. All do nothing where there
 * is no journal. */
#ifndef FS_TREE_RECORD_H
#define FS_TREE_RECORD_H

#include "fs/core/fs.h"
#include "fs/file/file.h"
#include "fs/journal/journal.h"

struct dentry;

/* --- names and inodes */

/* entry is in its directory already; NULL: without a name. */
void record_create(struct fs *fs, struct inode *inode, const struct dentry *entry);
void record_link(struct fs *fs, const struct dentry *entry);
void record_unlink(struct fs *fs, const struct dentry *entry);
void record_quota_dir(struct fs *fs, const struct inode *inode);
/* Under no lock: the last reference went. */
void record_gone(struct fs *fs, const struct inode *inode);

/* The parts of a rename: names that lead elsewhere now or are gone, homes that changed, a file that
 * lost its name to another, and the memory of one that was moved. */
#define RECORD_PIECES 8
struct record_rename {
	struct journal_piece pieces[RECORD_PIECES];
	unsigned n;
	struct journal_name names[2];
	struct journal_quota_dir quota_dirs[2];
	struct journal_ino replaced;
	unsigned n_names, n_quota_dirs;
};
void record_rename_name(struct record_rename *rename, const struct dentry *entry);
void record_rename_gone(struct record_rename *rename, const struct inode *dir, const char *name,
			const struct inode *inode);
void record_rename_quota_dir(struct record_rename *rename, const struct inode *inode);
void record_rename_replaced(struct record_rename *rename, const struct inode *inode);
void record_rename_moved(struct record_rename *rename, const struct file_move *move);
void record_rename(struct fs *fs, const struct record_rename *rename);

/* --- what inodes have; inode->lock is held */

void record_owner(struct fs *fs, const struct inode *inode);
void record_values(struct fs *fs, const struct inode *inode);
void record_quota(struct fs *fs, const struct inode *inode);
void record_xattr(struct fs *fs, const struct inode *inode, const char *name, const void *value,
		  size_t size);
void record_xattr_gone(struct fs *fs, const struct inode *inode, const char *name);
/* Handles, leases, and what else keeps the memory of a file without names. did: bits of enum
 * journal_drc_add. */
void record_open(struct fs *fs, const struct inode *inode, unsigned did);

/* All that an inode is and has, in records of its own; the caller has a reference, and no lock. */
void record_checkpoint(struct fs *fs, struct inode *inode);

#endif
