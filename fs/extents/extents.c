/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
#include "fs/extents/extents.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "common/vector.h"

void extents_free(struct extents *extents)
{
	free(extents->at);
	*extents = (struct extents){0};
}

int extents_reserve(struct extents *extents, uint32_t n_new)
{
	if (extents->capacity - extents->count >= n_new)
		return 0;

	/* Most small files have a single extent, which costs 32 bytes here. */
	uint64_t capacity = extents->capacity ? extents->capacity * 2ULL : 1;

	if (capacity < extents->count + (uint64_t)n_new)
		capacity = extents->count + (uint64_t)n_new;
	if (capacity > UINT32_MAX)
		return -ENOMEM;

	struct extent *at = realloc(extents->at, capacity * sizeof(*at));

	if (!at)
		return -ENOMEM;
	extents->at = at;
	extents->capacity = (uint32_t)capacity;
	return 0;
}

uint32_t extents_find(const struct extents *extents, uint64_t offset)
{
	return (uint32_t)vector_search(i, extents->count, extent_end(&extents->at[i]) <= offset);
}

uint32_t extents_find_where(const struct extents *extents, uint64_t offset,
			    bool (*is_so)(const struct chunk *chunk))
{
	uint32_t i = extents_find(extents, offset);

	while (i < extents->count && !is_so(extents->at[i].span.chunk))
		i++;
	return i;
}

struct extents extents_range(const struct extents *extents, uint64_t from, uint64_t to)
{
	uint32_t first = extents_find(extents, from), past = first;

	while (past < extents->count && extents->at[past].offset < to)
		past++;
	return (struct extents){.at = extents->at ? extents->at + first : NULL,
				.count = past - first};
}

int extents_insert(struct extents *extents, const struct extent *extent)
{
	int rc = extents_reserve(extents, 1);

	if (rc < 0)
		return rc;

	uint32_t index = extents_find(extents, extent->offset);
	struct extent *at = &extents->at[index];

	assert(index == extents->count || at->offset >= extent_end(extent));
	if (index < extents->count)
		memmove(at + 1, at, (extents->count - index) * sizeof(*at));
	*at = *extent;
	extents->count++;
	return 0;
}

static void extents_remove_range(struct extents *extents, uint32_t index, uint32_t count)
{
	if (!count)
		return;

	struct extent *at = &extents->at[index];

	memmove(at, at + count, (extents->count - index - count) * sizeof(*at));
	extents->count -= count;
}

void extents_remove(struct extents *extents, uint32_t index)
{
	extents_remove_range(extents, index, 1);
}

/* The part of extent in [from, to). */
static struct extent extent_part(const struct extent *extent, uint64_t from, uint64_t to)
{
	uint64_t start = from > extent->offset ? from : extent->offset;
	uint64_t end = to < extent_end(extent) ? to : extent_end(extent);

	return (struct extent){
	    .offset = start,
	    .span = {extent->span.chunk, extent->span.offset + (start - extent->offset),
		     end - start},
	};
}

int extents_cut(struct extents *extents, uint64_t from, uint64_t to, struct extents *cut)
{
	uint32_t first = extents_find(extents, from), past = first;

	while (past < extents->count && extents->at[past].offset < to)
		past++;
	if (first == past || from >= to)
		return 0;

	struct extent head = extents->at[first], tail = extents->at[past - 1];
	uint32_t n_kept = (head.offset < from) + (extent_end(&tail) > to);

	/* Only a cut inside a single extent leaves more extents than before. */
	if (extents_reserve(extents, n_kept > past - first) < 0 ||
	    extents_reserve(cut, past - first) < 0)
		return -ENOMEM;
	for (uint32_t i = first; i < past; i++) {
		struct extent part = extent_part(&extents->at[i], from, to);

		extents_insert(cut, &part);
	}
	extents_remove_range(extents, first, past - first);
	if (head.offset < from) {
		head = extent_part(&head, 0, from);
		extents_insert(extents, &head);
	}
	if (extent_end(&tail) > to) {
		tail = extent_part(&tail, to, UINT64_MAX);
		extents_insert(extents, &tail);
	}
	return 0;
}

uint64_t extents_covered(const struct extents *extents, uint64_t offset, uint64_t end)
{
	for (uint32_t i = extents_find(extents, offset); i < extents->count && offset < end; i++) {
		if (extents->at[i].offset > offset)
			break;
		offset = extent_end(&extents->at[i]);
	}
	return offset < end ? offset : end;
}

bool extents_hole(const struct extents *extents, uint64_t from, uint64_t to,
		  struct extents_hole *hole)
{
	uint32_t index = extents_find(extents, from);
	uint64_t start = index ? extent_end(&extents->at[index - 1]) : 0;

	for (; index < extents->count; index++) {
		const struct extent *extent = &extents->at[index];

		if (extent->offset > start && extent->offset > from)
			break;
		start = extent_end(extent);
	}
	if (start >= to || from >= to)
		return false;
	hole->start = start;
	hole->end = index < extents->count ? extents->at[index].offset : UINT64_MAX;
	return true;
}

uint64_t extents_missing(const struct extents *extents, uint64_t from, uint64_t to)
{
	struct extents_walk walk = extents_walk(extents, from, to);
	struct segment segment;
	uint64_t bytes = 0;

	while (extents_next(&walk, &segment))
		bytes += segment.span ? 0 : segment.bytes;
	return bytes;
}

uint64_t extents_end(const struct extents *extents)
{
	return extents->count ? extent_end(&extents->at[extents->count - 1]) : 0;
}

struct extents_walk extents_walk(const struct extents *extents, uint64_t offset, uint64_t end)
{
	return (struct extents_walk){extents, offset, end, extents_find(extents, offset)};
}

bool extents_next(struct extents_walk *walk, struct segment *segment)
{
	const struct extents *extents = walk->extents;
	uint64_t offset = walk->offset, stop = walk->end;

	if (offset >= walk->end)
		return false;
	*segment = (struct segment){.offset = offset};
	if (walk->index < extents->count) {
		const struct extent *extent = &extents->at[walk->index];
		bool inside = extent->offset <= offset;
		uint64_t border = inside ? extent_end(extent) : extent->offset;

		if (border < stop)
			stop = border;
		if (inside) {
			segment->span = &extent->span;
			segment->span_offset = offset - extent->offset;
			walk->index += border == stop;
		}
	}
	segment->bytes = stop - offset;
	walk->offset = stop;
	return true;
}
