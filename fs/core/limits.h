/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* Limits that several folders of fs/ share: the tree enforces the limits, and the journal checks an
 * earlier daemon's records against the limits. */
#ifndef FS_CORE_LIMITS_H
#define FS_CORE_LIMITS_H

#include <stdint.h>

/* The longest file name, without NUL. */
#define NAME_BYTES_MAX 255

/* The size of all extended attributes of an inode together, as on ext4 and XFS; larger sets fail
 * with -ENOSPC. */
#define XATTRS_BYTES_MAX 65536

/* Greater than every directory cookie: a listing goes downwards from here. */
#define DIR_COOKIE_END ((uint64_t)INT64_MAX)

/* The inode table's slots: pages of INODE_PAGE_SLOTS, of which page n belongs to shard
 * n % INODE_SHARDS. */
#define INODE_SHARDS	 16
#define INODE_PAGE_SLOTS 4096

/* About how many bytes the daemon itself needs for an inode with its first name, and for each
 * further name, with their records in the journal. */
#define METADATA_INODE 1024
#define METADATA_NAME  512
/* How often the bytes of an attribute or a target exist: in the daemon, and up to three times in
 * the journal, of which a half grows to twice the size that a compaction left, before the next
 * compaction writes the other half. */
#define METADATA_COPIES 4

/* Why a place has no room: for any file, or for the files of one owner (user_spill). */
enum place_short { PLACE_IS_FULL, PLACE_OWNER_LIMIT };

#endif
