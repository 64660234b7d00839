/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
#include "backend/blocks.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <utlist.h>

#include "backend/pool.h"
#include "common/cleanup.h"

#define LAST (BLOCKS_ORDERS - 1)

/* chunk->pool_private points here. */
struct shared {
	struct chunk *chunk;
	struct buddy buddy;
	/* In the list of its largest free block, or of drained chunks. */
	struct shared *prev, *next;
	bool listed;	     /* by the largest free block: not if full, lost, or drained */
	atomic_bool drained; /* written under lock */
};

void blocks_init(struct blocks *blocks)
{
	pthread_mutex_init(&blocks->lock, NULL);
}

void blocks_destroy(struct blocks *blocks)
{
	pthread_mutex_destroy(&blocks->lock);
}

static unsigned list_of(uint64_t power_of_two)
{
	return (unsigned)__builtin_ctzll(power_of_two) - BUDDY_MIN_ORDER;
}

static void list_insert(struct blocks *blocks, struct shared *shared)
{
	uint64_t largest = buddy_largest(&shared->buddy);

	if (!largest || atomic_load(&shared->chunk->lost) || atomic_load(&shared->drained))
		return;
	shared->listed = true;
	DL_PREPEND(blocks->by_largest[list_of(largest)], shared);
	blocks->occupied |= 1u << list_of(largest);
}

static void list_remove(struct blocks *blocks, struct shared *shared)
{
	uint64_t largest = buddy_largest(&shared->buddy);

	if (!shared->listed)
		return;
	shared->listed = false;
	DL_DELETE(blocks->by_largest[list_of(largest)], shared);
	if (!blocks->by_largest[list_of(largest)])
		blocks->occupied &= ~(1u << list_of(largest));
}

static struct shared *shared_new(struct blocks *blocks, struct chunk *chunk)
{
	struct shared *shared = calloc(1, sizeof(*shared));

	if (!shared)
		return NULL;
	shared->chunk = chunk;
	chunk->pool_private = shared;
	buddy_init(&shared->buddy);
	atomic_fetch_add(&blocks->chunks, 1);
	return shared;
}

/* lock held. The chunk is in no list by the largest free block. pool_private stays set: the stock
 * takes no such chunk. */
static struct chunk *shared_forget(struct blocks *blocks, struct shared *shared)
{
	struct chunk *chunk = shared->chunk;

	if (atomic_load(&shared->drained)) {
		DL_DELETE(blocks->drained, shared);
		atomic_fetch_sub(&blocks->n_drained, 1);
	}
	atomic_fetch_sub(&blocks->chunks, 1);
	free(shared);
	return chunk;
}

/* lock held; shared is in no list and has room. */
static void shared_cut(struct blocks *blocks, struct shared *shared, uint64_t bytes,
		       struct span *span)
{
	uint64_t offset = 0;
	int rc = buddy_alloc(&shared->buddy, bytes, &offset);

	assert(rc == 0);
	(void)rc;
	list_insert(blocks, shared);
	atomic_fetch_add(&blocks->used, bytes);
	*span = (struct span){.chunk = shared->chunk, .offset = offset, .bytes = bytes};
}

static uint64_t power_of_two_above(uint64_t bytes)
{
	return bytes <= 1 ? 1 : 1ULL << (64 - __builtin_clzll(bytes - 1));
}

/* From the chunks with the least sufficient room, so that other chunks can become empty. */
int blocks_cut(struct blocks *blocks, uint64_t bytes, struct span *span, struct chunk **lost)
{
	unsigned first_list = list_of(power_of_two_above(bytes));

	scoped_lock(&blocks->lock);
	unsigned fitting = blocks->occupied >> first_list << first_list;
	if (!fitting)
		return -ENOSPC;

	struct shared *shared = blocks->by_largest[__builtin_ctz(fitting)];
	list_remove(blocks, shared);
	if (atomic_load(&shared->chunk->lost)) {
		*lost = buddy_is_empty(&shared->buddy) ? shared_forget(blocks, shared) : NULL;
		return -EAGAIN;
	}
	shared_cut(blocks, shared, bytes, span);
	return 0;
}

int blocks_add(struct blocks *blocks, struct chunk *chunk, uint64_t bytes, struct span *span)
{
	struct shared *shared = shared_new(blocks, chunk);

	if (!shared)
		return -ENOMEM;
	scoped_lock(&blocks->lock);
	shared_cut(blocks, shared, bytes, span);
	return 0;
}

struct chunk *blocks_free(struct blocks *blocks, const struct span *span)
{
	struct shared *shared = span->chunk->pool_private;

	scoped_lock(&blocks->lock);
	list_remove(blocks, shared);
	buddy_free(&shared->buddy, span->offset, span->bytes);
	atomic_fetch_sub(&blocks->used, span->bytes);
	if (buddy_is_empty(&shared->buddy) &&
	    (atomic_load(&shared->drained) || blocks->by_largest[LAST] ||
	     atomic_load(&shared->chunk->lost)))
		return shared_forget(blocks, shared);
	list_insert(blocks, shared);
	return NULL;
}

struct chunk *blocks_take_spare(struct blocks *blocks)
{
	scoped_lock(&blocks->lock);
	struct shared *spare = blocks->by_largest[LAST];

	if (!spare)
		return NULL;
	list_remove(blocks, spare);
	return shared_forget(blocks, spare);
}

/* Counts the chunks with room by their free units of the smallest block. */
#define UNITS ((unsigned)(BUDDY_BYTES >> BUDDY_MIN_ORDER))

static unsigned units_free(const struct shared *shared)
{
	return (unsigned)(shared->buddy.free_bytes >> BUDDY_MIN_ORDER);
}

/* lock held. Of the chunks with more than min_units free units all are to be drained, and of the
 * chunks with exactly min_units the returned number. */
static uint64_t drain_choose(const struct blocks *blocks, uint64_t n_kept, unsigned *min_units)
{
	uint32_t n_with[UNITS + 1] = {0};
	struct shared *shared;

	for (unsigned i = 0; i < BLOCKS_ORDERS; i++)
		DL_FOREACH (blocks->by_largest[i], shared)
			n_with[units_free(shared)]++;
	uint64_t filled = atomic_load(&blocks->chunks) - n_with[UNITS];
	uint64_t n_left = filled > n_kept ? filled - n_kept : 0;

	for (*min_units = UNITS - 1; *min_units && n_with[*min_units] <= n_left; --*min_units)
		n_left -= n_with[*min_units];
	return *min_units ? n_left : 0;
}

uint64_t blocks_drain(struct blocks *blocks, uint64_t n_kept)
{
	struct shared *shared, *next;
	unsigned min_units;

	scoped_lock(&blocks->lock);
	uint64_t n_left = drain_choose(blocks, n_kept, &min_units);

	for (unsigned i = 0; i < LAST; i++)
		DL_FOREACH_SAFE(blocks->by_largest[i], shared, next)
		{
			unsigned units = units_free(shared);

			if (units < min_units || (units == min_units && !n_left) ||
			    atomic_load(&shared->chunk->lost))
				continue;
			n_left -= units == min_units;
			list_remove(blocks, shared);
			atomic_store(&shared->drained, true);
			DL_PREPEND(blocks->drained, shared);
			atomic_fetch_add(&blocks->n_drained, 1);
		}
	return atomic_load(&blocks->n_drained);
}

bool blocks_drain_end(struct blocks *blocks)
{
	struct shared *shared, *next;

	scoped_lock(&blocks->lock);
	bool any = blocks->drained;

	DL_FOREACH_SAFE(blocks->drained, shared, next)
	{
		DL_DELETE(blocks->drained, shared);
		atomic_store(&shared->drained, false);
		list_insert(blocks, shared);
	}
	atomic_store(&blocks->n_drained, 0);
	return any;
}

bool chunk_is_drained(const struct chunk *chunk)
{
	const struct shared *shared = chunk->pool_private;

	return shared && atomic_load_explicit(&shared->drained, memory_order_relaxed);
}

int blocks_adopt(struct blocks *blocks, struct chunk *chunk)
{
	struct shared *shared = shared_new(blocks, chunk);

	if (!shared)
		return -ENOMEM;
	scoped_lock(&blocks->lock);
	list_insert(blocks, shared);
	return 0;
}

int blocks_adopt_block(struct blocks *blocks, const struct span *span)
{
	struct shared *shared = span->chunk->pool_private;

	scoped_lock(&blocks->lock);
	list_remove(blocks, shared);
	int rc = buddy_alloc_at(&shared->buddy, span->offset, span->bytes);

	list_insert(blocks, shared);
	if (rc == 0)
		atomic_fetch_add(&blocks->used, span->bytes);
	return rc;
}
