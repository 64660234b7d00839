/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* Charges for memory and files: every directory sums the bytes and files below, and a quota on a
 * directory refuses a charge beyond its limit. */
#ifndef FS_TREE_QUOTA_H
#define FS_TREE_QUOTA_H

#include <stdbool.h>
#include <stdint.h>

#include "backend/backend.h"
#include "fs/core/limits.h"
#include "fs/file/file.h"

struct fs;
struct inode;

/* Adds to quota_dir and all directories above: 0, or -EDQUOT without a change. Negative amounts
 * always succeed. Topology is held, shared or exclusive. */
int quota_add(struct inode *quota_dir, int64_t bytes, int64_t files);
/* Adds to quota_dir and all directories above, whatever their quotas: for undoing, and for charges
 * that cannot be refused. */
void quota_force(struct inode *quota_dir, int64_t bytes, int64_t files);

/* The charge callback of struct file_call; quota_owner is the struct inode_call. Takes topology. A
 * call with overdraft is never refused. */
int quota_charge(void *quota_owner, int64_t bytes);

/* The charge_place callback: charges the inode's owner (-o user_spill=, descriptors). */
int quota_charge_place(void *quota_owner, enum memory_place place, int64_t bytes, bool replaces);

/* Both callbacks at once, all or nothing: charges a span in a place, and bytes. Topology is held.
 */
int quota_charge_span(const struct file_call *call, enum memory_place place, int64_t span_bytes,
		      int64_t bytes);

/* The count_object callback: charges the inode's owner for the object of host/. */
int quota_object(void *quota_owner, int change, enum system_tmpfs tmpfs);
/* The limits callback. */
enum file_limits quota_limits(void *quota_owner);

/* If the directory `from` pays for the inode, `to` pays from now on, for a directory with all that
 * is below, and holds the reference: 0, or -EDQUOT without a change. A quota above both directories
 * sees no change. Topology is held exclusively. */
int quota_move_inode(struct inode *inode, struct inode *from, struct inode *to);
/* Undoes quota_move_inode. A quota that was lowered meanwhile cannot refuse. */
void quota_return_inode(struct inode *inode, struct inode *from, struct inode *to);

/* The state of the quotas of a directory and all directories above. UINT64_MAX: no quota. */
struct quota_report {
	uint64_t max_bytes, used_bytes;	 /* of the nearest quota of bytes */
	uint64_t max_files;		 /* of the nearest quota of files */
	uint64_t bytes_left, files_left; /* of the quota with the least room */
};

/* Topology is held; dir may be NULL. */
void quota_report(struct inode *dir, struct quota_report *quota);

/* Bytes that the quotas of quota_dir and all directories above leave; UINT64_MAX without a quota.
 * Topology is held. */
uint64_t quota_room(struct inode *quota_dir);

/* Whether quota_dir or a directory above has a quota of bytes. Topology is held. */
bool quota_limited(struct inode *quota_dir);
/* Takes topology. */
enum file_limits quota_limits_in(struct fs *fs, struct inode *dir);

#endif
