/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* xxh64-tree: a checksum that many threads can work at, of a CPU or of a GPU.
 *
 * A file is blocks of 64 KiB, the last one filled up with zero bytes. A block is dealt out in
 * pieces of 16 bytes, in turn, to 32 strings. Its sum is the XXH64 of the XXH64s of the strings;
 * the file's sum is the XXH64 of the blocks' sums and then the file's size. All seeds are 0, all
 * numbers little-endian words of 64 bits. gpumem(1) says the same for others to compute.
 *
 * So a warp that has a string in each lane reads 512 bytes at a time, and a vector unit has the
 * accumulators of neighbouring strings side by side. */
#ifndef CLIENT_CLI_VERIFY_TREE_H
#define CLIENT_CLI_VERIFY_TREE_H

#include <stdint.h>

#define TREE_BLOCK ((uint64_t)1 << 16) /* bytes */

/* How many blocks so many bytes are. */
static inline uint64_t tree_blocks(uint64_t bytes)
{
	return bytes / TREE_BLOCK + (bytes % TREE_BLOCK != 0);
}

/* The sum of TREE_BLOCK bytes, at any address. */
uint64_t tree_block(const void *bytes);
/* The sum of a file of so many bytes from those of its blocks. */
uint64_t tree_sum(const uint64_t *sums, uint64_t bytes);

/* Reads the blocks from first up to end of a file of so many bytes and puts their sums into sums,
 * which begins with block 0's. 0 or -errno; -ENODATA: the file has become shorter. */
int tree_read(int fd, uint64_t bytes, uint64_t first, uint64_t end, unsigned threads,
	      uint64_t *sums);

/* The kernel, for the driver: client/cli/verify/tree.ptx. */
extern const char tree_ptx[];

/* The same for the first blocks, all of them whole, by the GPU that the file is on, which fd may be
 * open for reading only. seconds: what the kernel and the way of the sums took, without what comes
 * before. 0; -errno, and gpumem_error() says why not; or TREE_NO_GPU, the file being in system
 * memory.
 */
enum { TREE_NO_GPU = 1 };
int tree_gpu(int fd, uint64_t blocks, uint64_t *sums, double *seconds);

#endif
