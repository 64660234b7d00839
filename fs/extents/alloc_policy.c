/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
#include "fs/extents/alloc_policy.h"

#include <assert.h>

/* Up to this size a growing file doubles: 2, 4, 8, 16 MiB are four chunks. */
#define DOUBLING_MAX (16ULL << 20)

static uint64_t min_of(uint64_t a, uint64_t b)
{
	return a < b ? a : b;
}

static uint64_t max_of(uint64_t a, uint64_t b)
{
	return a > b ? a : b;
}

uint64_t layout_unit(enum attr_page_size page_size, uint64_t size)
{
	switch (page_size) {
	case PAGE_SIZE_4K:
		return LAYOUT_BLOCK_MIN;
	case PAGE_SIZE_64K:
		return LAYOUT_BLOCK;
	case PAGE_SIZE_2M:
		return CHUNK_ALIGN;
	case PAGE_SIZE_1G:
		return LAYOUT_GIB;
	case PAGE_SIZE_AUTO:
		break;
	}
	if (size <= LAYOUT_BLOCK_MIN)
		return LAYOUT_BLOCK_MIN;
	return size < CHUNK_ALIGN ? LAYOUT_BLOCK : CHUNK_ALIGN;
}

uint64_t layout_prealloc_end(uint64_t end, uint64_t size, uint64_t allocated, uint64_t max_chunk)
{
	uint64_t extra = allocated <= DOUBLING_MAX ? allocated : allocated / 4;
	uint64_t prealloc_end = end + min_of(extra, max_chunk);

	return end <= size ? min_of(prealloc_end, size) : prealloc_end;
}

/* The end of the piece: prealloc_end if a sequential writer continues existing memory; else the end
 * of the request. */
static uint64_t piece_end(const struct extents_hole *hole, uint64_t offset, uint64_t end,
			  uint64_t prealloc_end)
{
	return offset > 0 && offset == hole->start && prealloc_end > end ? prealloc_end : end;
}

static struct layout_piece small_piece(const struct extents_hole *hole, uint64_t at, uint64_t end,
				       uint64_t prealloc_end, uint64_t unit)
{
	uint64_t border = min_of(hole->end, align_down(at, CHUNK_ALIGN) + CHUNK_ALIGN);
	uint64_t start = max_of(align_down(at, unit), hole->start);
	uint64_t stop = min_of(align_up(end, unit), border);

	prealloc_end = piece_end(hole, start, end, prealloc_end);
	return (struct layout_piece){
	    .offset = start,
	    .bytes = min_of(align_up(prealloc_end, unit), border) - start,
	    .min_bytes = stop - start,
	    .step = unit,
	};
}

static struct layout_piece chunk_piece(const struct extents_hole *hole, uint64_t at, uint64_t end,
				       uint64_t prealloc_end, uint64_t unit, uint64_t max_chunk)
{
	uint64_t start = align_down(at, unit);
	uint64_t border = align_down(hole->end, unit);
	uint64_t max_bytes = max_of(align_down(max_chunk, unit), unit);

	prealloc_end = piece_end(hole, start, end, prealloc_end);
	return (struct layout_piece){
	    .offset = start,
	    .bytes = min_of(min_of(align_up(prealloc_end, unit), border) - start, max_bytes),
	    .min_bytes = min_of(min_of(align_up(end, unit), border) - start, max_bytes),
	    .step = unit,
	};
}

static bool hole_has_unit(const struct extents_hole *hole, uint64_t at, uint64_t unit)
{
	uint64_t start = align_down(at, unit);

	return hole->start <= start && hole->end >= start + unit;
}

/* For units smaller than a chunk: whole granules become chunks, the rest small pieces. */
static struct layout_piece mixed_piece(const struct extents_hole *hole, const struct layout *layout,
				       uint64_t at, uint64_t end, uint64_t prealloc_end)
{
	uint64_t start = align_down(at, layout->unit);
	uint64_t whole = align_down(align_up(end, layout->unit), CHUNK_ALIGN);

	if (start % CHUNK_ALIGN == 0 && whole > start)
		return chunk_piece(hole, start, whole, whole, CHUNK_ALIGN, layout->max_chunk);
	return small_piece(hole, at, end, prealloc_end, layout->unit);
}

bool layout_next(const struct extents *extents, const struct layout *layout, uint64_t from,
		 uint64_t end, uint64_t prealloc_end, struct layout_piece *piece)
{
	struct extents_hole hole;

	assert(layout->floor <= from && end <= layout->ceiling);
	if (!extents_hole(extents, from, end, &hole))
		return false;
	hole.start = max_of(hole.start, layout->floor);
	hole.end = min_of(hole.end, layout->ceiling);

	uint64_t at = max_of(from, hole.start);

	if (!hole_has_unit(&hole, at, CHUNK_ALIGN)) {
		*piece =
		    small_piece(&hole, at, end, prealloc_end, min_of(layout->unit, LAYOUT_BLOCK));
	} else if (layout->unit < CHUNK_ALIGN) {
		*piece = mixed_piece(&hole, layout, at, end, prealloc_end);
	} else if (hole_has_unit(&hole, at, layout->unit)) {
		*piece = chunk_piece(&hole, at, end, prealloc_end, layout->unit, layout->max_chunk);
	} else {
		/* A GiB that the hole does not cover is filled up to its border. */
		uint64_t border = align_down(at, layout->unit) + layout->unit;

		hole.end = min_of(hole.end, border);
		*piece = chunk_piece(&hole, at, min_of(end, border), min_of(prealloc_end, border),
				     CHUNK_ALIGN, layout->max_chunk);
	}
	return true;
}
