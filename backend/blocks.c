/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
#include "backend/blocks.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <utlist.h>

#include "common/cleanup.h"

#define LAST (BLOCKS_ORDERS - 1)

/* chunk->pool_private points here. */
struct shared {
	struct chunk *chunk;
	struct buddy buddy;
	struct shared *prev, *next; /* in the list of its largest free block */
	bool listed;		    /* false when the chunk is full, or its memory is lost */
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

	if (!largest || atomic_load(&shared->chunk->lost))
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
	struct shared *made = calloc(1, sizeof(*made));

	if (!made)
		return NULL;
	made->chunk = chunk;
	chunk->pool_private = made;
	buddy_init(&made->buddy);
	atomic_fetch_add(&blocks->chunks, 1);
	return made;
}

/* lock held; shared is in no list. pool_private stays set: the stock takes no such chunk. */
static struct chunk *shared_forget(struct blocks *blocks, struct shared *shared)
{
	struct chunk *chunk = shared->chunk;

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
	unsigned least = list_of(power_of_two_above(bytes));

	scoped_lock(&blocks->lock);
	unsigned fitting = blocks->occupied >> least << least;
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
	    (blocks->by_largest[LAST] || atomic_load(&shared->chunk->lost)))
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
