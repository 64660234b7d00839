/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
#include "client/lib/arena/ranges.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "client/core/error.h"

static uint64_t align_up(uint64_t offset, uint64_t alignment)
{
	return (offset + alignment - 1) & ~(alignment - 1);
}

/* Makes room for more ranges in the array. */
static int array_reserve(struct arena_ranges *ranges, size_t n_more)
{
	if (ranges->n + n_more <= ranges->room)
		return 0;
	size_t room = 2 * ranges->room + n_more;
	struct arena_range *array = realloc(ranges->ranges, room * sizeof(*array));
	if (!array)
		return client_fail(ENOMEM, "no memory");
	ranges->ranges = array;
	ranges->room = room;
	return 0;
}

static void range_remove(struct arena_ranges *ranges, size_t at)
{
	ranges->n--;
	memmove(&ranges->ranges[at], &ranges->ranges[at + 1],
		(ranges->n - at) * sizeof(*ranges->ranges));
}

/* Cuts a range in two; the first part has so many bytes. There is room in the array. */
static void range_split(struct arena_ranges *ranges, size_t at, uint64_t bytes)
{
	struct arena_range *first = &ranges->ranges[at];

	memmove(first + 1, first, (ranges->n - at) * sizeof(*first));
	ranges->n++;
	first[0].bytes = bytes;
	first[1].offset += bytes;
	first[1].bytes -= bytes;
}

/* Merges a free range with the free range behind. */
static void range_merge(struct arena_ranges *ranges, size_t at)
{
	struct arena_range *range = &ranges->ranges[at];

	if (at + 1 >= ranges->n || range[0].allocated || range[1].allocated)
		return;
	range[0].bytes += range[1].bytes;
	range_remove(ranges, at + 1);
}

int arena_ranges_grow(struct arena_ranges *ranges, uint64_t bytes)
{
	int rc = array_reserve(ranges, 1);

	if (rc < 0 || !bytes)
		return rc;
	ranges->ranges[ranges->n++] = (struct arena_range){.offset = ranges->end, .bytes = bytes};
	ranges->end += bytes;
	if (ranges->n > 1)
		range_merge(ranges, ranges->n - 2);
	return 0;
}

static bool range_fits(const struct arena_range *range, uint64_t bytes, uint64_t alignment)
{
	uint64_t padding = align_up(range->offset, alignment) - range->offset;

	return !range->allocated && padding < range->bytes && bytes <= range->bytes - padding;
}

int arena_ranges_alloc(struct arena_ranges *ranges, uint64_t bytes, uint64_t alignment,
		       uint64_t *offset)
{
	size_t at = 0;
	int rc = array_reserve(ranges, 2);

	if (rc < 0)
		return rc;
	while (at < ranges->n && !range_fits(&ranges->ranges[at], bytes, alignment))
		at++;
	if (at == ranges->n)
		return -ENOSPC;
	uint64_t start = align_up(ranges->ranges[at].offset, alignment);
	if (start > ranges->ranges[at].offset) {
		range_split(ranges, at, start - ranges->ranges[at].offset);
		at++;
	}
	if (bytes < ranges->ranges[at].bytes)
		range_split(ranges, at, bytes);
	ranges->ranges[at].allocated = true;
	*offset = start;
	return 0;
}

int64_t arena_ranges_free(struct arena_ranges *ranges, uint64_t offset)
{
	size_t low = 0, high = ranges->n;

	while (low < high) {
		size_t middle = low + (high - low) / 2;
		if (ranges->ranges[middle].offset < offset)
			low = middle + 1;
		else
			high = middle;
	}
	if (low == ranges->n || ranges->ranges[low].offset != offset ||
	    !ranges->ranges[low].allocated)
		return -EINVAL;
	int64_t bytes = (int64_t)ranges->ranges[low].bytes;
	ranges->ranges[low].allocated = false;
	range_merge(ranges, low);
	if (low > 0)
		range_merge(ranges, low - 1);
	return bytes;
}

uint64_t arena_ranges_missing(const struct arena_ranges *ranges, uint64_t bytes, uint64_t alignment)
{
	const struct arena_range *last = ranges->n ? &ranges->ranges[ranges->n - 1] : NULL;
	uint64_t from = last && !last->allocated ? last->offset : ranges->end;

	return align_up(from, alignment) + bytes - ranges->end;
}
