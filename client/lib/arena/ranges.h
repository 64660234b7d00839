/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* The ranges of an arena, allocated and free, sorted by offset and without gaps. Free neighbours
 * are one range. No lock. */
#ifndef CLIENT_LIB_ARENA_RANGES_H
#define CLIENT_LIB_ARENA_RANGES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct arena_range {
	uint64_t offset, bytes;
	bool allocated;
};

/* Zeroed: an empty arena. */
struct arena_ranges {
	struct arena_range *ranges;
	size_t n, room; /* of the array */
	uint64_t end;	/* of the last range */
};

/* Adds free bytes at the end. 0 or -ENOMEM. */
int arena_ranges_grow(struct arena_ranges *ranges, uint64_t bytes);

/* Allocates the first free bytes that fit; alignment is a power of two. -ENOSPC without a text,
 * -ENOMEM. */
int arena_ranges_alloc(struct arena_ranges *ranges, uint64_t bytes, uint64_t alignment,
		       uint64_t *offset);

/* Gives the bytes of the allocation, or -EINVAL: no allocation begins at the offset. */
int64_t arena_ranges_free(struct arena_ranges *ranges, uint64_t offset);

/* By how many bytes the arena must grow so that an allocation that has failed fits. */
uint64_t arena_ranges_missing(const struct arena_ranges *ranges, uint64_t bytes,
			      uint64_t alignment);

#endif
