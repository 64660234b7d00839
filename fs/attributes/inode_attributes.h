/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* The attributes user.gpumem.* of an inode: getxattr and setxattr with the table of
 * attribute_schema.h. */
#ifndef FS_ATTRIBUTES_INODE_ATTRIBUTES_H
#define FS_ATTRIBUTES_INODE_ATTRIBUTES_H

#include <stddef.h>
#include <sys/types.h>

#include "fs/core/attribute_schema.h"

struct fs;
struct inode;
struct copier;

/* As setxattr(2), for a caller that the kernel allows to write. Only root and the user that runs
 * the daemon may set quotas; only these two and the owner may set the attribute share. All other
 * callers get -EPERM. Also -EINVAL, -ENOTSUP, and the errors of a new layout. A line in the log
 * explains errors that a user can correct. */
int inode_attr_set(struct fs *fs, struct copier *copier, struct inode *inode, enum attr_id id,
		   const char *value, size_t size, uid_t caller);
/* Sets the attribute back to its default. */
int inode_attr_remove(struct fs *fs, struct copier *copier, struct inode *inode, enum attr_id id,
		      uid_t caller);
/* The value as text, allocated; its length in *length. */
int inode_attr_get(struct fs *fs, struct inode *inode, enum attr_id id, char **text,
		   size_t *length);
/* Whether the attribute was set or inherited; only then listxattr shows the attribute. */
bool inode_attr_listed(struct inode *inode, enum attr_id id);

#endif
