/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* What share.c tells import.c on its standard input, and what both know of the change that import.c
 * makes. */
#ifndef TESTS_GPU_SHARE_H
#define TESTS_GPU_SHARE_H

#include <stdint.h>

/* A part of the file and where it lies: in a chunk whose exported fd is inherited under its number.
 */
struct share_piece {
	int fd;
	uint64_t chunk_bytes, chunk_offset;
	uint64_t file_offset, bytes;
};

/* The first half of each piece is set to a byte, and what follows it word by word is XORed by a
 * kernel, where there are kernels. */
#define SHARE_FILL 0xC3
#define SHARE_WORD 0x9e3779b9U

static inline uint64_t share_filled(uint64_t piece_bytes)
{
	return piece_bytes / 2 / sizeof(uint32_t) * sizeof(uint32_t);
}

static inline uint64_t share_words(uint64_t piece_bytes)
{
	return (piece_bytes - share_filled(piece_bytes)) / sizeof(uint32_t);
}

/* How import.c ends when all went well. */
enum { SHARE_BY_KERNEL = 0, SHARE_FAILED = 1, SHARE_BY_MEMSET = 3 };

#endif
