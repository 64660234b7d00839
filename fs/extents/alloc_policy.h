/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* The allocation policy of files in gpuN/: which spans to allocate for a range without memory. The
 * functions change no state.
 *
 * A 2 MiB granule of the file is backed by whole chunks (file offset and length multiples of 2 MiB)
 * or by small extents that stay inside the granule, never by both. */
#ifndef FS_EXTENTS_ALLOC_POLICY_H
#define FS_EXTENTS_ALLOC_POLICY_H

#include <stdbool.h>
#include <stdint.h>

#include "fs/core/attribute_schema.h"
#include "fs/extents/extents.h"

#define LAYOUT_GIB	 (1ULL << 30)
#define LAYOUT_BLOCK	 (64ULL << 10) /* the unit of files below 2 MiB */
#define LAYOUT_BLOCK_MIN (4ULL << 10)

struct layout {
	uint64_t unit;		 /* layout_unit */
	uint64_t max_chunk;	 /* multiple of CHUNK_ALIGN */
	uint64_t floor, ceiling; /* pieces stay inside; multiples of CHUNK_ALIGN */
};

/* Allocate bytes at offset; if that fails, min_bytes; then half as much each time, in multiples of
 * step. */
struct layout_piece {
	uint64_t offset, bytes, min_bytes, step;
};

/* The allocation unit for a file that is, or is about to be, size bytes long. */
uint64_t layout_unit(enum attr_page_size page_size, uint64_t size);

/* The end to allocate to beyond the end of a request, so that a growing file has few and large
 * chunks: a small file doubles, a large file grows by a quarter; never past a size that ftruncate
 * announced. */
uint64_t layout_prealloc_end(uint64_t end, uint64_t size, uint64_t allocated, uint64_t max_chunk);

/* The first piece of memory that [from, end) lacks. The piece reaches to prealloc_end if the piece
 * continues existing memory (a sequential writer), but not for a write into the middle of a
 * hole. */
bool layout_next(const struct extents *extents, const struct layout *layout, uint64_t from,
		 uint64_t end, uint64_t prealloc_end, struct layout_piece *piece);

#endif
