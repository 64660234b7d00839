/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* Kills daemons again and again at random moments, while loads use the mount and record the longest
 * operations. GPUMEM_KILLS: the number of kills; GPUMEM_KILL_MS: the longest time between two
 * kills. GPUMEM_KILLS_TOLD: the parent (tests/gpu/recovering.py) kills, and writes a byte to
 * standard input for each kill; the loads end at end of file. */
#ifndef TESTS_MOUNT_KILLS_H
#define TESTS_MOUNT_KILLS_H

#include <signal.h>
#include <stdatomic.h>
#include <time.h>

#include "tests/mount/prog.h"

#define KILLS_MAX	 100000
#define KILL_EACH_MIN_MS 10
/* How long the loads go on after the last kill. */
#define SETTLE_MS 200

struct board {
	atomic_bool stop; /* the loads have to end */
	atomic_uint kills;
	atomic_ullong operations;
	/* Duration in ns of the longest operation that ended after this kill and before the next
	 * kill. */
	_Atomic uint64_t pause[KILLS_MAX + 1];
};

static struct board *board;

static inline void board_make(void)
{
	board = mmap(NULL, sizeof(*board), PROT_READ | PROT_WRITE,
		     MAP_SHARED | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	CHECK(board != MAP_FAILED);
}

static inline unsigned from_environment(const char *name, unsigned usual, unsigned max)
{
	const char *text = getenv(name);
	unsigned long wanted = text ? strtoul(text, NULL, 10) : usual;

	return wanted > max ? max : (unsigned)wanted;
}

static inline uint64_t now_ns(void)
{
	struct timespec time;

	clock_gettime(CLOCK_MONOTONIC, &time);
	return (uint64_t)time.tv_sec * 1000000000 + (uint64_t)time.tv_nsec;
}

/* Records an operation that began at that time and has just ended. */
static inline void board_note(uint64_t began)
{
	uint64_t took = now_ns() - began;
	_Atomic uint64_t *longest = &board->pause[atomic_load(&board->kills)];
	uint64_t before = atomic_load(longest);

	while (took > before && !atomic_compare_exchange_weak(longest, &before, took))
		;
	atomic_fetch_add_explicit(&board->operations, 1, memory_order_relaxed);
}

static inline bool going_on(void)
{
	return !atomic_load_explicit(&board->stop, memory_order_relaxed);
}

/* The serving process: the keeper's child. 0: there is no child at the moment. */
static inline pid_t serving_daemon(pid_t keeper)
{
	char path[64], line[256] = "";

	snprintf(path, sizeof(path), "/proc/%d/task/%d/children", keeper, keeper);
	FILE *file = fopen(path, "re");

	if (!file)
		FAIL("%s: %s", path, strerror(errno));
	if (!fgets(line, sizeof(line), file))
		line[0] = 0;
	fclose(file);
	return (pid_t)strtol(line, NULL, 10);
}

static inline pid_t keeper_pid(void)
{
	return (pid_t)strtol(getenv("DAEMON_PID"), NULL, 10);
}

static inline void sleep_ms(uint64_t ms)
{
	struct timespec time = {.tv_sec = (time_t)(ms / 1000),
				.tv_nsec = (long)(ms % 1000) * 1000000};

	while (nanosleep(&time, &time) < 0)
		;
}

/* The largest number of kills in a row without a served request. */
#define UNSERVED_MAX 3

/* Whether the load has progressed since the last call, or there were too many calls in a row
 * without progress: on a busy machine a daemon may take longer to start than the time between two
 * kills. */
static inline bool may_kill(void)
{
	static unsigned long long before;
	static unsigned unserved;
	unsigned long long now = atomic_load(&board->operations);

	unserved = now == before ? unserved + 1 : 0;
	before = now;
	return unserved < UNSERVED_MAX;
}

/* Kills daemons this number of times, or GPUMEM_KILLS times. */
static inline void kill_daemons(unsigned usual)
{
	unsigned times = from_environment("GPUMEM_KILLS", usual, KILLS_MAX);
	unsigned each_max = from_environment("GPUMEM_KILL_MS", 150, 10000);
	uint64_t state = seed_from_environment(20261121);
	pid_t keeper = keeper_pid();

	while (atomic_load(&board->kills) < times) {
		sleep_ms(KILL_EACH_MIN_MS + random_next(&state) % each_max);
		pid_t daemon = serving_daemon(keeper);

		if (!daemon || !may_kill())
			continue;
		atomic_fetch_add(&board->kills, 1);
		kill(daemon, SIGKILL);
	}
}

static inline void hear_of_kills(void)
{
	char byte;

	while (read(STDIN_FILENO, &byte, 1) > 0)
		if (atomic_load(&board->kills) < KILLS_MAX)
			atomic_fetch_add(&board->kills, 1);
}

static inline int by_size(const void *a, const void *b)
{
	uint64_t one = *(const uint64_t *)a, two = *(const uint64_t *)b;

	return one < two ? -1 : one > two;
}

/* Prints the pauses, for people. */
static inline void board_tell(void)
{
	unsigned kills = atomic_load(&board->kills), n = 0;
	uint64_t *pauses = calloc(kills + 1, sizeof(*pauses));

	for (unsigned i = 1; i <= kills; i++)
		if (board->pause[i])
			pauses[n++] = board->pause[i];
	qsort(pauses, n, sizeof(*pauses), by_size);
	if (n)
		printf("%u kills, %llu operations; longest operation after a kill: p50 %.1f ms, "
		       "p99 %.1f ms, max %.1f ms\n",
		       kills, (unsigned long long)board->operations, (double)pauses[n / 2] / 1e6,
		       (double)pauses[n * 99 / 100] / 1e6, (double)pauses[n - 1] / 1e6);
	free(pauses);
}

/* Runs every load in its own process while daemons are killed. */
static inline void under_kills(unsigned usual, void (*const loads[])(int), int n_loads)
{
	board_make();
	for (int i = 0; i < n_loads; i++)
		spawn(loads[i], i);
	if (getenv("GPUMEM_KILLS_TOLD")) {
		hear_of_kills();
	} else {
		kill_daemons(usual);
		sleep_ms(SETTLE_MS);
	}
	atomic_store(&board->stop, true);
	join_all(n_loads);
	board_tell();
}

#endif
