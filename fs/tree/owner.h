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
#include "fs/ledger/kinds.h"

struct fs;
struct inode;

/* The kind of memory in a place other than the device. */
enum ledger_kind owner_place_kind(enum memory_place place);

/* Charges the owner for memory in a place other than the device: 0, -EDQUOT or -ENOMEM. Negative
 * bytes, which were charged before, always succeed. */
int owner_charge_place(struct fs *fs, struct inode *inode, enum memory_place place, int64_t bytes);
/* Charges the owner without a limit. 0 or -ENOMEM. */
int owner_restore_place(struct fs *fs, struct inode *inode, enum memory_place place,
			uint64_t bytes);

/* Sets the owner, who takes over the charges. inode->lock is held. */
void owner_change(struct fs *fs, struct inode *inode, uid_t uid);

#endif
