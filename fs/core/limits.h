/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* Sizes and bounds on which several folders of fs/ must agree: the tree, which enforces them, and
 * the journal, which checks what an earlier daemon left against them. */
#ifndef FS_CORE_LIMITS_H
#define FS_CORE_LIMITS_H

#include <stdint.h>

/* The longest file name, without NUL. */
#define NAME_BYTES_MAX 255

/* All extended attributes of an inode together, as on ext4 and XFS: -ENOSPC beyond. */
#define XATTRS_BYTES_MAX 65536

/* Greater than every directory cookie: a listing of names, which goes downwards, begins here. */
#define DIR_COOKIE_END ((uint64_t)INT64_MAX)

/* The inode table's slots: pages of INODE_PAGE_SLOTS, of which page n belongs to shard
 * n % INODE_SHARDS. */
#define INODE_SHARDS	 16
#define INODE_PAGE_SLOTS 4096

/* Tokens that wait to be redeemed: of all users, and of one user. The tree counts the tokens of a
 * user, and fs/share has room for them in memory that outlives the daemon. */
#define TOKENS_MAX	   65536
#define TOKENS_PER_UID_MAX 4096

/* Bytes of the daemon's own memory, about: for an inode with its first name, and for each further
 * name. */
#define METADATA_INODE 1024
#define METADATA_NAME  512

#endif
