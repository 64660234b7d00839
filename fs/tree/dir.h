/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* The names in one directory: a hash for finding a name and an array in creation order for listing.
 * Each name gets the next number of the directory as its cookie: cookies grow and are never used
 * again. Listings go from the newest name to the oldest, so a listing never meets a name that was
 * created or renamed after the listing began: every listing ends, and an open directory needs no
 * memory of the names listed so far. Callers hold dir->lock. */
#ifndef FS_TREE_DIR_H
#define FS_TREE_DIR_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "fs/core/limits.h"

struct inode;

/* A million entries may exist: 46 bytes and the name. */
struct dentry {
	struct inode *inode;	  /* with a reference that all entries of an inode share */
	struct inode *parent;	  /* without a reference: an entry lives in its directory */
	struct dentry *next_link; /* next entry of the same inode; under the inode's lock */
	struct dentry *next;	  /* next entry in the bucket */
	uint64_t cookie;
	uint32_t hash;
	uint8_t length;
	char name[];
};

struct dir_slot {
	uint64_t cookie;
	struct dentry *entry; /* NULL: removed */
};

/* Listing positions below DIR_COOKIE_FIRST belong to no name. */
#define DIR_COOKIE_FIRST 3

struct dir {
	pthread_rwlock_t lock;
	struct dentry **buckets; /* NULL before the first name */
	uint32_t n_buckets;	 /* a power of two */
	struct dir_slot *order;	 /* sorted by cookie */
	uint32_t n_order, cap_order;
	_Atomic uint32_t n_names; /* stat reads it without the lock */
	uint32_t n_subdirs;
	/* Upper bound of the levels of directories below: raised by depth_added, and set to 0 only
	 * when the last subdirectory is removed. See depth.h. */
	_Atomic uint32_t height;
	uint64_t next_cookie;
	struct inode *parent; /* holds a reference; NULL for the root; under topology */
	bool removed;	      /* removed by rmdir: no entry can be created any more */
	/* Sums over all files below, without the directory itself; changed by quota.c. */
	_Atomic int64_t rbytes, rfiles;
	_Atomic uint64_t max_bytes, max_files; /* UINT64_MAX: no quota */
};

struct dir *dir_new(void);
void dir_free(struct dir *dir); /* the directory is empty */

struct dentry *dir_find(struct dir *dir, const char *name);
struct dentry *dentry_new(const char *name, struct inode *inode);
/* Takes ownership of the entry. On -ENOMEM the caller keeps the entry. */
int dir_add(struct dir *dir, struct dentry *entry);
/* Takes the entry out of the directory; the caller frees the entry. */
void dir_remove(struct dir *dir, struct dentry *entry);
/* For recovery: adds and removes names with given cookies, in any order. Until dir_restore_end only
 * dir_find may be called besides. -EUCLEAN: two names have the same cookie. */
int dir_restore_add(struct dir *dir, struct dentry *entry);
void dir_restore_remove(struct dir *dir, struct dentry *entry);
int dir_restore_end(struct dir *dir);

/* The newest entry with a smaller cookie; NULL: the end. */
struct dentry *dir_before(struct dir *dir, uint64_t cookie);

#endif
