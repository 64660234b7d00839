/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* Journal records of names and inodes: a function for each kind of change. The caller holds the
 * locks of the change, has made the change, and has not shown the change to other threads yet.
 * Without a journal the functions do nothing. Records of a file's memory are in
 * fs/file/core/record.h. */
#ifndef FS_TREE_RECORD_H
#define FS_TREE_RECORD_H

#include "fs/core/fs.h"
#include "fs/file/file.h"
#include "fs/journal/journal.h"

struct dentry;

/* --- names and inodes */

/* entry is in its directory already; NULL: an inode without a name. */
void record_create(struct fs *fs, struct inode *inode, const struct dentry *entry);
void record_link(struct fs *fs, const struct dentry *entry);
void record_unlink(struct fs *fs, const struct dentry *entry);
void record_quota_dir(struct fs *fs, const struct inode *inode);
/* Under no lock, after the last reference was dropped. */
void record_gone(struct fs *fs, const struct inode *inode);

/* The parts of a rename, for a single record: new and removed names, changed quota_dirs, a file
 * that lost its name to another file, a whiteout, and the memory of a file that changed volume. */
#define RECORD_PIECES 8
struct record_rename {
	struct journal_piece pieces[RECORD_PIECES];
	unsigned n;
	struct journal_name names[2];
	struct journal_quota_dir quota_dirs[2];
	struct journal_ino replaced;
	struct journal_inode whiteout;
	unsigned n_names, n_quota_dirs;
};
void record_rename_name(struct record_rename *rename, const struct dentry *entry);
/* A whiteout that is new, by its name. */
void record_rename_whiteout(struct record_rename *rename, const struct dentry *entry);
void record_rename_gone(struct record_rename *rename, const struct inode *dir, const char *name,
			const struct inode *inode);
void record_rename_quota_dir(struct record_rename *rename, const struct inode *inode);
void record_rename_replaced(struct record_rename *rename, const struct inode *inode);
void record_rename_moved(struct record_rename *rename, const struct file_move *move);
void record_rename(struct fs *fs, const struct record_rename *rename);

/* --- attributes and counters of inodes; inode->lock is held */

void record_owner(struct fs *fs, const struct inode *inode);
void record_values(struct fs *fs, const struct inode *inode);
void record_quota(struct fs *fs, const struct inode *inode);
void record_xattr(struct fs *fs, const struct inode *inode, const char *name, const void *value,
		  size_t size);
void record_xattr_gone(struct fs *fs, const struct inode *inode, const char *name);
/* Handles, leases and keep_data: the state that keeps the memory of a file without names.
 * completed: bits of enum journal_completed. */
void record_open(struct fs *fs, const struct inode *inode, unsigned completed);

/* Records the whole state of an inode, for a checkpoint. The caller holds a reference and no
 * lock. */
void record_checkpoint(struct fs *fs, struct inode *inode);

#endif
