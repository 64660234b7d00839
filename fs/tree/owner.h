/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* What the owner of an inode is charged for. Each charge is added to the inode under the lock that
 * also guards a change of the owner, so that a change moves exactly what was charged. Thread-safe;
 * callable under any lock. */
#ifndef FS_TREE_OWNER_H
#define FS_TREE_OWNER_H

#include <stdint.h>
#include <sys/types.h>

#include "backend/backend.h"
#include "backend/system/system.h"
#include "fs/ledger/kinds.h"

struct fs;
struct inode;

/* What happens to a charge beyond the owner's limits. OWNER_ALWAYS: for what the owner has already.
 */
enum owner_charge { OWNER_WITHIN_LIMITS, OWNER_ALWAYS };

/* Charges the owner for memory of the daemon: 0, -EDQUOT (the owner's limit), -ENOSPC (the
 * daemon's), -ENOMEM. A restored inode is charged by OWNER_ALWAYS. */
int owner_take_metadata(struct fs *fs, struct inode *inode, uint32_t bytes,
			enum owner_charge charge);
void owner_give_metadata(struct fs *fs, struct inode *inode, uint32_t bytes);

/* The kind of memory in a place. */
enum ledger_kind owner_place_kind(enum memory_place place);

/* Charges the owner for a span of the file in a place, and for the part of a descriptor that the
 * span costs: 0, -EDQUOT, -ENOMEM, or -EFBIG (16 TiB of a file in one place). */
int owner_take_span(struct fs *fs, struct inode *inode, enum memory_place place, uint64_t bytes,
		    enum owner_charge bytes_charge, enum owner_charge descriptors_charge);
/* bytes: of the whole span, or some blocks of it. */
void owner_give_span(struct fs *fs, struct inode *inode, enum memory_place place, uint64_t bytes);

/* Charges the owner for the object of a file of host/, and for the object's own tmpfs: 0, -ENOSPC,
 * -EDQUOT or -ENOMEM. */
int owner_take_object(struct fs *fs, struct inode *inode, enum system_tmpfs tmpfs,
		      enum owner_charge charge);
void owner_give_object(struct fs *fs, struct inode *inode, enum system_tmpfs tmpfs);
/* An object without a tmpfs of its own is in place of the object. */
void owner_give_tmpfs(struct fs *fs, struct inode *inode);

/* Counts bytes, which quota_dir is charged for, for the owner too: 0 or -ENOMEM. Negative bytes
 * always succeed. */
int owner_charge_bytes(struct fs *fs, struct inode *inode, int64_t bytes);

/* Sets the owner, who takes over the charges: 0, or -ENOMEM without a change. inode->lock is held.
 */
int owner_change(struct fs *fs, struct inode *inode, uid_t uid);

#endif
