/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* Leases that an earlier daemon had given: their sharers have the memory still, and come back for
 * the lease. Until then, or until they are given up, the file is leased and held as ever. */
#ifndef FS_TREE_UNCLAIMED_LEASE_H
#define FS_TREE_UNCLAIMED_LEASE_H

#include <stdbool.h>

struct fs;
struct inode;

/* An empty list: 0 or -ENOMEM. */
int unclaimed_leases_open(struct fs *fs);
void unclaimed_leases_close(struct fs *fs); /* unclaimed_leases_end was called */

/* While restoring: the inode has holds of leases, each with a reference. 0 or -ENOMEM. */
int unclaimed_leases_add(struct fs *fs, struct inode *inode);

/* One of the inode's leases has found its sharer, who has the lease, its hold and its reference
 * from now on, and gives them back as any. False: there is none left. Any thread. */
bool unclaimed_lease_adopt(struct fs *fs, struct inode *inode);

/* Whoever has not come by now does not come any more. Under no lock. */
void unclaimed_leases_end(struct fs *fs);

#endif
