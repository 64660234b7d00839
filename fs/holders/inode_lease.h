/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* Counts the leases of a file, and after a restart keeps the leases until their sharers reconnect.
 * A lease keeps the memory of a file without names, as an open handle does. */
#ifndef FS_HOLDERS_INODE_LEASE_H
#define FS_HOLDERS_INODE_LEASE_H

#include <stdbool.h>
#include <stdint.h>

struct fs;
struct inode;

/* Counts a new lease: 0, or -ESTALE if the memory is freed already. */
int inode_lease_get(struct fs *fs, struct inode *inode);
/* Counts leases fewer leases. Without names and handles the last lease frees the file's memory.
 * Under no lock. */
void inode_lease_put(struct fs *fs, struct inode *inode, uint32_t leases);

/* From begin to end the holder of a lease may store without the daemon's knowledge: inode_unseen.h.
 * A file that once had too many such leases to count them counts as leased for ever. end moves
 * mtime for the last of these stores. The caller has the lease, and afterwards makes the kernel ask
 * for the attributes again. */
void inode_unseen_begin(struct inode *inode);
void inode_unseen_end(struct inode *inode);

/* Unclaimed leases: leases of an earlier daemon that no sharer has claimed yet. After a restart the
 * sharers still have the memory mapped and reconnect to claim their leases. Until then, or until
 * unclaimed_leases_end, the leases keep the file's memory as before. */

/* Makes an empty list: 0 or -ENOMEM. */
int unclaimed_leases_open(struct fs *fs);
/* After unclaimed_leases_end; if this daemon could not start, the leases stay for the next one. */
void unclaimed_leases_close(struct fs *fs);

/* For recovery: notes the leases in inode->uses.leases, with a reference of the inode for each
 * lease. 0 or -ENOMEM. */
int unclaimed_leases_add(struct fs *fs, struct inode *inode);

/* A sharer claims a lease of the inode, and owns the lease and its reference from now on. False: no
 * lease is left. Any thread. */
bool unclaimed_lease_adopt(struct fs *fs, struct inode *inode);

/* Ends all leases that no sharer has claimed by now. Under no lock. */
void unclaimed_leases_end(struct fs *fs);

#endif
