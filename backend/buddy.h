/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* A buddy allocator for power-of-two blocks in a shared chunk. Bookkeeping of offsets only: no
 * device memory is touched and no lock taken (the pool holds its own). 512 bytes of state describe
 * 2 MiB. */
#ifndef BACKEND_BUDDY_H
#define BACKEND_BUDDY_H

#include <stdbool.h>
#include <stdint.h>

#define BUDDY_BYTES	(2ULL << 20) /* one shared chunk */
#define BUDDY_MIN_ORDER 12	     /* 4 KiB */
#define BUDDY_MAX_ORDER 21	     /* the whole chunk */

struct buddy {
	/* One bit per block of each order, set while the block is free. In heap order: node 1 is
	 * the whole chunk, node n splits into 2n and 2n + 1; 1023 nodes. */
	uint64_t free_bits[16];
	uint64_t free_bytes;
};

void buddy_init(struct buddy *buddy);

/* Allocates bytes (a multiple of 4 KiB, at most BUDDY_BYTES) at an offset aligned to the power of
 * two at or above bytes; the rest of that power of two stays free. 0, or -ENOSPC. */
int buddy_alloc(struct buddy *buddy, uint64_t bytes, uint64_t *offset);

/* Allocates [offset, offset + bytes), multiples of 4 KiB: 0, or -EEXIST if a part is allocated
 * already (then without any change). */
int buddy_alloc_at(struct buddy *buddy, uint64_t offset, uint64_t bytes);

/* Frees [offset, offset + bytes), multiples of 4 KiB, all of it allocated; neighbours merge. */
void buddy_free(struct buddy *buddy, uint64_t offset, uint64_t bytes);

/* The largest request that buddy_alloc could serve now. */
uint64_t buddy_largest(const struct buddy *buddy);

static inline bool buddy_is_empty(const struct buddy *buddy)
{
	return buddy->free_bytes == BUDDY_BYTES;
}

#endif
