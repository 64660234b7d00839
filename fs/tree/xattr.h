/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* Extended attributes that are stored as they are (everything outside user.gpumem.*). Callers hold
 * inode->lock. */
#ifndef FS_TREE_XATTR_H
#define FS_TREE_XATTR_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

#include "fs/core/limits.h"

struct xattr;

/* The daemon's own, which nobody sees: their names begin so. */
#define XATTR_OURS "gpumem."
bool xattr_is_ours(const char *name);

/* What an attribute costs the daemon besides its name and value. */
#define XATTR_OVERHEAD 48

/* flags: XATTR_CREATE, XATTR_REPLACE. */
int xattr_set(struct xattr **list, const char *name, const void *value, size_t size, int flags);
/* The size; -ENODATA; -ERANGE when size (not 0) is too small. */
ssize_t xattr_get(const struct xattr *list, const char *name, void *value, size_t size);
int xattr_remove(struct xattr **list, const char *name);
/* trusted.*: only a caller with CAP_SYS_ADMIN learns that there are such attributes. */
#define XATTR_TRUSTED "trusted."
enum xattr_names { XATTR_NAMES_ALL, XATTR_NAMES_BUT_TRUSTED };
/* Names, each with its NUL, into out (capacity bytes): the bytes needed in all. */
size_t xattr_list(const struct xattr *list, enum xattr_names which, char *out, size_t capacity);
void xattr_free(struct xattr *list);
/* One after the other; NULL begins, and ends. */
struct xattr_entry {
	const char *name;
	const void *value;
	size_t size;
};
const struct xattr *xattr_next(const struct xattr *list, const struct xattr *last,
			       struct xattr_entry *entry);

#endif
