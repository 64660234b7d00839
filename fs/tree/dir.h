/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* The names in one directory: a hash for finding them and an array in creation order for listing.
 * A name's cookie is the number of its creation in this directory: cookies grow and are never used
 * again. Listings go from the newest name to the oldest, so that a name that is created or renamed
 * after a listing began is never met by it: every listing ends, and an open directory needs no
 * memory of what it has listed. Callers hold dir->lock. */
#ifndef FS_TREE_DIR_H
#define FS_TREE_DIR_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "fs/core/limits.h"

struct inode;

/* A million of these exist: 46 bytes and the name. */
struct dentry {
	struct inode *inode;  /* holds the inode's reference for having names, with the others */
	struct inode *parent; /* not a reference: an entry lives in its directory */
	struct dentry *next_link; /* of the same inode; its lock */
	struct dentry *next;	  /* in its bucket */
	uint64_t cookie;
	uint32_t hash;
	uint8_t length;
	char name[];
};

struct dir_slot {
	uint64_t cookie;
	struct dentry *entry; /* NULL: removed */
};

/* Smaller numbers are positions in a listing that no name has. */
#define DIR_COOKIE_FIRST 3

struct dir {
	pthread_rwlock_t lock;
	struct dentry **buckets; /* NULL before the first name */
	uint32_t n_buckets;	 /* a power of two */
	struct dir_slot *order;	 /* sorted by cookie */
	uint32_t n_order, cap_order;
	_Atomic uint32_t n_names; /* stat reads it without the lock */
	uint32_t n_subdirs;
	/* Levels of directories below this one, at most: what goes is counted off only when no
	 * directory is left in it. See depth.h. */
	_Atomic uint32_t height;
	uint64_t next_cookie;
	struct inode *parent; /* holds a reference; NULL for the root; topology */
	bool removed;	      /* rmdir was here: nothing can be created in it any more */
	/* Everything below, itself excluded; moved by account.c. */
	_Atomic int64_t rbytes, rfiles;
	_Atomic uint64_t max_bytes, max_files; /* UINT64_MAX: no quota */
};

struct dir *dir_new(void);
void dir_free(struct dir *dir); /* empty */

struct dentry *dir_find(struct dir *dir, const char *name);
struct dentry *dentry_new(const char *name, struct inode *inode);
/* Takes the entry over; -ENOMEM leaves it with the caller. */
int dir_add(struct dir *dir, struct dentry *entry);
/* Takes it out; the caller frees it. */
void dir_remove(struct dir *dir, struct dentry *entry);
/* For restoring: names with their cookies, in any order; nothing but dir_find is called until
 * dir_restore_end. -EUCLEAN: two names have one cookie. */
int dir_restore_add(struct dir *dir, struct dentry *entry);
void dir_restore_remove(struct dir *dir, struct dentry *entry);
int dir_restore_end(struct dir *dir);

/* The newest entry whose cookie is smaller; NULL: the end. */
struct dentry *dir_before(struct dir *dir, uint64_t cookie);

#endif
