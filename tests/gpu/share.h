/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* The message from share.c to import.c on standard input, and the change that import.c makes and
 * share.c expects. */
#ifndef TESTS_GPU_SHARE_H
#define TESTS_GPU_SHARE_H

#include <stdint.h>

/* A part of the file and its place in an exported chunk. import.c inherits the chunk's descriptor
 * under the same number. */
struct share_piece {
	int fd;
	uint64_t chunk_bytes, chunk_offset;
	uint64_t file_offset, bytes;
};

/* import.c sets the first half of each piece to a byte, and XORs the rest word by word in a kernel,
 * on machines that can run kernels. */
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

/* Exit statuses of import.c. SHARE_BY_MEMSET: success, but without a kernel. */
enum { SHARE_BY_KERNEL = 0, SHARE_FAILED = 1, SHARE_BY_MEMSET = 3 };

#endif
