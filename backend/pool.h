/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* The memory of one device, as files take it: whole chunks for what is large, buddy blocks inside
 * shared 2 MiB chunks for what is small. Accounts for every byte and keeps to the limits. */
#ifndef BACKEND_POOL_H
#define BACKEND_POOL_H

#include "backend/backend.h"

#define POOL_BLOCK_MIN 4096ULL /* the smallest block, and the alignment of every span */

struct pool;

struct pool_limits {
	uint64_t size;	  /* bytes the pool may hold on the device; UINT64_MAX: no bound */
	uint64_t reserve; /* bytes to leave free on the device for others */
};

struct pool_usage {
	uint64_t chunk_bytes; /* held from the device */
	uint64_t span_bytes;  /* of these, handed out */
	uint64_t chunks, shared_chunks;
};

/* Who is to know of each chunk while it is there: made names it (chunk->id, not 0) before anything
 * lies in it, and its error is the chunk's; gone is called before it goes. Any thread, not under
 * the pool's lock. */
struct pool_watch {
	int (*made)(void *of, struct chunk *chunk);
	void (*gone)(void *of, struct chunk *chunk);
	void *of;
};

enum pool_fill { POOL_ZEROED, POOL_UNDEFINED /* the caller overwrites every byte at once */ };

int pool_new(struct device *device, const struct pool_limits *limits, struct pool **pool);
void pool_free(struct pool *pool); /* every span was given back */

struct device *pool_device(const struct pool *pool);
void pool_set_limits(struct pool *pool, const struct pool_limits *limits);
struct pool_limits pool_limits(struct pool *pool);
struct pool_usage pool_usage(struct pool *pool);

/* How much could still be handed out: by the driver's free memory, the limits and the free blocks
 * of shared chunks. */
int pool_available(struct pool *pool, uint64_t *bytes);

/* Takes bytes of device memory as one span.
 * bytes >= CHUNK_ALIGN: a multiple of CHUNK_ALIGN, a chunk of its own (span->offset 0, the whole
 * chunk). Less: a multiple of POOL_BLOCK_MIN inside a shared chunk, aligned to the power of two at
 * or above bytes. copier zeroes (and waits) when fill asks for it.
 * -ENOSPC: the device or the limit is full. Thread-safe. */
int pool_alloc(struct pool *pool, uint64_t bytes, enum pool_fill fill, struct copier *copier,
	       struct span *span);

/* Gives back a span from pool_alloc, or for a span inside a shared chunk any part of it that is a
 * multiple of POOL_BLOCK_MIN at such an offset. No copy to or from it may be in flight. The memory
 * of a whole chunk goes back to the driver before this returns. */
void pool_free_span(struct pool *pool, const struct span *span);

/* Before the first span is taken. */
void pool_set_watch(struct pool *pool, const struct pool_watch *watch);

/* A chunk that was imported (and named) with what another pool had handed out of it: first the
 * chunk, whatever the limits say, as one span that owns it or as one to cut blocks from; then,
 * of the latter kind, each block. -EEXIST: handed out already; -EINVAL: not a block of it. The
 * chunk is the pool's on success. Nothing else is done to the pool meanwhile. */
enum pool_adopted { POOL_WHOLE, POOL_SHARED };
int pool_adopt(struct pool *pool, struct chunk *chunk, enum pool_adopted kind);
int pool_adopt_block(struct pool *pool, const struct span *span);

/* How many spans were ever taken, and whether none is handed out now. Neither waits. */
uint64_t pool_allocations(const struct pool *pool);
bool pool_is_unused(const struct pool *pool);
/* Gives back what is kept for the next small file, if the pool is unused. */
void pool_trim(struct pool *pool);

/* Between the two the caller gives back spans that nobody uses any more: who finds the device full
 * in the meantime, or asks what is available, waits for the second. */
void pool_free_announce(struct pool *pool);
void pool_free_announced(struct pool *pool);

/* Whether the span's chunk belongs to it alone. */
bool span_owns_chunk(const struct span *span);

#endif
