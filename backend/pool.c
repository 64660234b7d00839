/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
#include "backend/pool.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <unistd.h>

#include "backend/blocks.h"
#include "backend/copy.h"
#include "backend/disk.h"
#include "backend/stock.h"
#include "common/cleanup.h"
#include "common/log.h"

/* What an allocation may take: see pool_alloc_exchange. */
enum pool_right { POOL_ORDINARY, POOL_EXCHANGE };

struct pool {
	struct device *device;
	enum memory_place place;
	struct pool_budget *budget;		   /* or NULL */
	struct stock *stock;			   /* or NULL */
	const struct pool_budget *lenders[PLACES]; /* or NULL */
	_Atomic uint64_t owed;			   /* pool_owe */
	struct pool_watch watch;
	_Atomic uint64_t limit_size, limit_reserve;
	_Atomic uint64_t chunk_bytes; /* counted before the driver is asked, so that concurrent
					 threads keep to the limit */
	_Atomic uint64_t span_bytes, held_bytes, chunks, allocations;

	/* Lock order: grow, lock or blocks.lock. None is held while device memory is zeroed. */
	pthread_mutex_t grow; /* held to ask the driver for a chunk: so the reserve is exact, and a
				 burst of small files shares the first new chunk */
	struct blocks blocks;

	pthread_mutex_t lock;
	atomic_uint frees_pending; /* announced frees that are not done yet; written under lock */
	pthread_cond_t frees_done;
};

static void bytes_return(struct pool *pool, uint64_t bytes)
{
	atomic_fetch_sub(&pool->chunk_bytes, bytes);
	if (pool->budget)
		atomic_fetch_sub(&pool->budget->held, bytes);
}

static void chunk_release(struct pool *pool, struct chunk *chunk)
{
	uint64_t bytes = chunk->bytes;
	bool held = atomic_load(&chunk->handed_out) == CHUNK_HELD;

	if (pool->watch.on_free)
		pool->watch.on_free(pool->watch.context, chunk);
	if (!pool->stock || !stock_put(pool->stock, chunk))
		chunk_free(chunk);
	atomic_fetch_sub(&pool->chunks, 1);
	if (held)
		atomic_fetch_add(&pool->held_bytes, bytes);
	else
		bytes_return(pool, bytes);
}

void pool_held_end(struct pool *pool, uint64_t bytes)
{
	atomic_fetch_sub(&pool->held_bytes, bytes);
	bytes_return(pool, bytes);
}

static void bytes_add(struct pool *pool, uint64_t bytes)
{
	atomic_fetch_add(&pool->chunk_bytes, bytes);
	if (pool->budget)
		atomic_fetch_add(&pool->budget->held, bytes);
}

void pool_held_restore(struct pool *pool, uint64_t bytes)
{
	bytes_add(pool, bytes);
	atomic_fetch_add(&pool->held_bytes, bytes);
}

static bool spare_release(struct pool *pool)
{
	struct chunk *spare = blocks_take_spare(&pool->blocks);

	if (spare)
		chunk_release(pool, spare);
	return spare;
}

static uint64_t subtract_saturated(uint64_t a, uint64_t b)
{
	return a > b ? a - b : 0;
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

uint64_t budget_overdraft(const struct pool_budget *budget)
{
	uint64_t overdraft =
	    subtract_saturated(atomic_load(&budget->held), budget->size - budget->spare);

	return overdraft < budget->spare ? overdraft : budget->spare;
}

uint64_t pool_lent(const struct pool *pool)
{
	uint64_t bytes = 0;

	for (unsigned place = 0; place < PLACES; place++)
		bytes += pool->lenders[place] ? budget_overdraft(pool->lenders[place]) : 0;
	return bytes;
}

uint64_t pool_owed(const struct pool *pool)
{
	uint64_t owed = atomic_load_explicit(&pool->owed, memory_order_relaxed);
	uint64_t lent = owed ? pool_lent(pool) : 0;

	return lent < owed ? lent : owed;
}

void pool_owe(struct pool *pool, uint64_t bytes)
{
	atomic_store(&pool->owed, bytes);
}

void pool_set_lenders(struct pool *pool, const struct pool_budget *host,
		      const struct pool_budget *disk)
{
	pool->lenders[PLACE_HOST] = host;
	pool->lenders[PLACE_DISK] = disk;
}

static int bytes_reserve(struct pool *pool, uint64_t bytes, enum pool_right right)
{
	struct pool_budget *budget = pool->budget;
	uint64_t owed = right == POOL_EXCHANGE ? 0 : pool_owed(pool);
	uint64_t spare = right == POOL_EXCHANGE || !budget ? 0 : budget->spare;
	int rc = counter_raise(&pool->chunk_bytes, bytes,
			       subtract_saturated(atomic_load(&pool->limit_size), owed));

	if (rc < 0 || !budget)
		return rc;
	rc = counter_raise(&budget->held, bytes, budget->size - spare);
	if (rc < 0)
		atomic_fetch_sub(&pool->chunk_bytes, bytes);
	return rc;
}

/* grow held. */
static int reserve_check(struct pool *pool, uint64_t bytes, enum pool_right right)
{
	uint64_t reserve = atomic_load(&pool->limit_reserve);
	struct device_memory memory;

	reserve += right == POOL_EXCHANGE ? 0 : pool_owed(pool);
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
	if (rc < 0 || !pool->watch.on_create)
		return rc;
	rc = pool->watch.on_create(pool->watch.context, *chunk);
	if (rc < 0)
		chunk_free(*chunk);
	return rc;
}

/* grow held. */
static int chunk_make_within_reserve(struct pool *pool, uint64_t bytes, enum pool_right right,
				     struct chunk **chunk)
{
	int rc = bytes_reserve(pool, bytes, right);

	if (rc < 0)
		return rc;
	rc = reserve_check(pool, bytes, right);
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
	if (!atomic_load(&pool->frees_pending))
		return false;
	scoped_lock(&pool->lock);
	while (atomic_load(&pool->frees_pending))
		pthread_cond_wait(&pool->frees_done, &pool->lock);
	return true;
}

void pool_free_announce(struct pool *pool)
{
	scoped_lock(&pool->lock);
	atomic_fetch_add(&pool->frees_pending, 1);
}

void pool_free_announced(struct pool *pool)
{
	scoped_lock(&pool->lock);
	if (atomic_fetch_sub(&pool->frees_pending, 1) == 1)
		pthread_cond_broadcast(&pool->frees_done);
}

/* grow held. */
static int chunk_alloc(struct pool *pool, uint64_t bytes, enum pool_right right,
		       struct chunk **chunk)
{
	int rc = chunk_make_within_reserve(pool, bytes, right, chunk);

	if (rc == -ENOSPC && frees_wait(pool))
		rc = chunk_make_within_reserve(pool, bytes, right, chunk);
	if (rc == -ENOSPC && spare_release(pool))
		rc = chunk_make_within_reserve(pool, bytes, right, chunk);
	return rc;
}

static int whole_alloc(struct pool *pool, uint64_t bytes, enum pool_right right, struct span *span)
{
	struct chunk *chunk;

	scoped_lock(&pool->grow);
	int rc = chunk_alloc(pool, bytes, right, &chunk);
	if (rc < 0)
		return rc;
	*span = (struct span){.chunk = chunk, .offset = 0, .bytes = bytes};
	return 0;
}

static int block_alloc_free(struct pool *pool, uint64_t bytes, struct span *span)
{
	struct chunk *lost;
	int rc;

	while ((rc = blocks_cut(&pool->blocks, bytes, span, &lost)) == -EAGAIN)
		if (lost)
			chunk_release(pool, lost);
	return rc;
}

/* grow held. */
static int shared_add(struct pool *pool, uint64_t bytes, enum pool_right right, struct span *span)
{
	struct chunk *chunk = NULL;
	int rc = chunk_alloc(pool, BUDDY_BYTES, right, &chunk);

	if (rc < 0)
		return rc;
	rc = blocks_add(&pool->blocks, chunk, bytes, span);
	if (rc < 0)
		chunk_release(pool, chunk);
	return rc;
}

static int block_alloc(struct pool *pool, uint64_t bytes, enum pool_right right, struct span *span)
{
	if (block_alloc_free(pool, bytes, span) == 0)
		return 0;
	scoped_lock(&pool->grow);
	if (block_alloc_free(pool, bytes, span) ==
	    0) /* another thread added a chunk while this thread waited */
		return 0;
	int rc = shared_add(pool, bytes, right, span);

	if (rc == -ENOSPC && blocks_drain_end(&pool->blocks))
		rc = block_alloc_free(pool, bytes, span);
	return rc;
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

static int span_alloc(struct pool *pool, uint64_t bytes, enum pool_fill fill, enum pool_right right,
		      struct copier *copier, struct span *span)
{
	struct span new_span;
	int rc;

	assert(is_size(bytes));
	if (!is_size(bytes))
		return -EINVAL;
	if (atomic_load(&pool->device->failed))
		return -EIO;
	rc = bytes < CHUNK_ALIGN ? block_alloc(pool, bytes, right, &new_span)
				 : whole_alloc(pool, bytes, right, &new_span);
	if (rc < 0)
		return rc;
	atomic_fetch_add(&pool->span_bytes, bytes);
	atomic_fetch_add(&pool->allocations, 1);

	if (fill == POOL_ZEROED)
		rc = span_zero(copier, &new_span);
	if (rc < 0) {
		pool_free_span(pool, &new_span);
		return rc;
	}
	*span = new_span;
	return 0;
}

int pool_alloc(struct pool *pool, uint64_t bytes, enum pool_fill fill, struct copier *copier,
	       struct span *span)
{
	return span_alloc(pool, bytes, fill, POOL_ORDINARY, copier, span);
}

int pool_alloc_exchange(struct pool *pool, uint64_t bytes, enum pool_fill fill,
			struct copier *copier, struct span *span)
{
	return span_alloc(pool, bytes, fill, POOL_EXCHANGE, copier, span);
}

void pool_free_span(struct pool *pool, const struct span *span)
{
	assert(span->chunk->device == pool->device && span->chunk->place == pool->place);
	atomic_fetch_sub(&pool->span_bytes, span_taken(span));
	if (!span_owns_chunk(span)) {
		struct chunk *empty = blocks_free(&pool->blocks, span);

		if (empty)
			chunk_release(pool, empty);
		return;
	}
	assert(span->chunk->foreign || (span->offset == 0 && span->bytes == span->chunk->bytes));
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
		int rc = blocks_adopt(&pool->blocks, chunk);

		if (rc < 0)
			return rc;
	} else {
		atomic_fetch_add(&pool->span_bytes, chunk->bytes);
		atomic_fetch_add(&pool->allocations, 1);
	}
	bytes_add(pool, chunk->bytes);
	atomic_fetch_add(&pool->chunks, 1);
	return 0;
}

/* With an id, as each chunk of a watched pool. */
static int chunk_import_watched(struct pool *pool, uint64_t bytes, int *fd,
				enum chunk_origin origin, struct chunk **chunk)
{
	int rc = chunk_import_foreign(pool->device, bytes, *fd, origin, chunk);

	if (rc < 0)
		return rc;
	*fd = -1;
	rc = pool->watch.on_create ? pool->watch.on_create(pool->watch.context, *chunk) : 0;
	if (rc < 0)
		chunk_free(*chunk);
	return rc;
}

int pool_import_foreign(struct pool *pool, uint64_t bytes, int *fd, enum chunk_origin origin,
			struct span *span)
{
	struct chunk *chunk;
	int rc = bytes_reserve(pool, bytes, POOL_ORDINARY);

	if (rc < 0)
		return rc;
	rc = chunk_import_watched(pool, bytes, fd, origin, &chunk);
	if (rc < 0) {
		bytes_return(pool, bytes);
		return rc;
	}
	atomic_fetch_add(&pool->span_bytes, bytes);
	atomic_fetch_add(&pool->allocations, 1);
	atomic_fetch_add(&pool->chunks, 1);
	*span = (struct span){chunk, 0, bytes};
	return 0;
}

int pool_adopt_block(struct pool *pool, const struct span *span)
{
	if (span_owns_chunk(span) || !is_size(span->bytes) || span->bytes >= BUDDY_BYTES ||
	    span->offset % POOL_BLOCK_MIN || span->offset > BUDDY_BYTES - span->bytes)
		return -EINVAL;
	int rc = blocks_adopt_block(&pool->blocks, span);

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

uint64_t pool_drain(struct pool *pool, uint64_t bytes)
{
	return blocks_drain(&pool->blocks, (bytes + BUDDY_BYTES - 1) / BUDDY_BYTES);
}

bool pool_drains(const struct pool *pool)
{
	return atomic_load_explicit(&pool->blocks.n_drained, memory_order_relaxed);
}

void pool_drain_end(struct pool *pool)
{
	blocks_drain_end(&pool->blocks);
}

uint64_t pool_tight_bytes(uint64_t bytes)
{
	uint64_t block = 1ULL << (64 - __builtin_clzll(bytes - 1));

	return bytes >= CHUNK_ALIGN || block - bytes <= bytes / 8 ? bytes : block / 2;
}

int pool_new(struct device *device, enum memory_place place, const struct pool_limits *limits,
	     struct pool **pool)
{
	struct pool *new_pool = calloc(1, sizeof(*new_pool));

	if (!new_pool)
		return -ENOMEM;
	new_pool->device = device;
	new_pool->place = place;
	pool_set_limits(new_pool, limits);
	pthread_mutex_init(&new_pool->grow, NULL);
	pthread_mutex_init(&new_pool->lock, NULL);
	blocks_init(&new_pool->blocks);
	pthread_cond_init(&new_pool->frees_done, NULL);
	*pool = new_pool;
	return 0;
}

void pool_free(struct pool *pool)
{
	if (!pool)
		return;
	while (spare_release(pool))
		;
	stock_free(pool->stock);
	assert(atomic_load(&pool->chunk_bytes) == atomic_load(&pool->held_bytes));
	pthread_cond_destroy(&pool->frees_done);
	blocks_destroy(&pool->blocks);
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
	uint64_t limit = atomic_load(&pool->limit_size),
		 size = pool->budget ? pool->budget->size : pool->device->total;

	frees_wait(pool);
	uint64_t shared_chunks = atomic_load(&pool->blocks.chunks);

	return (struct pool_usage){
	    .chunk_bytes = atomic_load(&pool->chunk_bytes),
	    .held_bytes = atomic_load(&pool->held_bytes),
	    .span_bytes = atomic_load(&pool->span_bytes),
	    .chunks = atomic_load(&pool->chunks),
	    .shared_chunks = shared_chunks,
	    .shared_bytes = shared_chunks * BUDDY_BYTES,
	    .block_bytes = atomic_load(&pool->blocks.used),
	    .size = limit < size ? limit : size,
	};
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
	uint64_t owed = pool_owed(pool);
	uint64_t driver = subtract_saturated(memory.free, limits.reserve + owed);
	uint64_t limit = subtract_saturated(limits.size, usage.chunk_bytes + owed);
	uint64_t available = driver < limit ? driver : limit;

	if (pool->budget) {
		uint64_t budget_room = subtract_saturated(pool->budget->size - pool->budget->spare,
							  atomic_load(&pool->budget->held));

		available = available < budget_room ? available : budget_room;
	}

	*bytes = available + pool_usage_unused(&usage);
	return 0;
}
