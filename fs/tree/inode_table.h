/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* Inodes by number. Finding takes no lock, because the kernel never asks for a number whose lookups
 * it has given back. A number is a slot in the low 32 bits and the slot's generation above. */
#ifndef FS_TREE_INODE_TABLE_H
#define FS_TREE_INODE_TABLE_H

#include <stdint.h>

#include "fs/core/limits.h"
#include "fs/tree/inode.h"

#define INODE_PAGES (1U << 20) /* 2^32 slots */

struct inode_slot {
	_Atomic(struct inode *) inode;
	uint32_t generation; /* shard lock */
	uint32_t next_free;  /* shard lock; 0 ends the list */
};

/* Page n of slots belongs to shard n % INODE_SHARDS; a thread takes its numbers from one shard, so
 * that creators rarely meet. */
struct inode_shard {
	_Alignas(64) pthread_mutex_t lock;
	uint32_t first_free;
	uint32_t fresh, fresh_end; /* slots of the newest page that were never used */
	uint32_t next_page;
	uint64_t count;
};

struct journal;

struct inode_table {
	struct journal *journal; /* where figures are to be; NULL: in the inodes */
	_Atomic(struct inode_slot *)
	    *pages; /* INODE_PAGES of them; the kernel backs what is used */
	_Atomic unsigned threads;
	struct inode_shard shards[INODE_SHARDS];
};

int inode_table_new(struct inode_table **made);
void inode_table_free(struct inode_table *table); /* the table alone */

/* Gives the inode its number: 0, -ENOMEM or -ENOSPC. The first one of all is INODE_ROOT. */
int inode_table_add(struct inode_table *table, struct inode *inode);
int inode_table_add_first(struct inode_table *table, struct inode *inode);
void inode_table_remove(struct inode_table *table, struct inode *inode);

/* NULL: no such inode. Takes no reference. */
struct inode *inode_table_find(struct inode_table *table, uint64_t ino);

/* The same with a reference, for who does not hold one already. */
struct inode *inode_table_get(struct inode_table *table, uint64_t ino);

/* Iterates: the next inode at or after *slot (start with 0), with a reference; NULL ends. */
struct inode *inode_table_next(struct inode_table *table, uint32_t *slot);

/* For restoring, by one thread: what is in the slot of a number; an inode under its number, into a
 * slot that has none (0, -ENOMEM, -EUCLEAN); out of it again; and at the end the free slots, whose
 * numbers from then on are such as never were. */
struct inode *inode_table_restore_at(struct inode_table *table, uint64_t ino);
int inode_table_restore(struct inode_table *table, struct inode *inode);
void inode_table_restore_remove(struct inode_table *table, struct inode *inode);
int inode_table_restore_end(struct inode_table *table);

uint32_t inode_table_pages(struct inode_table *table);
uint64_t inode_table_count(struct inode_table *table);

#endif
