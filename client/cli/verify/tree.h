/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* xxh64-tree: a checksum that many threads can compute, on a CPU or a GPU.
 *
 * A file is a sequence of blocks of 64 KiB, the last block filled up with zero bytes. A block is
 * split into pieces of 16 bytes, which go in turn to 32 strings. The block's sum is the XXH64 of
 * the XXH64s of the strings. The file's sum is the XXH64 of the sums of the blocks, followed by the
 * file's size. All seeds are 0, all numbers little-endian words of 64 bits. gpumem(1) has the same
 * definition.
 *
 * A warp with one string in each lane reads 512 bytes at a time, and a vector unit has the
 * accumulators of neighbouring strings side by side. */
#ifndef CLIENT_CLI_VERIFY_TREE_H
#define CLIENT_CLI_VERIFY_TREE_H

#include <stdint.h>

#define TREE_BLOCK ((uint64_t)1 << 16) /* bytes */

/* The number of blocks of so many bytes. */
static inline uint64_t tree_blocks(uint64_t bytes)
{
	return bytes / TREE_BLOCK + (bytes % TREE_BLOCK != 0);
}

/* The sum of TREE_BLOCK bytes, at any address. */
uint64_t tree_block(const void *bytes);
/* The sum of a file of so many bytes, from the sums of its blocks. */
uint64_t tree_sum(const uint64_t *sums, uint64_t bytes);

/* Reads the blocks from first to end (exclusive) of a file of so many bytes, and stores their sums
 * in sums, which begins with block 0. 0 or -errno; -ENODATA: the file has become shorter. */
int tree_read(int fd, uint64_t bytes, uint64_t first, uint64_t end, unsigned threads,
	      uint64_t *sums);

/* The kernel for NVIDIA's driver: client/cli/verify/tree.ptx. */
extern const char tree_ptx[];

/* Computes the sums of the first blocks, all whole, on the GPU of the file, which fd may have open
 * for reading only. *seconds: the time of the kernel and of the transfer of the sums, without the
 * preparation. 0; -errno, with the reason in gpumem_error(); or TREE_NO_GPU for a file in system
 * memory, or whose bytes begin where the kernel cannot load. */
enum { TREE_NO_GPU = 1 };
int tree_gpu(int fd, uint64_t blocks, uint64_t *sums, double *seconds);

#endif
