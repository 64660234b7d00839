/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* feed FILE GPU THREADS [unread]: prints how many seconds (the median of several rounds) a program
 * needs to load a file's bytes into a GPU's memory without gpumemfs. Each thread reads pieces into
 * one half of its own registered memory while the GPU copies out of the other half. The registered
 * memory and the GPU's memory are allocated before the rounds. unread: the threads read nothing,
 * and the GPU copies as many bytes of the registered memory, whatever the content is. */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "backend/backend.h"
#include "backend/copy.h"
#include "common/log.h"
#include "common/number.h"
#include "tests/bench/measure.h"

#define ROUNDS	    5
#define PIECE	    (4UL << 20)
#define THREADS_MAX 64

struct feed {
	struct backend *backend;
	struct span target;
	int fd;
	bool unread;
	uint64_t bytes;
	char *memory;
	pthread_barrier_t start;
	_Atomic uint64_t next; /* offset of the next unread byte */
	atomic_int error;
};

struct feeder {
	struct feed *feed;
	/* A copier for each half, so that each half can be waited for separately. */
	struct copier *copiers[2];
	char *halves[2];
	pthread_t thread;
};

static int read_piece(const struct feed *feed, char *to, uint64_t at, size_t bytes)
{
	for (size_t done = 0; done < bytes;) {
		ssize_t n = pread(feed->fd, to + done, bytes - done, (off_t)(at + done));

		if (n <= 0)
			return n < 0 ? -errno : -EIO;
		done += (size_t)n;
	}
	return 0;
}

static int feed_pieces(struct feeder *feeder)
{
	struct feed *feed = feeder->feed;
	unsigned half = 0;
	int rc = 0;

	for (uint64_t at; rc == 0 && (at = atomic_fetch_add(&feed->next, PIECE)) < feed->bytes;
	     half = !half) {
		uint64_t left = feed->bytes - at;
		size_t bytes = left < PIECE ? left : PIECE;

		rc = copier_wait(feeder->copiers[half]);
		if (rc == 0 && !feed->unread)
			rc = read_piece(feed, feeder->halves[half], at, bytes);
		if (rc == 0)
			rc = copy_in(feeder->copiers[half], &feed->target, at, feeder->halves[half],
				     bytes, COPY_DMA);
	}
	for (half = 0; half < 2; half++) {
		int waited = copier_wait(feeder->copiers[half]);
		rc = rc ? rc : waited;
	}
	return rc;
}

static void *run_feeder(void *pointer)
{
	struct feeder *feeder = pointer;

	pthread_barrier_wait(&feeder->feed->start);
	int rc = feed_pieces(feeder);

	if (rc)
		atomic_store(&feeder->feed->error, rc);
	return NULL;
}

static int run_round(struct feed *feed, struct feeder *feeders, unsigned n, double *took)
{
	atomic_store(&feed->next, 0);
	pthread_barrier_init(&feed->start, NULL, n + 1);
	for (unsigned i = 0; i < n; i++)
		if (pthread_create(&feeders[i].thread, NULL, run_feeder, &feeders[i]))
			return -EAGAIN;
	pthread_barrier_wait(&feed->start);
	double start = measure_now();

	for (unsigned i = 0; i < n; i++)
		pthread_join(feeders[i].thread, NULL);
	*took = measure_now() - start;
	pthread_barrier_destroy(&feed->start);
	return atomic_load(&feed->error);
}

/* The first round creates the streams and does not count. */
static int run_rounds(struct feed *feed, struct feeder *feeders, unsigned n)
{
	double times[ROUNDS], first;
	int rc = run_round(feed, feeders, n, &first);

	for (unsigned i = 0; rc == 0 && i < ROUNDS; i++)
		rc = run_round(feed, feeders, n, &times[i]);
	if (rc)
		return rc;
	printf("%.9f\n", measure_median(times, ROUNDS));
	return 0;
}

static int make_memory(struct feed *feed, struct device *device, size_t bytes)
{
	feed->memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (feed->memory == MAP_FAILED)
		return -errno;
	memset(feed->memory, 0, bytes);
	return device_pin(device, feed->memory, bytes);
}

static int run_feeders(struct feed *feed, unsigned n)
{
	struct feeder feeders[THREADS_MAX] = {0};
	int rc = 0;

	for (unsigned i = 0; rc == 0 && i < 2 * n; i++) {
		struct feeder *feeder = &feeders[i / 2];

		feeder->feed = feed;
		feeder->halves[i % 2] = feed->memory + i * PIECE;
		rc = copier_open(feed->backend, &feeder->copiers[i % 2]);
	}
	if (rc == 0)
		rc = run_rounds(feed, feeders, n);
	for (unsigned i = 0; i < 2 * n; i++)
		if (feeders[i / 2].copiers[i % 2])
			copier_close(feeders[i / 2].copiers[i % 2]);
	return rc;
}

static int feed_gpu(struct feed *feed, struct device *device, unsigned threads)
{
	size_t memory = 2 * threads * PIECE;
	int rc = chunk_new(device, PLACE_GPU,
			   (feed->bytes + CHUNK_ALIGN - 1) / CHUNK_ALIGN * CHUNK_ALIGN,
			   &feed->target.chunk);

	if (rc < 0)
		return rc;
	feed->target.bytes = feed->bytes;
	rc = make_memory(feed, device, memory);
	if (rc == 0) {
		rc = run_feeders(feed, threads);
		device_unpin(device, feed->memory);
	}
	chunk_free(feed->target.chunk);
	return rc;
}

int main(int argc, char **argv)
{
	struct backend_config config = {.kind = BACKEND_CUDA, .bar = BAR_OFF};
	uint64_t gpu, threads;
	struct feed feed = {0};
	struct stat st;

	feed.unread = argc == 5 && strcmp(argv[4], "unread") == 0;
	if (argc != 4 + feed.unread || parse_u64(argv[2], 0, BACKEND_DEVICES_MAX, &gpu) ||
	    parse_u64(argv[3], 1, THREADS_MAX, &threads)) {
		fprintf(stderr, "usage: feed FILE GPU THREADS [unread]\n");
		return 1;
	}
	feed.fd = open(argv[1], O_RDONLY | O_CLOEXEC);
	if (feed.fd < 0 || fstat(feed.fd, &st) < 0) {
		fprintf(stderr, "feed: %s: %s\n", argv[1], strerror(errno));
		return 1;
	}
	feed.bytes = (uint64_t)st.st_size;
	log_setup(LOG_LEVEL_WARN, LOG_TO_TERMINAL);
	if (backend_open(&config, &feed.backend))
		return 1;
	int rc = gpu < feed.backend->n_devices
		     ? feed_gpu(&feed, feed.backend->devices[gpu], (unsigned)threads)
		     : -ENODEV;

	if (rc)
		fprintf(stderr, "feed: %s\n", strerror(-rc));
	backend_close(feed.backend);
	return rc ? 1 : 0;
}
