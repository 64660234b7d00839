/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* A device's allocator: whole chunks for large requests, buddy blocks in shared 2 MiB chunks for
 * small requests. Accounts for every byte and keeps to the limits. */
#ifndef BACKEND_POOL_H
#define BACKEND_POOL_H

#include "backend/backend.h"

#define POOL_BLOCK_MIN 4096ULL /* the smallest block, and the alignment of every span */

struct pool;
struct stock;

struct pool_limits {
	uint64_t size; /* most bytes that the pool may hold on the device; UINT64_MAX: no limit */
	uint64_t reserve; /* bytes that must stay free on the device for other programs */
};

struct pool_usage {
	uint64_t chunk_bytes; /* held from the device, and held_bytes */
	uint64_t held_bytes;  /* in freed chunks that other processes may still have */
	uint64_t span_bytes;  /* of these, allocated as spans */
	uint64_t chunks, shared_chunks;
	uint64_t shared_bytes; /* held in shared chunks */
	uint64_t block_bytes;  /* of these, allocated as spans */
	uint64_t size; /* the most that chunk_bytes can be: the place's, or the limit if lower */
};

/* Bytes of chunks that are allocated from the driver and in no span. */
static inline uint64_t pool_usage_unused(const struct pool_usage *usage)
{
	uint64_t used = usage->span_bytes + usage->held_bytes;

	return usage->chunk_bytes > used ? usage->chunk_bytes - used : 0;
}

/* Called for each chunk. on_create gives the chunk an id (not 0) before the chunk has content, and
 * its error becomes the allocation's; on_free is called before the chunk is freed. Any thread,
 * without the pool's lock. */
struct pool_watch {
	int (*on_create)(void *context, struct chunk *chunk);
	void (*on_free)(void *context, struct chunk *chunk);
	void *context;
};

/* Bytes of chunks that several pools may hold together. */
struct pool_budget {
	uint64_t size;
	uint64_t spare;		  /* of the size: for pool_alloc_exchange alone */
	_Atomic uint64_t held;	  /* by the pools */
	_Atomic uint64_t stocked; /* by their stocks: gives way to held */
};

enum pool_fill { POOL_ZEROED, POOL_UNDEFINED /* the caller overwrites every byte at once */ };

/* The chunks are in place; limits->reserve counts for PLACE_GPU only. */
int pool_new(struct device *device, enum memory_place place, const struct pool_limits *limits,
	     struct pool **pool);
void pool_free(struct pool *pool); /* every span was freed */

void pool_set_limits(struct pool *pool, const struct pool_limits *limits);
struct pool_limits pool_limits(struct pool *pool);
struct pool_usage pool_usage(struct pool *pool);

/* The bytes that could still be allocated, by the driver's free memory, the limits, the budget, and
 * the free blocks of shared chunks. */
int pool_available(struct pool *pool, uint64_t *bytes);

/* Allocates bytes of device memory as a span. bytes >= CHUNK_ALIGN: a multiple of CHUNK_ALIGN, as a
 * chunk of its own (span->offset is 0). Less: a multiple of POOL_BLOCK_MIN in a shared chunk,
 * aligned to the power of two at or above bytes. copier zeroes the memory (and waits) if fill says
 * so. -ENOSPC: the device or the limit is full. Thread-safe. */
int pool_alloc(struct pool *pool, uint64_t bytes, enum pool_fill fill, struct copier *copier,
	       struct span *span);

/* Exchanges: memory of a file comes to a full device while memory of other files leaves. Both may
 * take what no other allocation may: the spare of the budget, and on the device as much as the
 * memory that left has taken of the spare. So a device gives the room that an exchange has made to
 * no other file, and the spare is there again for the next exchange. pool_alloc_exchange: as
 * pool_alloc. */
int pool_alloc_exchange(struct pool *pool, uint64_t bytes, enum pool_fill fill,
			struct copier *copier, struct span *span);
/* The part of the spare that is taken. */
uint64_t budget_overdraft(const struct pool_budget *budget);
/* Before the first allocation: a device's pool and the budgets for memory that leaves the device.
 */
void pool_set_lenders(struct pool *pool, const struct pool_budget *host,
		      const struct pool_budget *disk);
/* Keeps at most bytes of the device free, as long as so much of the lenders' spares is taken. */
void pool_owe(struct pool *pool, uint64_t bytes);
/* The bytes that are kept free now, and the taken part of the lenders' spares. */
uint64_t pool_owed(const struct pool *pool);
uint64_t pool_lent(const struct pool *pool);

/* Frees a span of pool_alloc, or part of a span in a shared chunk, with offset and size multiples
 * of POOL_BLOCK_MIN. No copy may use the memory. The memory of a whole chunk goes back to the
 * driver before the return; the bytes of a chunk in state CHUNK_HELD stay counted. */
void pool_free_span(struct pool *pool, const struct span *span);

/* Both before the first allocation. pool_set_budget also lets the pool keep freed chunks of
 * chunk_bytes, and make such chunks ahead, within the budget, unless chunk_bytes is 0: 0 or
 * -ENOMEM. */
int pool_set_budget(struct pool *pool, struct pool_budget *budget, uint64_t chunk_bytes);
void pool_set_watch(struct pool *pool, const struct pool_watch *watch);

/* Takes over an imported chunk (with an id) and another pool's allocations in the chunk: first the
 * chunk, beyond limits if need be, as a span that owns it or as a chunk to cut blocks from; then,
 * in the latter case, each block. -EEXIST: allocated already; -EINVAL: not a block of the chunk. On
 * success the chunk is the pool's. No other call may run at the same time. */
enum pool_adopted { POOL_WHOLE, POOL_SHARED };
int pool_adopt(struct pool *pool, struct chunk *chunk, enum pool_adopted kind);
int pool_adopt_block(struct pool *pool, const struct span *span);

/* Takes a chunk of chunk_import_foreign as a span, within the limits: 0, -ENOSPC, or an error of
 * the import. *fd becomes -1 when it is the chunk's, which a failure may have freed again. Any
 * thread. */
int pool_import_foreign(struct pool *pool, uint64_t bytes, int *fd, enum chunk_origin origin,
			struct span *span);

/* Ends the count of a freed chunk in state CHUNK_HELD. */
void pool_held_end(struct pool *pool, uint64_t bytes);
/* Counts a chunk that an earlier daemon freed in this state, beyond limits if need be. */
void pool_held_restore(struct pool *pool, uint64_t bytes);

/* The number of allocations so far, and whether no span is allocated now. Neither waits. */
uint64_t pool_allocations(const struct pool *pool);
bool pool_is_unused(const struct pool *pool);
/* Frees the empty chunk that is kept for the next small file, and the stock, if no span is
 * allocated.
 */
void pool_trim(struct pool *pool);
/* stock.h; NULL for a pool that keeps no freed chunks. */
struct stock *pool_stock(const struct pool *pool);

/* Between the two calls the caller frees unused spans: a thread that finds the device full, or asks
 * for the available bytes, waits for the second call. */
void pool_free_announce(struct pool *pool);
void pool_free_announced(struct pool *pool);

/* Whether the span has the chunk for itself. */
bool span_owns_chunk(const struct span *span);

/* The bytes that the span takes: the whole chunk where the chunk is another program's, even if the
 * span is a part of the chunk. */
static inline uint64_t span_taken(const struct span *span)
{
	return span->chunk->foreign ? span->chunk->bytes : span->bytes;
}

/* Compaction. Keeps as many of the fullest shared chunks as hold bytes, and marks the others as
 * drained until pool_drain_end: no span is cut from a drained chunk unless the device is full,
 * which ends the draining, and the caller moves the spans elsewhere. Returns the number of drained
 * chunks. */
uint64_t pool_drain(struct pool *pool, uint64_t bytes);
void pool_drain_end(struct pool *pool);
/* Whether there are drained chunks, and whether this is such a chunk. */
bool pool_drains(const struct pool *pool);
bool chunk_is_drained(const struct chunk *chunk);
/* The length of the first span for a range of bytes, if several spans may take the range, so that
 * at most an 8th of the power of two above a span is left beside the span. */
uint64_t pool_tight_bytes(uint64_t bytes);

#endif
