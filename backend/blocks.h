/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* The shared chunks of a pool, and the blocks cut from these chunks for small requests. Knows no
 * limit and calls no driver: the pool adds chunks, and frees each chunk that a function returns.
 * Thread-safe. */
#ifndef BACKEND_BLOCKS_H
#define BACKEND_BLOCKS_H

#include <pthread.h>

#include "backend/backend.h"
#include "backend/buddy.h"

#define BLOCKS_ORDERS (BUDDY_MAX_ORDER - BUDDY_MIN_ORDER + 1)

struct shared;

struct blocks {
	pthread_mutex_t lock; /* the lists and all buddies; never held during a driver call */
	/* Chunks with room, by the largest free block. The last list has at most one empty chunk,
	 * the spare. */
	struct shared *by_largest[BLOCKS_ORDERS];
	unsigned occupied;	/* a bit per list that is not empty */
	struct shared *drained; /* blocks_drain: no block is cut from these chunks */
	_Atomic uint64_t n_drained;
	_Atomic uint64_t chunks, used; /* used: the bytes of all blocks */
};

void blocks_init(struct blocks *blocks);
void blocks_destroy(struct blocks *blocks);

/* Cuts a block from a chunk with room: 0; -ENOSPC: no chunk has room; -EAGAIN: call again, after
 * freeing the chunk *lost, whose memory was lost, unless NULL. */
int blocks_cut(struct blocks *blocks, uint64_t bytes, struct span *span, struct chunk **lost);
/* Adds a chunk of BUDDY_BYTES and cuts the first block: 0, or -ENOMEM. */
int blocks_add(struct blocks *blocks, struct chunk *chunk, uint64_t bytes, struct span *span);
/* The chunk if it is empty now and not to be kept as the spare; else NULL. */
struct chunk *blocks_free(struct blocks *blocks, const struct span *span);
/* The spare; NULL: there is none. */
struct chunk *blocks_take_spare(struct blocks *blocks);

/* pool_drain, pool_drain_end. n_kept: of the chunks that hold blocks, how many are not drained. */
uint64_t blocks_drain(struct blocks *blocks, uint64_t n_kept);
bool blocks_drain_end(struct blocks *blocks);

/* pool_adopt, pool_adopt_block. */
int blocks_adopt(struct blocks *blocks, struct chunk *chunk);
int blocks_adopt_block(struct blocks *blocks, const struct span *span);

#endif
