/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* Who pays for memory and files: every directory sums what is below it, and a quota on any of them
 * refuses what would go beyond. */
#ifndef FS_TREE_QUOTA_H
#define FS_TREE_QUOTA_H

#include <stdbool.h>
#include <stdint.h>

#include "fs/core/limits.h"

struct fs;
struct inode;

/* Adds to home and all above it: 0 or -EDQUOT (then nothing was added). Amounts may be negative;
 * those succeed. Topology is held (shared or exclusive). */
int quota_add(struct inode *quota_dir, int64_t bytes, int64_t files);
/* The same without regard to quotas, for undoing and for what cannot be refused. */
void quota_force(struct inode *quota_dir, int64_t bytes, int64_t files);

/* For struct file_call: payer is the struct inode_call. Takes topology itself. An overdraft is
 * never refused. */
int quota_charge(void *quota_owner, int64_t bytes);

/* The same: what the owner of the inode had the daemon open, by uid. */
int quota_object(void *quota_owner, int more);
/* What a daemon before this one had opened. 0 or -ENOMEM. */
int quota_object_restored(struct fs *fs, struct inode *inode);

/* Moves the charge for a file or a whole directory from one home to another: 0 or -EDQUOT (then
 * nothing moved). A quota above both sees no change. Topology is held exclusively. */
int quota_move(struct inode *from, struct inode *to, int64_t bytes, int64_t files);

/* The daemon's own memory for names, inodes and attributes: 0, or -ENOSPC beyond its share of the
 * machine's, for a user who could take all of it would end the daemon. */
int quota_metadata(struct fs *fs, int64_t bytes);

/* What the quotas of a directory and of all above it leave. UINT64_MAX: there is none. */
struct quota_report {
	uint64_t max_bytes, used_bytes;	 /* of the nearest quota of bytes */
	uint64_t max_files;		 /* of the nearest quota of files */
	uint64_t bytes_left, files_left; /* of the narrowest */
};

/* Topology is held; dir may be NULL. */
void quota_report(struct inode *dir, struct quota_report *quota);

/* Bytes that the quotas at and above leave; UINT64_MAX without one. Topology is held. */
uint64_t quota_room(struct inode *quota_dir);

/* Whether a quota of bytes is set anywhere at or above. Topology is held. */
bool quota_limited(struct inode *quota_dir);

#endif
