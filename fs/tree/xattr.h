/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* Extended attributes that are stored without interpretation: all names outside user.gpumem.*.
 * Callers hold inode->lock. */
#ifndef FS_TREE_XATTR_H
#define FS_TREE_XATTR_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

#include "fs/core/limits.h"

struct fs;
struct inode;
struct xattr;

/* The prefix of the daemon's own attributes, which no user can see. */
#define XATTR_OURS "gpumem."
bool xattr_is_ours(const char *name);

/* Set and remove an attribute of an inode, and charge the inode's owner for the attribute; the
 * caller records the change. -EDQUOT, -ENOSPC: as owner_take_metadata. */
enum owner_charge;
int xattr_store(struct fs *fs, struct inode *inode, const char *name, const void *value,
		size_t size, int flags, enum owner_charge charge);
int xattr_drop(struct fs *fs, struct inode *inode, const char *name);
/* The metadata that all attributes of a list are charged for. */
uint32_t xattrs_metadata(const struct xattr *list);

/* flags: XATTR_CREATE, XATTR_REPLACE. */
int xattr_set(struct xattr **list, const char *name, const void *value, size_t size, int flags);
/* The size of the value; -ENODATA; -ERANGE if size is not 0 and too small. */
ssize_t xattr_get(const struct xattr *list, const char *name, void *value, size_t size);
int xattr_remove(struct xattr **list, const char *name);
/* trusted.*: only a caller with CAP_SYS_ADMIN sees that such attributes exist. */
#define XATTR_TRUSTED "trusted."
enum xattr_names { XATTR_NAMES_ALL, XATTR_NAMES_BUT_TRUSTED };
/* Copies the names, each with its NUL, to out (capacity bytes). Returns the bytes needed for all
 * names. */
size_t xattr_list(const struct xattr *list, enum xattr_names visible_names, char *out,
		  size_t capacity);
void xattr_free(struct xattr *list);
/* Iterates: last is NULL at the start; NULL ends. */
struct xattr_entry {
	const char *name;
	const void *value;
	size_t size;
};
const struct xattr *xattr_next(const struct xattr *list, const struct xattr *last,
			       struct xattr_entry *entry);

#endif
