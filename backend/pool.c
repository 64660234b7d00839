/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
#include "backend/pool.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <utlist.h>

#include "backend/buddy.h"
#include "backend/copy.h"
#include "backend/disk.h"
#include "backend/stock.h"
#include "common/cleanup.h"
#include "common/log.h"

#define ORDERS (BUDDY_MAX_ORDER - BUDDY_MIN_ORDER + 1)

/* A chunk from which blocks are cut; chunk->pool_private points here. */
struct shared {
	struct chunk *chunk;
	struct buddy buddy;
	struct shared *prev, *next; /* in the list of its largest free block */
	bool listed;		    /* false when the chunk is full, or its memory is lost */
};

struct pool {
	struct device *device;
	enum memory_place place;
	struct pool_budget *budget; /* or NULL */
	struct stock *stock;	    /* or NULL */
	struct pool_watch watch;
	_Atomic uint64_t limit_size, limit_reserve;
	_Atomic uint64_t chunk_bytes; /* counted before the driver is asked, so that concurrent
					 threads keep to the limit */
	_Atomic uint64_t span_bytes, chunks, shared_chunks, allocations;

	/* Lock order: grow, lock. Neither is held while device memory is zeroed. */
	pthread_mutex_t grow; /* held to ask the driver for a chunk: so the reserve is exact, and a
				 burst of small files shares the first new chunk */
	pthread_mutex_t lock; /* the lists and all buddies; never held during a driver call */
	struct shared
	    *by_largest[ORDERS]; /* the last list has at most one empty chunk, the spare */
	unsigned occupied;	 /* a bit per list that is not empty */

	atomic_uint giving; /* announced frees that are not done yet; written under lock */
	pthread_cond_t given;
};

static unsigned list_of(uint64_t power_of_two)
{
	return (unsigned)__builtin_ctzll(power_of_two) - BUDDY_MIN_ORDER;
}

static void list_insert(struct pool *pool, struct shared *shared)
{
	uint64_t largest = buddy_largest(&shared->buddy);

	if (!largest || atomic_load(&shared->chunk->lost))
		return;
	shared->listed = true;
	DL_PREPEND(pool->by_largest[list_of(largest)], shared);
	pool->occupied |= 1u << list_of(largest);
}

static void list_remove(struct pool *pool, struct shared *shared)
{
	uint64_t largest = buddy_largest(&shared->buddy);

	if (!shared->listed)
		return;
	shared->listed = false;
	DL_DELETE(pool->by_largest[list_of(largest)], shared);
	if (!pool->by_largest[list_of(largest)])
		pool->occupied &= ~(1u << list_of(largest));
}

static void bytes_return(struct pool *pool, uint64_t bytes)
{
	atomic_fetch_sub(&pool->chunk_bytes, bytes);
	if (pool->budget)
		atomic_fetch_sub(&pool->budget->held, bytes);
}

static void chunk_release(struct pool *pool, struct chunk *chunk)
{
	uint64_t bytes = chunk->bytes;

	if (pool->watch.gone)
		pool->watch.gone(pool->watch.of, chunk);
	if (!pool->stock || !stock_put(pool->stock, chunk))
		chunk_free(chunk);
	atomic_fetch_sub(&pool->chunks, 1);
	bytes_return(pool, bytes);
}

static void shared_release(struct pool *pool, struct shared *shared)
{
	if (!shared)
		return;
	chunk_release(pool, shared->chunk);
	atomic_fetch_sub(&pool->shared_chunks, 1);
	free(shared);
}

static bool spare_release(struct pool *pool)
{
	struct shared *spare;
	{
		scoped_lock(&pool->lock);
		spare = pool->by_largest[ORDERS - 1];
		if (spare)
			list_remove(pool, spare);
	}
	shared_release(pool, spare);
	return spare;
}

static int counter_raise(_Atomic uint64_t *counter, uint64_t bytes, uint64_t limit)
{
	uint64_t held = atomic_load(counter);

	do {
		if (held > limit || bytes > limit - held)
			return -ENOSPC;
	} while (!atomic_compare_exchange_weak(counter, &held, held + bytes));
	return 0;
}

static int bytes_reserve(struct pool *pool, uint64_t bytes)
{
	struct pool_budget *budget = pool->budget;
	int rc = counter_raise(&pool->chunk_bytes, bytes, atomic_load(&pool->limit_size));

	if (rc < 0 || !budget)
		return rc;
	rc = counter_raise(&budget->held, bytes, budget->size);
	if (rc < 0)
		atomic_fetch_sub(&pool->chunk_bytes, bytes);
	return rc;
}

/* grow held. */
static int reserve_check(struct pool *pool, uint64_t bytes)
{
	uint64_t reserve = atomic_load(&pool->limit_reserve);
	struct device_memory memory;

	if (!reserve || pool->place != PLACE_GPU)
		return 0;
	int rc = device_memory(pool->device, &memory);
	if (rc < 0)
		return rc;
	return memory.free < reserve || memory.free - reserve < bytes ? -ENOSPC : 0;
}

static int chunk_make(struct pool *pool, uint64_t bytes, struct chunk **chunk)
{
	int rc = 0;

	*chunk = pool->stock ? stock_take(pool->stock, bytes) : NULL;
	if (!*chunk)
		rc = chunk_new(pool->device, pool->place, bytes, chunk);
	if (rc < 0 || !pool->watch.made)
		return rc;
	rc = pool->watch.made(pool->watch.of, *chunk);
	if (rc < 0)
		chunk_free(*chunk);
	return rc;
}

/* grow held. */
static int chunk_make_within_reserve(struct pool *pool, uint64_t bytes, struct chunk **chunk)
{
	int rc = bytes_reserve(pool, bytes);

	if (rc < 0)
		return rc;
	rc = reserve_check(pool, bytes);
	if (rc == 0)
		rc = chunk_make(pool, bytes, chunk);
	if (rc < 0) {
		bytes_return(pool, bytes);
		return rc;
	}
	atomic_fetch_add(&pool->chunks, 1);
	return 0;
}

/* Whether there was a free to wait for. */
static bool frees_wait(struct pool *pool)
{
	if (!atomic_load(&pool->giving))
		return false;
	scoped_lock(&pool->lock);
	while (atomic_load(&pool->giving))
		pthread_cond_wait(&pool->given, &pool->lock);
	return true;
}

void pool_free_announce(struct pool *pool)
{
	scoped_lock(&pool->lock);
	atomic_fetch_add(&pool->giving, 1);
}

void pool_free_announced(struct pool *pool)
{
	scoped_lock(&pool->lock);
	if (atomic_fetch_sub(&pool->giving, 1) == 1)
		pthread_cond_broadcast(&pool->given);
}

/* grow held. */
static int chunk_alloc(struct pool *pool, uint64_t bytes, struct chunk **chunk)
{
	int rc = chunk_make_within_reserve(pool, bytes, chunk);

	if (rc == -ENOSPC && frees_wait(pool))
		rc = chunk_make_within_reserve(pool, bytes, chunk);
	if (rc == -ENOSPC && spare_release(pool))
		rc = chunk_make_within_reserve(pool, bytes, chunk);
	return rc;
}

static int whole_alloc(struct pool *pool, uint64_t bytes, struct span *span)
{
	struct chunk *chunk;

	scoped_lock(&pool->grow);
	int rc = chunk_alloc(pool, bytes, &chunk);
	if (rc < 0)
		return rc;
	*span = (struct span){.chunk = chunk, .offset = 0, .bytes = bytes};
	return 0;
}

/* lock held; shared is in no list and has room. */
static void shared_cut(struct pool *pool, struct shared *shared, uint64_t bytes, struct span *span)
{
	uint64_t offset = 0;
	int rc = buddy_alloc(&shared->buddy, bytes, &offset);

	assert(rc == 0);
	(void)rc;
	list_insert(pool, shared);
	*span = (struct span){.chunk = shared->chunk, .offset = offset, .bytes = bytes};
}

static uint64_t power_of_two_above(uint64_t bytes)
{
	return bytes <= 1 ? 1 : 1ULL << (64 - __builtin_clzll(bytes - 1));
}

/* From the chunks with the least sufficient room, so that other chunks can become empty. *lost: a
 * lost chunk, unfit for more blocks, to be freed if empty. */
static int block_cut(struct pool *pool, uint64_t bytes, struct span *span, struct shared **lost)
{
	unsigned least = list_of(power_of_two_above(bytes));

	scoped_lock(&pool->lock);
	unsigned fitting = pool->occupied >> least << least;
	if (!fitting)
		return -ENOSPC;

	struct shared *shared = pool->by_largest[__builtin_ctz(fitting)];
	list_remove(pool, shared);
	if (atomic_load(&shared->chunk->lost)) {
		*lost = buddy_is_empty(&shared->buddy) ? shared : NULL;
		return -EAGAIN;
	}
	shared_cut(pool, shared, bytes, span);
	return 0;
}

static int block_alloc_free(struct pool *pool, uint64_t bytes, struct span *span)
{
	struct shared *lost;
	int rc;

	while ((rc = block_cut(pool, bytes, span, &lost)) == -EAGAIN)
		shared_release(pool, lost);
	return rc;
}

/* grow held. */
static int shared_add(struct pool *pool, uint64_t bytes, struct span *span)
{
	struct shared *shared = calloc(1, sizeof(*shared));

	if (!shared)
		return -ENOMEM;
	int rc = chunk_alloc(pool, BUDDY_BYTES, &shared->chunk);
	if (rc < 0) {
		free(shared);
		return rc;
	}
	shared->chunk->pool_private = shared;
	buddy_init(&shared->buddy);
	atomic_fetch_add(&pool->shared_chunks, 1);

	scoped_lock(&pool->lock);
	shared_cut(pool, shared, bytes, span);
	return 0;
}

static int block_alloc(struct pool *pool, uint64_t bytes, struct span *span)
{
	if (block_alloc_free(pool, bytes, span) == 0)
		return 0;
	scoped_lock(&pool->grow);
	if (block_alloc_free(pool, bytes, span) ==
	    0) /* another thread added a chunk while this thread waited */
		return 0;
	return shared_add(pool, bytes, span);
}

static int span_zero(struct copier *copier, const struct span *span)
{
	int rc = copy_zero(copier, span, 0, span->bytes);
	int waited = copier_wait(copier);

	return rc < 0 ? rc : waited;
}

static bool is_size(uint64_t bytes)
{
	return bytes && bytes % (bytes < CHUNK_ALIGN ? POOL_BLOCK_MIN : CHUNK_ALIGN) == 0;
}

int pool_alloc(struct pool *pool, uint64_t bytes, enum pool_fill fill, struct copier *copier,
	       struct span *span)
{
	struct span taken;
	int rc;

	assert(is_size(bytes));
	if (!is_size(bytes))
		return -EINVAL;
	if (atomic_load(&pool->device->failed))
		return -EIO;
	rc = bytes < CHUNK_ALIGN ? block_alloc(pool, bytes, &taken)
				 : whole_alloc(pool, bytes, &taken);
	if (rc < 0)
		return rc;
	atomic_fetch_add(&pool->span_bytes, bytes);
	atomic_fetch_add(&pool->allocations, 1);

	if (fill == POOL_ZEROED)
		rc = span_zero(copier, &taken);
	if (rc < 0) {
		pool_free_span(pool, &taken);
		return rc;
	}
	*span = taken;
	return 0;
}

/* The chunk if it is empty now and not to be kept as a spare. */
static struct shared *block_free(struct pool *pool, const struct span *span)
{
	struct shared *shared = span->chunk->pool_private;

	scoped_lock(&pool->lock);
	list_remove(pool, shared);
	buddy_free(&shared->buddy, span->offset, span->bytes);
	if (buddy_is_empty(&shared->buddy) &&
	    (pool->by_largest[ORDERS - 1] || atomic_load(&shared->chunk->lost)))
		return shared;
	list_insert(pool, shared);
	return NULL;
}

void pool_free_span(struct pool *pool, const struct span *span)
{
	assert(span->chunk->device == pool->device && span->chunk->place == pool->place);
	atomic_fetch_sub(&pool->span_bytes, span->bytes);
	if (!span_owns_chunk(span)) {
		shared_release(pool, block_free(pool, span));
		return;
	}
	assert(span->offset == 0 && span->bytes == span->chunk->bytes);
	chunk_release(pool, span->chunk);
}

int pool_set_budget(struct pool *pool, struct pool_budget *budget, uint64_t chunk_bytes)
{
	pool->budget = budget;
	if (!chunk_bytes)
		return 0;
	return stock_new(pool->device, chunk_bytes, budget, &pool->stock);
}

struct stock *pool_stock(const struct pool *pool)
{
	return pool->stock;
}

void pool_set_watch(struct pool *pool, const struct pool_watch *watch)
{
	pool->watch = *watch;
}

int pool_adopt(struct pool *pool, struct chunk *chunk, enum pool_adopted kind)
{
	if (chunk->device != pool->device || chunk->place != pool->place ||
	    (kind == POOL_SHARED && chunk->bytes != BUDDY_BYTES))
		return -EINVAL;
	if (kind == POOL_SHARED) {
		struct shared *shared = calloc(1, sizeof(*shared));

		if (!shared)
			return -ENOMEM;
		shared->chunk = chunk;
		chunk->pool_private = shared;
		buddy_init(&shared->buddy);
		list_insert(pool, shared);
		atomic_fetch_add(&pool->shared_chunks, 1);
	} else {
		atomic_fetch_add(&pool->span_bytes, chunk->bytes);
		atomic_fetch_add(&pool->allocations, 1);
	}
	atomic_fetch_add(&pool->chunk_bytes, chunk->bytes);
	if (pool->budget)
		atomic_fetch_add(&pool->budget->held, chunk->bytes);
	atomic_fetch_add(&pool->chunks, 1);
	return 0;
}

int pool_adopt_block(struct pool *pool, const struct span *span)
{
	struct shared *shared = span->chunk->pool_private;

	if (!shared || !is_size(span->bytes) || span->bytes >= BUDDY_BYTES ||
	    span->offset % POOL_BLOCK_MIN || span->offset > BUDDY_BYTES - span->bytes)
		return -EINVAL;
	list_remove(pool, shared);
	int rc = buddy_alloc_at(&shared->buddy, span->offset, span->bytes);

	list_insert(pool, shared);
	if (rc < 0)
		return rc;
	atomic_fetch_add(&pool->span_bytes, span->bytes);
	atomic_fetch_add(&pool->allocations, 1);
	return 0;
}

bool span_owns_chunk(const struct span *span)
{
	return !span->chunk->pool_private;
}

int pool_new(struct device *device, enum memory_place place, const struct pool_limits *limits,
	     struct pool **pool)
{
	struct pool *made = calloc(1, sizeof(*made));

	if (!made)
		return -ENOMEM;
	made->device = device;
	made->place = place;
	pool_set_limits(made, limits);
	pthread_mutex_init(&made->grow, NULL);
	pthread_mutex_init(&made->lock, NULL);
	pthread_cond_init(&made->given, NULL);
	*pool = made;
	return 0;
}

void pool_free(struct pool *pool)
{
	if (!pool)
		return;
	while (spare_release(pool))
		;
	stock_free(pool->stock);
	assert(atomic_load(&pool->chunk_bytes) == 0);
	pthread_cond_destroy(&pool->given);
	pthread_mutex_destroy(&pool->lock);
	pthread_mutex_destroy(&pool->grow);
	free(pool);
}

uint64_t pool_allocations(const struct pool *pool)
{
	return atomic_load(&pool->allocations);
}

bool pool_is_unused(const struct pool *pool)
{
	return atomic_load(&pool->span_bytes) == 0;
}

void pool_trim(struct pool *pool)
{
	if (!pool_is_unused(pool))
		return;
	spare_release(pool);
	if (pool->stock)
		stock_drop(pool->stock);
}

void pool_set_limits(struct pool *pool, const struct pool_limits *limits)
{
	atomic_store(&pool->limit_size, limits->size);
	atomic_store(&pool->limit_reserve, limits->reserve);
}

struct pool_limits pool_limits(struct pool *pool)
{
	return (struct pool_limits){
	    .size = atomic_load(&pool->limit_size),
	    .reserve = atomic_load(&pool->limit_reserve),
	};
}

struct pool_usage pool_usage(struct pool *pool)
{
	frees_wait(pool);
	return (struct pool_usage){
	    .chunk_bytes = atomic_load(&pool->chunk_bytes),
	    .span_bytes = atomic_load(&pool->span_bytes),
	    .chunks = atomic_load(&pool->chunks),
	    .shared_chunks = atomic_load(&pool->shared_chunks),
	};
}

static uint64_t subtract_saturated(uint64_t a, uint64_t b)
{
	return a > b ? a - b : 0;
}

/* System memory is bounded by the budget alone. */
static int place_memory(const struct pool *pool, struct device_memory *memory)
{
	if (pool->place == PLACE_GPU)
		return device_memory(pool->device, memory);
	if (pool->place == PLACE_DISK && pool->device->backend->disk_dir >= 0)
		return disk_dir_memory(pool->device->backend, memory);
	*memory = (struct device_memory){.free = UINT64_MAX};
	return 0;
}

int pool_available(struct pool *pool, uint64_t *bytes)
{
	struct pool_limits limits = pool_limits(pool);
	struct pool_usage usage =
	    pool_usage(pool); /* before asking the driver, which may take long */
	struct device_memory memory;
	int rc = place_memory(pool, &memory);

	if (rc < 0)
		return rc;
	uint64_t driver = subtract_saturated(memory.free, limits.reserve);
	uint64_t limit = subtract_saturated(limits.size, usage.chunk_bytes);
	uint64_t more = driver < limit ? driver : limit;

	if (pool->budget) {
		uint64_t left =
		    subtract_saturated(pool->budget->size, atomic_load(&pool->budget->held));

		more = more < left ? more : left;
	}

	*bytes = more + subtract_saturated(usage.chunk_bytes, usage.span_bytes);
	return 0;
}
