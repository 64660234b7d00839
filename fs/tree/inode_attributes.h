/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* user.gpumem.* of an inode: what getxattr and setxattr do with the table of attributes.h. */
#ifndef FS_TREE_INODE_ATTRIBUTES_H
#define FS_TREE_INODE_ATTRIBUTES_H

#include <stddef.h>
#include <sys/types.h>

#include "fs/core/attribute_schema.h"

struct fs;
struct inode;
struct copier;

/* As setxattr(2), for a caller whom the kernel allows to write. Quotas are for root and the user
 * who runs the daemon, whom readers are entrusted with (share) for these and the owner: others get
 * -EPERM. -EINVAL, -ENOTSUP, and what laying the file out again may give, each with a line in the
 * log where somebody must act on it. */
int inode_attr_set(struct fs *fs, struct copier *copier, struct inode *inode, enum attr_id id,
		   const char *value, size_t size, uid_t caller);
/* Back to the default. */
int inode_attr_remove(struct fs *fs, struct copier *copier, struct inode *inode, enum attr_id id,
		      uid_t caller);
/* The value as text, allocated; its length in *length. */
int inode_attr_get(struct inode *inode, enum attr_id id, char **text, size_t *length);
/* Whether it was set or inherited, and so is in the list. */
bool inode_attr_listed(struct inode *inode, enum attr_id id);

#endif
