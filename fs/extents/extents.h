/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* The parts of a file that have memory: a vector of extents sorted by file offset, never
 * overlapping. Pure bookkeeping: takes no locks and touches no device memory. */
#ifndef FS_EXTENTS_EXTENTS_H
#define FS_EXTENTS_EXTENTS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "backend/backend.h"

struct extent {
	uint64_t offset; /* in the file */
	struct span span;
};

/* Zeroed memory is an empty vector. */
struct extents {
	struct extent *at;
	uint32_t count, capacity;
};

/* A part of a file inside a single span, or a hole. */
struct segment {
	uint64_t offset, bytes;
	const struct span *span; /* NULL: a hole */
	uint64_t span_offset;
};

struct extents_walk {
	const struct extents *extents;
	uint64_t offset, end;
	uint32_t index;
};

struct extents_hole {
	uint64_t start, end; /* end is UINT64_MAX after the last extent */
};

static inline uint64_t align_down(uint64_t value, uint64_t power_of_two)
{
	return value & ~(power_of_two - 1);
}

static inline uint64_t align_up(uint64_t value, uint64_t power_of_two)
{
	return align_down(value + power_of_two - 1, power_of_two);
}

static inline uint64_t extent_end(const struct extent *extent)
{
	return extent->offset + extent->span.bytes;
}

void extents_free(struct extents *extents);

/* Makes room for n_new extents, so that the following inserts cannot fail: 0 or -ENOMEM. */
int extents_reserve(struct extents *extents, uint32_t n_new);

/* Index of the first extent that ends after offset; count if there is none. */
uint32_t extents_find(const struct extents *extents, uint64_t offset);

/* Index of the first extent that ends after offset and whose chunk is so; count if there is none.
 */
uint32_t extents_find_where(const struct extents *extents, uint64_t offset,
			    bool (*is_so)(const struct chunk *chunk));

/* The extents that overlap [from, to), in the same array: until the vector changes. */
struct extents extents_range(const struct extents *extents, uint64_t from, uint64_t to);

/* extent must not overlap the extents in the vector. 0 or -ENOMEM. */
int extents_insert(struct extents *extents, const struct extent *extent);
void extents_remove(struct extents *extents, uint32_t index);

/* Moves the memory in [from, to) into cut, and splits extents at the borders. 0, or -ENOMEM without
 * a change. */
int extents_cut(struct extents *extents, uint64_t from, uint64_t to, struct extents *cut);

/* The end, at most end, of the memory that begins at offset and has no gap; offset if there is
 * none. */
uint64_t extents_covered(const struct extents *extents, uint64_t offset, uint64_t end);

/* The first hole that overlaps [from, to), in its full length. */
bool extents_hole(const struct extents *extents, uint64_t from, uint64_t to,
		  struct extents_hole *hole);

/* Bytes of [from, to) without memory. */
uint64_t extents_missing(const struct extents *extents, uint64_t from, uint64_t to);

uint64_t extents_end(const struct extents *extents); /* of the last extent; 0 */

/* Visits [offset, end) in order, segment by segment, holes included. */
struct extents_walk extents_walk(const struct extents *extents, uint64_t offset, uint64_t end);
bool extents_next(struct extents_walk *walk, struct segment *segment);

/* An empty vector has no array, and C does not define NULL + 0. */
static inline const struct extent *extents_past(const struct extents *extents)
{
	return extents->at ? extents->at + extents->count : NULL;
}

#define EXTENTS_FOREACH(extent, extents)                                                           \
	for (struct extent *extent = (extents)->at; extent != extents_past(extents); extent++)

#endif
