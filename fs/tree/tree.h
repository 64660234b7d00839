/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* Operations on names: the only place where metadata changes. Each change is a single named
 * operation, so that a journal can record the operation. Functions return 0 or -errno as the system
 * call of the same name does. */
#ifndef FS_TREE_TREE_H
#define FS_TREE_TREE_H

#include <limits.h>
#include <stdint.h>
#include <sys/stat.h>

#include "fs/tree/inode.h"

struct fs;
struct copier;

struct tree_new {
	mode_t mode; /* includes the type */
	uid_t uid;
	gid_t gid;
	const char *target; /* S_IFLNK */
	dev_t rdev;	    /* S_IFCHR, S_IFBLK: 32 bits, as in the kernel */
};

/* Makes the root and the top-level directories. fs->volumes is filled. */
int tree_init(struct fs *fs);
/* Frees every name and inode, even if the kernel still holds lookups. */
void tree_destroy(struct fs *fs);

/* Returned inodes carry a reference, which becomes the kernel's when inode_looked_up counts the
 * lookup. */
int tree_lookup(struct fs *fs, struct inode *parent, const char *name, struct inode **inode);
int tree_create(struct fs *fs, struct inode *parent, const char *name,
		const struct tree_new *params, struct inode **inode);
int tree_tmpfile(struct fs *fs, struct inode *parent, const struct tree_new *params,
		 struct inode **inode);
int tree_link(struct fs *fs, struct inode *inode, struct inode *parent, const char *name);
int tree_unlink(struct fs *fs, struct inode *parent, const char *name);
/* Removes a name of this inode: -ENOENT if the name is another's. */
int tree_unlink_inode(struct fs *fs, struct inode *parent, const char *name,
		      const struct inode *inode);
/* A name of the inode, with its directory, which has a reference; NULL: there is none. */
struct inode *tree_name(struct inode *inode, char name[NAME_MAX + 1]);
int tree_rmdir(struct fs *fs, struct inode *parent, const char *name);
struct tree_rename {
	struct inode *from, *to; /* directories; may be the same */
	const char *name, *new_name;
	unsigned flags; /* RENAME_NOREPLACE, RENAME_EXCHANGE, RENAME_WHITEOUT */
	uid_t uid;	/* owner of a whiteout */
	gid_t gid;
};
/* If a regular file changes volume, the copier moves its bytes, all or nothing. The file's former
 * memory goes to *old_memory, which the caller frees with file_move_free after the reply. */
int tree_rename(struct fs *fs, struct copier *copier, const struct tree_rename *rename,
		struct file_move **old_memory);

/* Bits of struct tree_attrs.mask. */
enum { TREE_MODE = 1, TREE_UID = 2, TREE_GID = 4, TREE_ATIME = 8, TREE_MTIME = 16 };
struct tree_attrs {
	unsigned mask;
	mode_t mode; /* permission bits */
	uid_t uid;
	gid_t gid;
	int64_t atime, mtime;
};
/* 0, or -ENOMEM without a change. */
int tree_set_attrs(struct fs *fs, struct inode *inode, const struct tree_attrs *attrs);
/* Clears mode bits. Returns whether any of the bits was set. */
bool tree_drop_mode(struct fs *fs, struct inode *inode, mode_t bits);

/* The inode's path below the mount ("/gpu0/a"), by any of its names: the length, or -ENAMETOOLONG.
 * A file without names gives "/gpu0/ (deleted)". For messages and .gpumem/mappings. */
int tree_path(struct fs *fs, struct inode *inode, char *path, size_t bytes);

/* For messages. tree_number_text: "inode N". tree_path_text: as tree_path, or "inode N" for a path
 * that does not fit. Both return the length; text has room for "inode N". tree_path_absolute: with
 * the mountpoint in front ("/mnt/gpu0/a", "/mnt/inode N"). */
int tree_number_text(uint64_t ino, char *text, size_t bytes);
int tree_path_text(struct fs *fs, struct inode *inode, char *text, size_t bytes);
#define TREE_ABSOLUTE_MAX (2 * PATH_MAX)
void tree_path_absolute(struct fs *fs, struct inode *inode, char path[TREE_ABSOLUTE_MAX]);

#endif
