/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* Computes the sums of a file's blocks by read(2), in several threads. */
#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <string.h>

#include "client/cli/core/buffer.h"
#include "client/cli/verify/tree.h"
#include "common/io.h"

#define PART	    ((uint64_t)1 << 20) /* the size of one request of the kernel to the daemon */
#define PART_BLOCKS (PART / TREE_BLOCK)
#define READERS_MAX 32

struct reading {
	int fd;
	uint64_t bytes, end;
	_Atomic uint64_t next; /* the first block that no thread has taken */
	uint64_t *sums;
	atomic_int error; /* the first error, as -errno */
};

static void reading_fail(struct reading *reading, int error)
{
	int no_error = 0;

	atomic_compare_exchange_strong(&reading->error, &no_error, error);
}

/* Sums up a part, which may be shorter at the end. */
static int part_sums(struct reading *reading, uint64_t first, char *buffer)
{
	uint64_t blocks = reading->end - first < PART_BLOCKS ? reading->end - first : PART_BLOCKS;
	uint64_t at = first * TREE_BLOCK, bytes_left = reading->bytes - at;
	size_t length = bytes_left < blocks * TREE_BLOCK ? bytes_left : blocks * TREE_BLOCK;
	uint64_t n_read = 0;
	int rc = io_read_at(reading->fd, buffer, length, at, &n_read);

	if (rc < 0)
		return rc;
	if (n_read < length)
		return -ENODATA;
	memset(buffer + length, 0, blocks * TREE_BLOCK - length);
	for (uint64_t i = 0; i < blocks; i++)
		reading->sums[first + i] = tree_block(buffer + i * TREE_BLOCK);
	return 0;
}

static void *reader_main(void *context)
{
	struct reading *reading = context;
	char *buffer = buffer_new(PART);
	uint64_t first;

	if (!buffer)
		reading_fail(reading, -ENOMEM);
	while (!atomic_load(&reading->error) &&
	       (first = atomic_fetch_add(&reading->next, PART_BLOCKS)) < reading->end) {
		int error = part_sums(reading, first, buffer);

		if (error)
			reading_fail(reading, error);
	}
	buffer_free(buffer, PART);
	return NULL;
}

int tree_read(int fd, uint64_t bytes, uint64_t first, uint64_t end, unsigned threads,
	      uint64_t *sums)
{
	struct reading reading = {
	    .fd = fd, .bytes = bytes, .next = first, .end = end, .sums = sums};
	uint64_t parts = (end - first + PART_BLOCKS - 1) / PART_BLOCKS;
	pthread_t thread_ids[READERS_MAX];
	unsigned started = 0;

	if (threads > READERS_MAX)
		threads = READERS_MAX;
	/* Fewer threads than wanted are enough. */
	while (started + 1 < threads && started + 1 < parts &&
	       pthread_create(&thread_ids[started], NULL, reader_main, &reading) == 0)
		started++;
	reader_main(&reading);
	while (started)
		pthread_join(thread_ids[--started], NULL);
	return atomic_load(&reading.error);
}
