/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* Leases hold a file as open handles do: while there is one, a file that lost its last name keeps
 * its memory. */
#ifndef FS_TREE_INODE_LEASE_H
#define FS_TREE_INODE_LEASE_H

#include <stdint.h>

struct fs;
struct inode;

/* 0, or -ESTALE where the memory is gone already. */
int inode_lease_get(struct fs *fs, struct inode *inode);
/* So many of them. The last hold of a file without names and handles frees its memory. Under no
 * lock. */
void inode_lease_put(struct fs *fs, struct inode *inode, uint32_t lease_refs);

#endif
