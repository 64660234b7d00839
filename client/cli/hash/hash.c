/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
#include "client/cli/hash/hash.h"

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

#include "client/cli/core/buffer.h"
#include "client/cli/hash/sha256.h"
#include "common/hash.h"
#include "common/io.h"

#define BLOCK	    ((size_t)1 << 20) /* the size of one request of the kernel to the daemon */
#define DEPTH	    2		      /* blocks that a reader reads ahead */
#define READERS_MAX 32

uint64_t hash_bytes(const void *bytes, size_t length)
{
	return XXH3_64bits(bytes, length);
}

/* A thread that reads every n-th block of the file. */
struct reader {
	int fd;
	uint64_t first, step; /* blocks */
	const atomic_bool *stop;
	char *buffer; /* DEPTH blocks */
	ssize_t
	    lengths[DEPTH]; /* of each block, or -errno; less than a block at the end of the file */
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
		uint64_t n_read = 0;
		int rc = io_read_at(reader->fd, reader->buffer + n % DEPTH * BLOCK, BLOCK,
				    block * BLOCK, &n_read);

		length = rc < 0 ? rc : (ssize_t)n_read;
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
	/* The reader may wait for a free block, or may have ended. */
	sem_post(&reader->empty);
	pthread_join(reader->thread, NULL);
	buffer_free(reader->buffer, DEPTH * BLOCK);
	sem_destroy(&reader->filled);
	sem_destroy(&reader->empty);
}

/* A sum that is being computed. */
struct hasher {
	enum hash_kind kind;
	XXH3_state_t *xxh;
	struct sha256 *sha256;
};

static int hasher_new(enum hash_kind kind, struct hasher *hasher)
{
	*hasher = (struct hasher){.kind = kind};
	if (kind == HASH_SHA256)
		return sha256_new(&hasher->sha256);
	hasher->xxh = XXH3_createState();
	if (!hasher->xxh)
		return -ENOMEM;
	if (kind == HASH_64)
		XXH3_64bits_reset(hasher->xxh);
	else
		XXH3_128bits_reset(hasher->xxh);
	return 0;
}

static void hasher_update(struct hasher *hasher, const char *bytes, size_t length)
{
	switch (hasher->kind) {
	case HASH_SHA256:
		sha256_update(hasher->sha256, bytes, length);
		break;
	case HASH_64:
		XXH3_64bits_update(hasher->xxh, bytes, length);
		break;
	default:
		XXH3_128bits_update(hasher->xxh, bytes, length);
	}
}

static void hasher_free(struct hasher *hasher)
{
	XXH3_freeState(hasher->xxh);
	sha256_free(hasher->sha256);
}

/* Hashes the blocks in the order of the file. */
static int blocks_hash(struct reader *readers, unsigned count, struct hasher *hasher,
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
		hasher_update(hasher, reader->buffer + slot * BLOCK, (size_t)length);
		*bytes += (uint64_t)length;
		if (length < (ssize_t)BLOCK)
			return 0;
		sem_post(&reader->empty);
	}
}

static void hasher_digest(const struct hasher *hasher, char text[HASH_TEXT_MAX])
{
	unsigned char bytes[SHA256_BYTES];

	if (hasher->kind == HASH_SHA256) {
		sha256_digest(hasher->sha256, bytes);
		for (unsigned i = 0; i < sizeof(bytes); i++)
			sprintf(text + 2 * i, "%02x", bytes[i]);
		return;
	}
	if (hasher->kind == HASH_64) {
		snprintf(text, HASH_TEXT_MAX, "%016" PRIx64,
			 (uint64_t)XXH3_64bits_digest(hasher->xxh));
		return;
	}
	XXH128_hash_t sum = XXH3_128bits_digest(hasher->xxh);

	snprintf(text, HASH_TEXT_MAX, "%016" PRIx64 "%016" PRIx64, (uint64_t)sum.high64,
		 (uint64_t)sum.low64);
}

int hash_file(int fd, enum hash_kind kind, unsigned threads, char text[HASH_TEXT_MAX],
	      uint64_t *bytes)
{
	struct reader readers[READERS_MAX];
	struct hasher hasher;
	unsigned count = 0, n_readers = threads < 1		? 1
					: threads > READERS_MAX ? READERS_MAX
								: threads;
	atomic_bool stop = false;
	int error = hasher_new(kind, &hasher);

	*bytes = 0;
	for (; !error && count < n_readers; count++) {
		readers[count] =
		    (struct reader){.fd = fd, .first = count, .step = n_readers, .stop = &stop};
		error = reader_start(&readers[count]);
		if (error)
			break;
	}
	if (!error)
		error = blocks_hash(readers, n_readers, &hasher, bytes);
	atomic_store(&stop, true);
	for (unsigned i = 0; i < count; i++)
		reader_end(&readers[i]);
	if (!error)
		hasher_digest(&hasher, text);
	hasher_free(&hasher);
	return error;
}

static const char *const hash_names[] = {[HASH_64] = "xxh3",
					 [HASH_128] = "xxh128",
					 [HASH_SHA256] = "sha256",
					 [HASH_TREE] = "xxh64-tree"};

const char *hash_name(enum hash_kind kind)
{
	return hash_names[kind];
}

int hash_find(const char *name, enum hash_kind *kind)
{
	for (unsigned i = HASH_64; i <= HASH_TREE; i++)
		if (strcmp(name, hash_names[i]) == 0) {
			*kind = (enum hash_kind)i;
			return 0;
		}
	return -EINVAL;
}

/* The prefixes of a sum, with their number of digits; 0: 16 or 32. */
static const struct {
	const char *head;
	enum hash_kind kind;
	size_t digits;
} sum_heads[] = {
    {"xxh64-tree:", HASH_TREE, 16}, {"sha256:", HASH_SHA256, 64}, {"xxh3:", HASH_64, 0},
    {"XXH3_", HASH_64, 0},	    {"xxh128:", HASH_128, 0},	  {"XXH128_", HASH_128, 0},
};

static int digits_kind(size_t length, enum hash_kind *kind)
{
	*kind = length == 16 ? HASH_64 : length == 32 ? HASH_128 : HASH_SHA256;
	return length == 16 || length == 32 || length == 64 ? 0 : -EINVAL;
}

int hash_parse(const char *word, enum hash_kind *kind, char text[HASH_TEXT_MAX])
{
	unsigned heads = sizeof(sum_heads) / sizeof(sum_heads[0]), i = 0;

	while (i < heads && strncmp(word, sum_heads[i].head, strlen(sum_heads[i].head)) != 0)
		i++;
	if (i < heads)
		word += strlen(sum_heads[i].head);
	size_t length = strlen(word);

	if (digits_kind(length, kind) < 0 || strspn(word, "0123456789abcdefABCDEF") != length)
		return -EINVAL;
	if (i < heads && sum_heads[i].digits) {
		if (length != sum_heads[i].digits)
			return -EINVAL;
		*kind = sum_heads[i].kind;
	} else if (i < heads && length == 64) {
		return -EINVAL;
	}
	for (size_t n = 0; n <= length; n++)
		text[n] = (char)tolower((unsigned char)word[n]);
	return 0;
}
