/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* Tests whether a mapping shows the chunk's own bytes: writes patterns on either side and reads
 * them on the other, twice in both directions: a mapping of other memory, of another part of the
 * chunk, or with a cache in between fails. */
#include <errno.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include "backend/cuda/provider.h"
#include "backend/stream/stream.h"

#define TEST_BYTES  CHUNK_ALIGN
#define BLOCK_BYTES 4096

/* Both ends, a boundary of the GPU's pages (64 KiB) in the middle, and unaligned starts. */
static const uint64_t test_blocks[] = {0, 65536 - 100, TEST_BYTES / 2 - 2048,
				       TEST_BYTES - 65536 + 13, TEST_BYTES - BLOCK_BYTES};
#define BLOCKS (sizeof(test_blocks) / sizeof(test_blocks[0]))

struct test {
	struct copier *copier;
	struct chunk *chunk;
	char *mapping;
};

static void block_fill(uint8_t block[BLOCK_BYTES], uint64_t offset, unsigned round)
{
	for (uint64_t i = 0; i < BLOCK_BYTES; i++)
		block[i] =
		    (uint8_t)(((offset + i) * 0x9e3779b97f4a7c15ULL + round * 0x5bd1e995ULL) >> 56);
}

static int dma_write(struct test *test, uint64_t offset, const void *block)
{
	int rc = cuda_dma_in(test->copier, test->chunk, offset, block, BLOCK_BYTES);
	int waited = cuda_wait(test->copier);
	return rc < 0 ? rc : waited;
}

static int dma_read(struct test *test, uint64_t offset, void *block)
{
	int rc = cuda_dma_out(test->copier, block, test->chunk, offset, BLOCK_BYTES);
	int waited = cuda_wait(test->copier);
	return rc < 0 ? rc : waited;
}

static int block_compare(const uint8_t *pattern, const uint8_t *content, uint64_t offset,
			 const char *direction, char *reason)
{
	if (memcmp(pattern, content, BLOCK_BYTES) == 0)
		return 0;
	snprintf(reason, BAR_REASON_MAX, "self-test: bytes %s at offset %llu are not those written",
		 direction, (unsigned long long)offset);
	return -EILSEQ;
}

static int test_round(struct test *test, unsigned round, char *reason)
{
	uint8_t pattern[BLOCK_BYTES], content[BLOCK_BYTES];
	int rc = 0;

	for (unsigned i = 0; i < BLOCKS && rc == 0; i++) {
		block_fill(pattern, test_blocks[i], 2 * round);
		rc = dma_write(test, test_blocks[i], pattern);
		if (rc < 0)
			break;
		stream_load(content, test->mapping + test_blocks[i], BLOCK_BYTES);
		rc = block_compare(pattern, content, test_blocks[i], "read through the mapping",
				   reason);
	}
	for (unsigned i = 0; i < BLOCKS && rc == 0; i++) {
		block_fill(pattern, test_blocks[i], 2 * round + 1);
		stream_store(test->mapping + test_blocks[i], pattern, BLOCK_BYTES);
		stream_fence();
		rc = dma_read(test, test_blocks[i], content);
		if (rc == 0)
			rc = block_compare(pattern, content, test_blocks[i],
					   "written through the mapping", reason);
	}
	return rc;
}

static int test_mapped(struct cuda_device *device, const struct bar_way *way, void *state,
		       struct test *test, char *reason)
{
	struct cuda_chunk *chunk = cuda_chunk(test->chunk);
	void *address;

	int rc = cuda_context_use(device);
	if (rc < 0)
		return rc;
	rc = cuda_bar_map_way(way, state, chunk, &address, reason);
	if (rc < 0) /* even for lack of room: without room for 2 MiB no chunk can be mapped */
		return -ENOTSUP;
	test->mapping = address;
	for (unsigned round = 0; round < 2 && rc == 0; round++)
		rc = test_round(test, round, reason);
	way->unmap(state, address, chunk->base.bytes, chunk->mapping);
	chunk->mapping = NULL;
	return rc;
}

int cuda_bar_test(struct cuda_device *device, const struct bar_way *way, void *state, char *reason)
{
	struct test test;

	int rc = cuda_chunk_new(&device->base, PLACE_GPU, TEST_BYTES, &test.chunk);
	if (rc < 0)
		return rc;
	rc = cuda_copier_new(&device->cuda->base, &test.copier);
	if (rc == 0) {
		rc = test_mapped(device, way, state, &test, reason);
		cuda_copier_free(test.copier);
	}
	cuda_chunk_free(test.chunk);
	return rc;
}
