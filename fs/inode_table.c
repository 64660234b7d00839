/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
#include <errno.h>
#include <stdlib.h>
#include <sys/mman.h>

#include "common/defer.h"
#include "fs/inode_table.h"

#define SLOT_OF(ino) ((uint32_t)(ino))

static struct inode_slot *slot_at(struct inode_table *table, uint32_t slot)
{
	uint32_t page = slot / INODE_PAGE_SLOTS;

	if (page >= INODE_PAGES)
		return NULL;
	struct inode_slot *slots = atomic_load_explicit(&table->pages[page], memory_order_acquire);
	return slots ? &slots[slot % INODE_PAGE_SLOTS] : NULL;
}

static uint32_t shard_of_slot(uint32_t slot)
{
	return slot / INODE_PAGE_SLOTS % INODE_SHARDS;
}

int inode_table_init(struct inode_table *table)
{
	table->pages = mmap(NULL, INODE_PAGES * sizeof(*table->pages), PROT_READ | PROT_WRITE,
			    MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (table->pages == MAP_FAILED)
		return -errno;
	for (unsigned i = 0; i < INODE_SHARDS; i++) {
		struct inode_shard *shard = &table->shards[i];

		pthread_mutex_init(&shard->lock, NULL);
		/* Page i is shard i's first; 0 is no slot at all, so that no free list names it. */
		shard->next_page = i;
	}
	return 0;
}

void inode_table_destroy(struct inode_table *table)
{
	for (uint32_t i = 0, pages = inode_table_pages(table); i < pages; i++)
		free(atomic_load(&table->pages[i]));
	for (unsigned i = 0; i < INODE_SHARDS; i++)
		pthread_mutex_destroy(&table->shards[i].lock);
	munmap(table->pages, INODE_PAGES * sizeof(*table->pages));
}

/* A page of slots more for the shard, whose lock is held. */
static int shard_grow(struct inode_table *table, struct inode_shard *shard)
{
	if (shard->next_page >= INODE_PAGES)
		return -ENOSPC;
	struct inode_slot *slots = calloc(INODE_PAGE_SLOTS, sizeof(*slots));

	if (!slots)
		return -ENOMEM;
	atomic_store_explicit(&table->pages[shard->next_page], slots, memory_order_release);
	shard->fresh = shard->next_page * INODE_PAGE_SLOTS;
	shard->fresh_end = shard->fresh + INODE_PAGE_SLOTS;
	if (shard->fresh == 0)
		shard->fresh = INODE_ROOT;
	shard->next_page += INODE_SHARDS;
	return 0;
}

/* Which shard this thread takes numbers from: threads are spread in the order of their coming. */
static unsigned shard_mine(struct inode_table *table)
{
	static _Thread_local unsigned mine;

	if (!mine)
		mine = atomic_fetch_add(&table->threads, 1) % INODE_SHARDS + 1;
	return mine - 1;
}

static int shard_add(struct inode_table *table, struct inode_shard *shard, struct inode *inode)
{
	LOCKED(&shard->lock);
	uint32_t slot = shard->first_free;
	struct inode_slot *entry;

	if (slot) {
		entry = slot_at(table, slot);
		shard->first_free = entry->next_free;
	} else {
		if (shard->fresh == shard->fresh_end) {
			int error = shard_grow(table, shard);

			if (error)
				return error;
		}
		slot = shard->fresh++;
		entry = slot_at(table, slot);
	}
	inode->ino = (uint64_t)entry->generation << 32 | slot;
	atomic_store_explicit(&entry->inode, inode, memory_order_release);
	shard->count++;
	return 0;
}

int inode_table_add(struct inode_table *table, struct inode *inode)
{
	return shard_add(table, &table->shards[shard_mine(table)], inode);
}

int inode_table_add_first(struct inode_table *table, struct inode *inode)
{
	return shard_add(table, &table->shards[0], inode);
}

void inode_table_remove(struct inode_table *table, struct inode *inode)
{
	uint32_t slot = SLOT_OF(inode->ino);
	struct inode_shard *shard = &table->shards[shard_of_slot(slot)];
	struct inode_slot *entry = slot_at(table, slot);

	LOCKED(&shard->lock);
	atomic_store_explicit(&entry->inode, NULL, memory_order_release);
	/* The top two bits of a number are for .gpumem/ (control.h). */
	entry->generation = (entry->generation + 1) & 0x3fffffff;
	entry->next_free = shard->first_free;
	shard->first_free = slot;
	shard->count--;
}

struct inode *inode_table_find(struct inode_table *table, uint64_t ino)
{
	struct inode_slot *entry = slot_at(table, SLOT_OF(ino));
	struct inode *inode =
	    entry ? atomic_load_explicit(&entry->inode, memory_order_acquire) : NULL;

	return inode && inode->ino == ino ? inode : NULL;
}

/* Takes a reference unless the last one is already gone. */
static bool inode_ref_alive(struct inode *inode)
{
	uint64_t refs = atomic_load(&inode->refs);

	while (refs)
		if (atomic_compare_exchange_weak(&inode->refs, &refs, refs + 1))
			return true;
	return false;
}

struct inode *inode_table_get(struct inode_table *table, uint64_t ino)
{
	struct inode_slot *entry = slot_at(table, SLOT_OF(ino));

	if (!entry)
		return NULL;
	/* An inode leaves its slot under this lock before it is freed. */
	LOCKED(&table->shards[shard_of_slot(SLOT_OF(ino))].lock);
	struct inode *inode = atomic_load(&entry->inode);

	return inode && inode->ino == ino && inode_ref_alive(inode) ? inode : NULL;
}

struct inode *inode_table_next(struct inode_table *table, uint32_t *slot)
{
	for (;; (*slot)++) {
		struct inode_slot *entry = slot_at(table, *slot);

		if (!entry) {
			/* Pages are dealt to shards in turn: a page that is missing ends only its
			 * shard. */
			uint32_t page = *slot / INODE_PAGE_SLOTS;

			if (page >= INODE_PAGES || page >= inode_table_pages(table))
				return NULL;
			*slot = (page + 1) * INODE_PAGE_SLOTS - 1;
			continue;
		}
		/* An inode leaves its slot under this lock before it is freed. */
		struct inode_shard *shard = &table->shards[shard_of_slot(*slot)];
		LOCKED(&shard->lock);
		struct inode *inode = atomic_load(&entry->inode);

		if (inode && inode_ref_alive(inode)) {
			(*slot)++;
			return inode;
		}
	}
}

uint32_t inode_table_pages(struct inode_table *table)
{
	uint32_t pages = 0;

	for (unsigned i = 0; i < INODE_SHARDS; i++) {
		LOCKED(&table->shards[i].lock);
		if (table->shards[i].next_page > pages)
			pages = table->shards[i].next_page;
	}
	return pages;
}

uint64_t inode_table_count(struct inode_table *table)
{
	uint64_t count = 0;

	for (unsigned i = 0; i < INODE_SHARDS; i++) {
		LOCKED(&table->shards[i].lock);
		count += table->shards[i].count;
	}
	return count;
}
