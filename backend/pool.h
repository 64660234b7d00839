/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* The memory of one device, divided for files: whole chunks for large allocations, buddy blocks
 * inside shared 2 MiB chunks for small allocations. The pool accounts for every byte and enforces
 * the limits. */
#ifndef BACKEND_POOL_H
#define BACKEND_POOL_H

#include "backend/backend.h"

#define POOL_BLOCK_MIN 4096ULL /* the smallest block, and the alignment of every span */

struct pool;

struct pool_limits {
	uint64_t size;	  /* bytes the pool may hold on the device; UINT64_MAX: no bound */
	uint64_t reserve; /* bytes to leave free on the device for other programs */
};

struct pool_usage {
	uint64_t chunk_bytes; /* held from the device */
	uint64_t span_bytes;  /* of these, handed out */
	uint64_t chunks, shared_chunks;
};

/* Callbacks for each chunk of the pool. made names the chunk (chunk->id, not 0) before any data is
 * stored in the chunk; an error of made fails the chunk. gone is called before the chunk is freed.
 * Any thread, without the pool's lock. */
struct pool_watch {
	int (*made)(void *of, struct chunk *chunk);
	void (*gone)(void *of, struct chunk *chunk);
	void *of;
};

enum pool_fill { POOL_ZEROED, POOL_UNDEFINED /* the caller overwrites every byte at once */ };

int pool_new(struct device *device, const struct pool_limits *limits, struct pool **pool);
void pool_free(struct pool *pool); /* every span was freed before */

struct device *pool_device(const struct pool *pool);
void pool_set_limits(struct pool *pool, const struct pool_limits *limits);
struct pool_limits pool_limits(struct pool *pool);
struct pool_usage pool_usage(struct pool *pool);

/* The bytes that could still be allocated: by the driver's free memory, the limits and the free
 * blocks of shared chunks. */
int pool_available(struct pool *pool, uint64_t *bytes);

/* Allocates bytes of device memory as one span.
 * bytes >= CHUNK_ALIGN: a multiple of CHUNK_ALIGN, in a chunk of its own (span->offset is 0, the
 * span is the whole chunk). Less: a multiple of POOL_BLOCK_MIN inside a shared chunk, aligned to
 * the power of two at or above bytes. With POOL_ZEROED the copier zeroes the span, and waits.
 * -ENOSPC: the device or the limit is full. Thread-safe. */
int pool_alloc(struct pool *pool, uint64_t bytes, enum pool_fill fill, struct copier *copier,
	       struct span *span);

/* Frees a span from pool_alloc, or any part of a span inside a shared chunk, if offset and size are
 * multiples of POOL_BLOCK_MIN. No copy to or from the span may be in flight. The memory of a whole
 * chunk is back at the driver when the function returns. */
void pool_free_span(struct pool *pool, const struct span *span);

/* Before the first allocation. */
void pool_set_watch(struct pool *pool, const struct pool_watch *watch);

/* Adopts a chunk that was imported (and named), with the spans that another pool had allocated:
 * first the chunk, regardless of the limits, as one span that owns the chunk or as a shared chunk;
 * then, for a shared chunk, each block. -EEXIST: allocated already; -EINVAL: not a block of the
 * chunk. On success the pool owns the chunk. No other thread uses the pool meanwhile. */
enum pool_adopted { POOL_WHOLE, POOL_SHARED };
int pool_adopt(struct pool *pool, struct chunk *chunk, enum pool_adopted kind);
int pool_adopt_block(struct pool *pool, const struct span *span);

/* The number of spans that were ever allocated, and whether no span is allocated now. Neither
 * waits. */
uint64_t pool_allocations(const struct pool *pool);
bool pool_is_unused(const struct pool *pool);
/* Frees the memory kept for the next small file, if the pool is unused. */
void pool_trim(struct pool *pool);

/* Between the two calls the caller frees spans that are no longer used. A thread that finds the
 * device full in the meantime, or asks for the available bytes, waits for the second call. */
void pool_free_announce(struct pool *pool);
void pool_free_announced(struct pool *pool);

/* Whether the span has a chunk of its own. */
bool span_owns_chunk(const struct span *span);

#endif
