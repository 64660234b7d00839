/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
#include "client/cli/hash.h"

#include <ctype.h>
#include <errno.h>
#include <inttypes.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#define XXH_INLINE_ALL
#include <xxhash.h>

#include "client/cli/buffer.h"

#define BLOCK	    ((size_t)1 << 20) /* one request of the kernel to the daemon */
#define DEPTH	    2		      /* blocks that a reader is ahead */
#define READERS_MAX 32

uint64_t hash_bytes(const void *bytes, size_t length)
{
	return XXH3_64bits(bytes, length);
}

/* A thread that reads every n-th block of the file. */
struct reader {
	int fd;
	uint64_t first, step; /* in blocks */
	const atomic_bool *stop;
	char *buffer;		/* DEPTH blocks */
	ssize_t lengths[DEPTH]; /* of what was read, or -errno; less than a block: the end */
	sem_t filled, empty;
	pthread_t thread;
};

static void *reader_main(void *context)
{
	struct reader *reader = context;
	ssize_t length = (ssize_t)BLOCK;

	for (uint64_t n = 0; length == (ssize_t)BLOCK; n++) {
		uint64_t block = reader->first + n * reader->step;

		sem_wait(&reader->empty);
		if (atomic_load(reader->stop))
			break;
		length = buffer_read(reader->fd, reader->buffer + n % DEPTH * BLOCK, BLOCK,
				     block * BLOCK);
		reader->lengths[n % DEPTH] = length;
		sem_post(&reader->filled);
	}
	return NULL;
}

static int reader_start(struct reader *reader)
{
	sem_init(&reader->filled, 0, 0);
	sem_init(&reader->empty, 0, DEPTH);
	reader->buffer = buffer_new(DEPTH * BLOCK);
	if (!reader->buffer)
		return -ENOMEM;
	int error = pthread_create(&reader->thread, NULL, reader_main, reader);

	if (error)
		buffer_free(reader->buffer, DEPTH * BLOCK);
	return -error;
}

static void reader_end(struct reader *reader)
{
	/* It may wait for room, or be done already. */
	sem_post(&reader->empty);
	pthread_join(reader->thread, NULL);
	buffer_free(reader->buffer, DEPTH * BLOCK);
	sem_destroy(&reader->filled);
	sem_destroy(&reader->empty);
}

/* Takes the blocks in the file's order. */
static int consume(struct reader *readers, unsigned count, enum hash_kind kind, XXH3_state_t *state,
		   uint64_t *bytes)
{
	for (uint64_t block = 0;; block++) {
		struct reader *reader = &readers[block % count];
		uint64_t slot = block / count % DEPTH;

		while (sem_wait(&reader->filled) < 0)
			;
		ssize_t length = reader->lengths[slot];

		if (length < 0)
			return (int)length;
		if (kind == HASH_64)
			XXH3_64bits_update(state, reader->buffer + slot * BLOCK, (size_t)length);
		else
			XXH3_128bits_update(state, reader->buffer + slot * BLOCK, (size_t)length);
		*bytes += (uint64_t)length;
		if (length < (ssize_t)BLOCK)
			return 0;
		sem_post(&reader->empty);
	}
}

static void digest(const XXH3_state_t *state, enum hash_kind kind, char text[HASH_TEXT_MAX])
{
	if (kind == HASH_64) {
		snprintf(text, HASH_TEXT_MAX, "%016" PRIx64, (uint64_t)XXH3_64bits_digest(state));
		return;
	}
	XXH128_hash_t sum = XXH3_128bits_digest(state);

	snprintf(text, HASH_TEXT_MAX, "%016" PRIx64 "%016" PRIx64, (uint64_t)sum.high64,
		 (uint64_t)sum.low64);
}

int hash_file(int fd, enum hash_kind kind, unsigned threads, char text[HASH_TEXT_MAX],
	      uint64_t *bytes)
{
	struct reader readers[READERS_MAX];
	XXH3_state_t *state = XXH3_createState();
	unsigned count = 0, wanted = threads < 1	     ? 1
				     : threads > READERS_MAX ? READERS_MAX
							     : threads;
	atomic_bool stop = false;
	int error = state ? 0 : -ENOMEM;

	*bytes = 0;
	for (; !error && count < wanted; count++) {
		readers[count] =
		    (struct reader){.fd = fd, .first = count, .step = wanted, .stop = &stop};
		error = reader_start(&readers[count]);
		if (error)
			break;
	}
	if (!error) {
		XXH3_128bits_reset(state);
		if (kind == HASH_64)
			XXH3_64bits_reset(state);
		error = consume(readers, wanted, kind, state, bytes);
	}
	atomic_store(&stop, true);
	for (unsigned i = 0; i < count; i++)
		reader_end(&readers[i]);
	if (!error)
		digest(state, kind, text);
	XXH3_freeState(state);
	return error;
}

static const char *const names[] = {
    [HASH_64] = "xxh3", [HASH_128] = "xxh128", [HASH_TREE] = "xxh64-tree"};

const char *hash_name(enum hash_kind kind)
{
	return names[kind];
}

int hash_find(const char *name, enum hash_kind *kind)
{
	for (unsigned i = HASH_64; i <= HASH_TREE; i++)
		if (strcmp(name, names[i]) == 0) {
			*kind = (enum hash_kind)i;
			return 0;
		}
	return -EINVAL;
}

int hash_parse(const char *word, enum hash_kind *kind, char text[HASH_TEXT_MAX])
{
	static const char *const heads[] = {"xxh64-tree:", "xxh3:", "XXH3_", "xxh128:", "XXH128_"};
	bool tree = false;

	for (unsigned i = 0; i < sizeof(heads) / sizeof(heads[0]); i++)
		if (strncmp(word, heads[i], strlen(heads[i])) == 0) {
			word += strlen(heads[i]);
			tree = i == 0;
			break;
		}
	size_t length = strlen(word);

	if ((length != 16 && (length != 32 || tree)) ||
	    strspn(word, "0123456789abcdefABCDEF") != length)
		return -EINVAL;
	for (size_t i = 0; i <= length; i++)
		text[i] = (char)tolower((unsigned char)word[i]);
	*kind = tree ? HASH_TREE : length == 16 ? HASH_64 : HASH_128;
	return 0;
}
