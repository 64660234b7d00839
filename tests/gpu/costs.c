/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* costs ROUNDS DIR...: for tests/gpu/costs.py. Measures the speed of the same work in every folder,
 * with the folders taking turns. Prints a line for each kind of work, number of threads and folder:
 * WORK THREADS FOLDER (from 0), then the operations per second of each round. */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/number.h"
#include "tests/bench/measure.h"

#define THREADS_MAX  16
#define DIRS_MAX     4
#define ROUNDS_MAX   100
#define FILES	     1600	 /* of a round, by all threads together */
#define REGION	     (8UL << 20) /* each thread's part of a file of data */
#define LARGE	     (1UL << 20)
#define SMALL	     4096UL
#define DATA_SECONDS 0.06

#define FAIL(format, ...)                                                                          \
	do {                                                                                       \
		fprintf(stderr, format "\n", ##__VA_ARGS__);                                       \
		exit(1);                                                                           \
	} while (0)

struct folder {
	int dirs[THREADS_MAX]; /* a folder for the names of each thread */
	int large, small;
};

/* A thread with its kind of work. */
struct lane {
	const struct folder *folder;
	unsigned (*work)(const struct lane *lane); /* returns the number of operations */
	pthread_barrier_t *start;
	unsigned number, threads;
	struct stretch *stretch; /* progress of this thread */
	char *buffer;
};

static char *buffers[THREADS_MAX];

/* --- names: all threads use the same names, each thread in its own folder */

static const char *name_of(const char *prefix, unsigned i, char name[32])
{
	snprintf(name, 32, "%s%06u", prefix, i);
	return name;
}

static unsigned files_of(const struct lane *lane)
{
	return FILES / lane->threads;
}

static unsigned create_names(const struct lane *lane)
{
	int dir = lane->folder->dirs[lane->number];
	char name[32];

	for (unsigned i = 0; i < files_of(lane); i++) {
		int fd = openat(dir, name_of("a", i, name), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC,
				0600);

		if (fd < 0 || close(fd))
			FAIL("create: %s", strerror(errno));
	}
	return files_of(lane);
}

/* AT_STATX_FORCE_SYNC: attributes from the kernel's cache would not measure the filesystem. */
static unsigned stat_names(const struct lane *lane)
{
	int dir = lane->folder->dirs[lane->number];
	struct statx st;
	char name[32];

	for (unsigned i = 0; i < files_of(lane); i++)
		if (statx(dir, name_of("a", i, name), AT_STATX_FORCE_SYNC, STATX_BASIC_STATS, &st))
			FAIL("statx: %s", strerror(errno));
	return files_of(lane);
}

static unsigned rename_names(const struct lane *lane)
{
	int dir = lane->folder->dirs[lane->number];
	char from[32], to[32];

	for (unsigned i = 0; i < files_of(lane); i++)
		if (renameat(dir, name_of("a", i, from), dir, name_of("b", i, to)))
			FAIL("rename: %s", strerror(errno));
	return files_of(lane);
}

static unsigned unlink_names(const struct lane *lane)
{
	int dir = lane->folder->dirs[lane->number];
	char name[32];

	for (unsigned i = 0; i < files_of(lane); i++)
		if (unlinkat(dir, name_of("b", i, name), 0))
			FAIL("unlink: %s", strerror(errno));
	return files_of(lane);
}

/* --- data, for a fixed time */

enum way { READ, WRITE };

static void move(const struct lane *lane, enum way way, size_t bytes, uint64_t at)
{
	off_t offset = (off_t)(lane->number * REGION + at);
	int fd = bytes == LARGE ? lane->folder->large : lane->folder->small;
	ssize_t n = way == READ ? pread(fd, lane->buffer, bytes, offset)
				: pwrite(fd, lane->buffer, bytes, offset);

	if (n != (ssize_t)bytes)
		FAIL("%s: %s", way == READ ? "read" : "write", n < 0 ? strerror(errno) : "short");
}

static unsigned in_order(const struct lane *lane, enum way way)
{
	double end = measure_now() + DATA_SECONDS;
	unsigned done = 0;

	for (; measure_now() < end; done++)
		move(lane, way, LARGE, done * LARGE % REGION);
	return done;
}

static unsigned at_random(const struct lane *lane, enum way way)
{
	double end = measure_now() + DATA_SECONDS;
	uint64_t state = lane->number + 1;
	unsigned done = 0;

	for (; measure_now() < end; done++) {
		state = state * 6364136223846793005ULL + 1442695040888963407ULL;
		move(lane, way, SMALL, (state >> 33) % (REGION / SMALL) * SMALL);
	}
	return done;
}

static unsigned read_large(const struct lane *lane)
{
	return in_order(lane, READ);
}

static unsigned write_large(const struct lane *lane)
{
	return in_order(lane, WRITE);
}

static unsigned read_small(const struct lane *lane)
{
	return at_random(lane, READ);
}

static unsigned write_small(const struct lane *lane)
{
	return at_random(lane, WRITE);
}

/* --- all kinds of work */

static const struct {
	const char *name;
	unsigned threads;
	unsigned (*work)(const struct lane *lane);
} kinds[] = {
    {"create", 1, create_names},  {"stat", 1, stat_names},	 {"rename", 1, rename_names},
    {"unlink", 1, unlink_names},  {"create", 8, create_names},	 {"stat", 8, stat_names},
    {"rename", 8, rename_names},  {"unlink", 8, unlink_names},	 {"write_1M", 1, write_large},
    {"read_1M", 1, read_large},	  {"write_1M", 16, write_large}, {"read_1M", 16, read_large},
    {"write_4K", 1, write_small}, {"read_4K", 1, read_small},	 {"write_4K", 16, write_small},
    {"read_4K", 16, read_small},
};
#define KINDS (sizeof(kinds) / sizeof(kinds[0]))

static double rates[KINDS][DIRS_MAX][ROUNDS_MAX];

static void *lane_main(void *argument)
{
	struct lane *lane = argument;

	pthread_barrier_wait(lane->start);
	double start = measure_now();
	unsigned operations = lane->work(lane);

	*lane->stretch = (struct stretch){operations, start, measure_now()};
	return NULL;
}

/* Returns operations per second. */
static double measure(const struct folder *folder, unsigned threads,
		      unsigned (*work)(const struct lane *lane))
{
	struct stretch stretches[THREADS_MAX];
	struct lane lanes[THREADS_MAX];
	pthread_t ids[THREADS_MAX];
	pthread_barrier_t start;

	pthread_barrier_init(&start, NULL, threads);
	for (unsigned i = 0; i < threads; i++) {
		lanes[i] = (struct lane){.folder = folder,
					 .work = work,
					 .start = &start,
					 .number = i,
					 .threads = threads,
					 .stretch = &stretches[i],
					 .buffer = buffers[i]};
		if (pthread_create(&ids[i], NULL, lane_main, &lanes[i]))
			FAIL("no thread");
	}
	for (unsigned i = 0; i < threads; i++)
		pthread_join(ids[i], NULL);
	pthread_barrier_destroy(&start);
	return measure_rate(stretches, threads);
}

static int make_folder(int top, unsigned number)
{
	char name[32];

	snprintf(name, sizeof(name), "names%u", number);
	if (mkdirat(top, name, 0700))
		FAIL("%s: %s", name, strerror(errno));
	return openat(top, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
}

static int data_file(int top, const char *name)
{
	int fd = openat(top, name, O_RDWR | O_CREAT | O_CLOEXEC, 0600);

	if (fd < 0 || ftruncate(fd, (off_t)(THREADS_MAX * REGION)))
		FAIL("%s: %s", name, strerror(errno));
	for (uint64_t at = 0; at < THREADS_MAX * REGION; at += LARGE)
		if (pwrite(fd, buffers[0], LARGE, (off_t)at) != (ssize_t)LARGE)
			FAIL("%s: %s", name, strerror(errno));
	return fd;
}

static void open_folder(struct folder *folder, const char *path)
{
	int top = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);

	if (top < 0)
		FAIL("%s: %s", path, strerror(errno));
	for (unsigned i = 0; i < THREADS_MAX; i++)
		folder->dirs[i] = make_folder(top, i);
	folder->large = data_file(top, "large");
	folder->small = data_file(top, "small");
	close(top);
}

static void make_buffers(void)
{
	for (unsigned i = 0; i < THREADS_MAX; i++) {
		buffers[i] = aligned_alloc(SMALL, LARGE);
		if (!buffers[i])
			FAIL("no memory");
		memset(buffers[i], (int)i + 1, LARGE);
	}
}

/* Each round begins with another folder. */
static void go_round(const struct folder *folders, unsigned n, unsigned round)
{
	for (unsigned kind = 0; kind < KINDS; kind++)
		for (unsigned turn = 0; turn < n; turn++) {
			unsigned i = (round + turn) % n;

			rates[kind][i][round] =
			    measure(&folders[i], kinds[kind].threads, kinds[kind].work);
		}
}

int main(int argc, char **argv)
{
	static struct folder folders[DIRS_MAX];
	unsigned n = argc > 2 ? (unsigned)argc - 2 : 0;
	uint64_t rounds;

	if (!n || n > DIRS_MAX || parse_u64(argv[1], 1, ROUNDS_MAX, &rounds) < 0)
		FAIL("usage: costs ROUNDS DIR... (up to %d folders and %d rounds)", DIRS_MAX,
		     ROUNDS_MAX);
	make_buffers();
	for (unsigned i = 0; i < n; i++)
		open_folder(&folders[i], argv[i + 2]);
	for (unsigned round = 0; round < rounds; round++)
		go_round(folders, n, round);
	for (unsigned kind = 0; kind < KINDS; kind++)
		for (unsigned i = 0; i < n; i++) {
			printf("%s %u %u", kinds[kind].name, kinds[kind].threads, i);
			for (unsigned round = 0; round < rounds; round++)
				printf(" %.1f", rates[kind][i][round]);
			printf("\n");
		}
	return 0;
}
