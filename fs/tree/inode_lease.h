/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* Counts the leases of a file. A lease keeps the memory of a file without names, as an open handle
 * does. */
#ifndef FS_TREE_INODE_LEASE_H
#define FS_TREE_INODE_LEASE_H

#include <stdint.h>

struct fs;
struct inode;

/* Counts a new lease: 0, or -ESTALE if the memory is freed already. */
int inode_lease_get(struct fs *fs, struct inode *inode);
/* Counts lease_refs fewer leases. Without names and handles the last lease frees the file's memory.
 * Under no lock. */
void inode_lease_put(struct fs *fs, struct inode *inode, uint32_t lease_refs);

#endif
