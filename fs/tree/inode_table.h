/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* The table of inodes by number. A lookup takes no lock: the kernel never sends a number after
 * FUSE_FORGET returned all lookups of the number. A number is a slot in the low 32 bits and the
 * slot's generation above. */
#ifndef FS_TREE_INODE_TABLE_H
#define FS_TREE_INODE_TABLE_H

#include <stdint.h>

#include "common/cacheline.h"
#include "fs/core/limits.h"
#include "fs/tree/inode.h"

#define INODE_PAGES (1U << 20) /* 2^32 slots */

struct inode_slot {
	_Atomic(struct inode *) inode;
	uint32_t generation; /* under the shard's lock */
	uint32_t next_free;  /* under the shard's lock; 0 ends the list */
};

/* Page n of slots belongs to shard n % INODE_SHARDS. A thread takes new numbers from a single
 * shard, so that threads that create files rarely share a lock. */
struct inode_shard {
	_Alignas(64) pthread_mutex_t lock;
	uint32_t first_free;
	uint32_t fresh_slot, fresh_end; /* slots of the newest page that were never used */
	uint32_t next_page;
	uint64_t count;
};

struct journal;

struct inode_table {
	struct journal *journal; /* holds counters and times; NULL: inodes have their own */
	/* INODE_PAGES pointers; the kernel backs used pages only. */
	_Atomic(struct inode_slot *) *pages;
	_Atomic unsigned threads;
	/* Unlinked files whose memory is not freed yet; ops/inode_io.c waits for such memory. No
	 * other member is in the cache line of this counter. */
	_Alignas(CACHELINE_ALIGN) _Atomic int64_t n_unlinked_open;
	struct inode_shard shards[INODE_SHARDS];
};

int inode_table_new(struct inode_table **new_table);
void inode_table_free(struct inode_table *table); /* the inodes are freed already */

/* Gives the inode a number: 0, -ENOMEM or -ENOSPC. inode_table_add_first is for the root, which
 * gets INODE_ROOT. */
int inode_table_add(struct inode_table *table, struct inode *inode);
int inode_table_add_first(struct inode_table *table, struct inode *inode);
void inode_table_remove(struct inode_table *table, struct inode *inode);

/* The inode of this number, without a reference for the caller; NULL: no such inode. */
struct inode *inode_table_find(struct inode_table *table, uint64_t ino);

/* As inode_table_find, with a reference for the caller. */
struct inode *inode_table_get(struct inode_table *table, uint64_t ino);

/* Iterates: the next inode at or after *slot (start with 0), with a reference; NULL ends. */
struct inode *inode_table_next(struct inode_table *table, uint32_t *slot);

/* For recovery, by a single thread. inode_table_restore_at: the inode in the number's slot, or
 * NULL. inode_table_restore: puts an inode into the empty slot of its number (0, -ENOMEM,
 * -EUCLEAN). inode_table_restore_remove: empties the slot again. inode_table_restore_end: makes the
 * free slots usable, with generations that were never used before. */
struct inode *inode_table_restore_at(struct inode_table *table, uint64_t ino);
int inode_table_restore(struct inode_table *table, struct inode *inode);
void inode_table_restore_remove(struct inode_table *table, struct inode *inode);
int inode_table_restore_end(struct inode_table *table);

uint32_t inode_table_pages(struct inode_table *table);
uint64_t inode_table_count(struct inode_table *table);

#endif
