/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* Names: the only place where metadata changes, each change one named operation, so that a journal
 * can record it. 0 or -errno as the system call of that name has it. */
#ifndef FS_TREE_TREE_H
#define FS_TREE_TREE_H

#include <stdint.h>
#include <sys/stat.h>

#include "fs/tree/inode.h"

struct fs;
struct copier;

struct tree_new {
	mode_t mode; /* with the type */
	uid_t uid;
	gid_t gid;
	const char *target; /* S_IFLNK */
	dev_t rdev;	    /* S_IFCHR, S_IFBLK: of 32 bits, as the kernel has it */
};

/* The root and its top directories; fs->volumes is filled. */
int tree_init(struct fs *fs);
/* Drops every name and inode, whatever the kernel still holds. */
void tree_destroy(struct fs *fs);

/* Outputs carry a reference: the kernel's, once inode_looked_up has counted it. */
int tree_lookup(struct fs *fs, struct inode *parent, const char *name, struct inode **inode);
int tree_create(struct fs *fs, struct inode *parent, const char *name, const struct tree_new *what,
		struct inode **inode);
int tree_tmpfile(struct fs *fs, struct inode *parent, const struct tree_new *what,
		 struct inode **inode);
int tree_link(struct fs *fs, struct inode *inode, struct inode *parent, const char *name);
int tree_unlink(struct fs *fs, struct inode *parent, const char *name);
int tree_rmdir(struct fs *fs, struct inode *parent, const char *name);
/* flags: 0, RENAME_NOREPLACE, RENAME_EXCHANGE. A regular file that changes volume has its bytes
 * moved by the copier, all or nothing; what it leaves behind goes to *old_memory, for the caller to
 * free with file_move_free once the answer is out. */
int tree_rename(struct fs *fs, struct copier *copier, struct inode *from, const char *name,
		struct inode *to, const char *new_name, unsigned flags,
		struct file_move **old_memory);

/* Bits of struct tree_attrs.which. */
enum { TREE_MODE = 1, TREE_UID = 2, TREE_GID = 4, TREE_ATIME = 8, TREE_MTIME = 16 };
struct tree_attrs {
	unsigned which;
	mode_t mode; /* permission bits */
	uid_t uid;
	gid_t gid;
	int64_t atime, mtime;
};
void tree_set_attrs(struct fs *fs, struct inode *inode, const struct tree_attrs *attrs);
/* Takes mode bits away: whether the inode had one of them. */
bool tree_drop_mode(struct fs *fs, struct inode *inode, mode_t bits);

/* The inode's path below the mount, by one of its names ("/gpu0/a"): length, or -ENAMETOOLONG;
 * a file without names gives "/gpu0/ (deleted)". For messages and .gpumem/mappings. */
int tree_path(struct fs *fs, struct inode *inode, char *path, size_t bytes);

#endif
