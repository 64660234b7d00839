/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
#include <errno.h>
#include <stdlib.h>

#include "common/cacheline.h"
#include "common/cleanup.h"
#include "fs/journal/journal.h"
#include "fs/tree/inode_table.h"

#define SLOT_OF(ino) ((uint32_t)(ino))

/* .gpumem/ uses the top two bits of inode numbers (fs/control/nodes.h). */
#define GENERATION_MAX 0x3fffffffU

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

int inode_table_new(struct inode_table **new_table)
{
	struct inode_table *table = cacheline_calloc(sizeof(*table));

	if (!table)
		return -ENOMEM;
	table->pages = calloc(INODE_PAGES, sizeof(*table->pages));
	if (!table->pages) {
		free(table);
		return -ENOMEM;
	}
	for (unsigned i = 0; i < INODE_SHARDS; i++) {
		struct inode_shard *shard = &table->shards[i];

		pthread_mutex_init(&shard->lock, NULL);
		/* Page i is the first page of shard i. Slot 0 is never used, so 0 can end a free
		 * list. */
		shard->next_page = i;
	}
	*new_table = table;
	return 0;
}

void inode_table_free(struct inode_table *table)
{
	for (uint32_t i = 0, pages = inode_table_pages(table); i < pages; i++)
		free(atomic_load(&table->pages[i]));
	for (unsigned i = 0; i < INODE_SHARDS; i++)
		pthread_mutex_destroy(&table->shards[i].lock);
	free(table->pages);
	free(table);
}

/* Adds a page of slots to the shard. The shard's lock is held. */
static int shard_grow(struct inode_table *table, struct inode_shard *shard)
{
	if (shard->next_page >= INODE_PAGES)
		return -ENOSPC;
	uint32_t first = shard->next_page * INODE_PAGE_SLOTS;

	if (table->journal && journal_grow(table->journal, first, INODE_PAGE_SLOTS))
		return -ENOSPC;
	struct inode_slot *slots = calloc(INODE_PAGE_SLOTS, sizeof(*slots));

	if (!slots)
		return -ENOMEM;
	atomic_store_explicit(&table->pages[shard->next_page], slots, memory_order_release);
	shard->fresh_slot = first;
	shard->fresh_end = shard->fresh_slot + INODE_PAGE_SLOTS;
	if (shard->fresh_slot == 0)
		shard->fresh_slot = INODE_ROOT;
	shard->next_page += INODE_SHARDS;
	/* Only raise: during recovery the header already has the final number of pages. */
	if (table->journal &&
	    table->journal->header->pages[shard - table->shards] < shard->next_page)
		table->journal->header->pages[shard - table->shards] = shard->next_page;
	return 0;
}

/* The shard in which this thread creates inodes: new threads take the shards in turn. */
static unsigned shard_of_thread(struct inode_table *table)
{
	static _Thread_local unsigned shard; /* from 1 */

	if (!shard)
		shard = atomic_fetch_add(&table->threads, 1) % INODE_SHARDS + 1;
	return shard - 1;
}

/* Moves the inode's counters and times into the journal's slot, where the next daemon finds
 * them. */
static void fields_place(struct journal *journal, struct inode *inode)
{
	struct journal_slot *slot = journal_slot(journal, SLOT_OF(inode->ino));

	*slot = (struct journal_slot){0};
	atomic_store(&slot->inode.lookups, atomic_load(&inode->fields->lookups));
	atomic_store(&slot->inode.atime, atomic_load(&inode->fields->atime));
	atomic_store(&slot->inode.mtime, atomic_load(&inode->fields->mtime));
	atomic_store(&slot->inode.ctime, atomic_load(&inode->fields->ctime));
	inode->fields = &slot->inode;
	if (S_ISREG(inode->mode)) {
		file_set_fields(inode->file, &slot->file);
		file_set_paged(inode->file, false);
	}
}

/* Raises the highest generation that any slot has ever had. */
static void generation_raise(_Atomic uint32_t *highest, uint32_t generation)
{
	uint32_t now = atomic_load(highest);

	while (now < generation && !atomic_compare_exchange_weak(highest, &now, generation))
		;
}

static int shard_add(struct inode_table *table, struct inode_shard *shard, struct inode *inode)
{
	scoped_lock(&shard->lock);
	uint32_t slot = shard->first_free;
	struct inode_slot *entry;

	if (slot) {
		entry = slot_at(table, slot);
		shard->first_free = entry->next_free;
	} else {
		if (shard->fresh_slot == shard->fresh_end) {
			int error = shard_grow(table, shard);

			if (error)
				return error;
		}
		slot = shard->fresh_slot++;
		entry = slot_at(table, slot);
	}
	inode->ino = (uint64_t)entry->generation << 32 | slot;
	if (table->journal)
		fields_place(table->journal, inode);
	atomic_store_explicit(&entry->inode, inode, memory_order_release);
	shard->count++;
	return 0;
}

int inode_table_add(struct inode_table *table, struct inode *inode)
{
	return shard_add(table, &table->shards[shard_of_thread(table)], inode);
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

	scoped_lock(&shard->lock);
	atomic_store_explicit(&entry->inode, NULL, memory_order_release);
	entry->generation = (entry->generation + 1) & GENERATION_MAX;
	if (table->journal)
		generation_raise(&table->journal->header->generation, entry->generation);
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

/* Takes a reference, unless the last reference is gone. */
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
	scoped_lock(&table->shards[shard_of_slot(SLOT_OF(ino))].lock);
	struct inode *inode = atomic_load(&entry->inode);

	return inode && inode->ino == ino && inode_ref_alive(inode) ? inode : NULL;
}

/* Moves *slot past the empty slots of its page. Reads without the lock: a walk over all inodes
 * takes the lock only for slots in use. */
static struct inode_slot *page_next_used(struct inode_slot *entry, uint32_t *slot)
{
	struct inode_slot *end = entry + (INODE_PAGE_SLOTS - *slot % INODE_PAGE_SLOTS),
			  *first = entry;

	while (entry < end && !atomic_load_explicit(&entry->inode, memory_order_relaxed))
		entry++;
	*slot += (uint32_t)(entry - first);
	return entry < end ? entry : NULL;
}

struct inode *inode_table_next(struct inode_table *table, uint32_t *slot)
{
	for (;;) {
		struct inode_slot *entry = slot_at(table, *slot);

		if (!entry) {
			/* Page n belongs to shard n % INODE_SHARDS, so a missing page ends only the
			 * slots of its shard. */
			uint32_t page = *slot / INODE_PAGE_SLOTS;

			if (page >= INODE_PAGES || page >= inode_table_pages(table))
				return NULL;
			*slot = (page + 1) * INODE_PAGE_SLOTS;
			continue;
		}
		entry = page_next_used(entry, slot);
		if (!entry)
			continue;
		/* An inode leaves its slot under this lock before it is freed. */
		scoped_lock(&table->shards[shard_of_slot((*slot)++)].lock);
		struct inode *inode = atomic_load(&entry->inode);

		if (inode && inode_ref_alive(inode))
			return inode;
	}
}

struct inode *inode_table_restore_at(struct inode_table *table, uint64_t ino)
{
	struct inode_slot *entry = slot_at(table, SLOT_OF(ino));

	return entry ? atomic_load(&entry->inode) : NULL;
}

/* Makes all pages of the slot's shard up to the slot's page. */
static int restore_pages(struct inode_table *table, uint32_t slot)
{
	struct inode_shard *shard = &table->shards[shard_of_slot(slot)];
	unsigned number = (unsigned)(shard - table->shards);

	if (slot / INODE_PAGE_SLOTS >= atomic_load(&table->journal->header->pages[number]))
		return -EUCLEAN;
	while (shard->next_page <= slot / INODE_PAGE_SLOTS) {
		int rc = shard_grow(table, shard);

		if (rc)
			return rc;
	}
	return 0;
}

int inode_table_restore(struct inode_table *table, struct inode *inode)
{
	uint32_t slot = SLOT_OF(inode->ino);
	int rc = slot && inode->ino >> 32 <= GENERATION_MAX ? restore_pages(table, slot) : -EUCLEAN;

	if (rc)
		return rc;
	struct inode_slot *entry = slot_at(table, slot);
	struct journal_slot *fields = journal_slot(table->journal, slot);

	inode->fields = &fields->inode;
	entry->generation = (uint32_t)(inode->ino >> 32);
	atomic_store(&entry->inode, inode);
	table->shards[shard_of_slot(slot)].count++;
	return 0;
}

void inode_table_restore_remove(struct inode_table *table, struct inode *inode)
{
	uint32_t slot = SLOT_OF(inode->ino);

	atomic_store(&slot_at(table, slot)->inode, NULL);
	table->shards[shard_of_slot(slot)].count--;
}

/* A free slot may have had any generation up to the highest, so all free slots continue above. */
int inode_table_restore_end(struct inode_table *table)
{
	uint32_t generation =
	    (atomic_load(&table->journal->header->generation) + 1) & GENERATION_MAX;

	generation_raise(&table->journal->header->generation, generation);
	for (unsigned i = 0; i < INODE_SHARDS; i++) {
		struct inode_shard *shard = &table->shards[i];
		uint32_t pages = atomic_load(&table->journal->header->pages[i]);

		while (shard->next_page < pages) {
			int rc = shard_grow(table, shard);

			if (rc)
				return rc;
		}
		shard->fresh_slot = shard->fresh_end = 0;
		for (uint32_t page = i; page < shard->next_page; page += INODE_SHARDS) {
			for (uint32_t n = page == 0 ? INODE_ROOT : 0; n < INODE_PAGE_SLOTS; n++) {
				uint32_t slot = page * INODE_PAGE_SLOTS + n;
				struct inode_slot *entry = slot_at(table, slot);

				if (atomic_load(&entry->inode))
					continue;
				entry->generation = generation;
				entry->next_free = shard->first_free;
				shard->first_free = slot;
			}
		}
	}
	return 0;
}

uint32_t inode_table_pages(struct inode_table *table)
{
	uint32_t pages = 0;

	for (unsigned i = 0; i < INODE_SHARDS; i++) {
		scoped_lock(&table->shards[i].lock);
		if (table->shards[i].next_page > pages)
			pages = table->shards[i].next_page;
	}
	return pages;
}

uint64_t inode_table_count(struct inode_table *table)
{
	uint64_t count = 0;

	for (unsigned i = 0; i < INODE_SHARDS; i++) {
		scoped_lock(&table->shards[i].lock);
		count += table->shards[i].count;
	}
	return count;
}
