/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* Shared code of every unit test: the run of a suite, and the numbers of random tests. */
#ifndef TESTS_UNIT_UNIT_H
#define TESTS_UNIT_UNIT_H

#include <check.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#include "common/number.h"

#define UNIT_DEFAULT_SEED 20240607

/* Returns the same seed in every run, or the seed in GPUMEM_SEED; a GPUMEM_SEED that is no number
 * ends the program. */
static inline uint64_t unit_seed(void)
{
	const char *text = getenv("GPUMEM_SEED");
	uint64_t seed = UNIT_DEFAULT_SEED;
	if (text && parse_u64(text, 0, UINT64_MAX, &seed) < 0) {
		fprintf(stderr, "GPUMEM_SEED=%s is not a number\n", text);
		exit(1);
	}
	return seed;
}

/* The next number of a sequence (splitmix64); start with *state = unit_seed(). */
static inline uint64_t unit_random(uint64_t *state)
{
	uint64_t mixed = *state += UINT64_C(0x9e3779b97f4a7c15);
	mixed = (mixed ^ mixed >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
	mixed = (mixed ^ mixed >> 27) * UINT64_C(0x94d049bb133111eb);
	return mixed ^ mixed >> 31;
}

/* The number of rounds of a random test: all in `make check-long`, which sets GPUMEM_LONG. */
static inline int unit_rounds(int few, int all)
{
	return getenv("GPUMEM_LONG") ? all : few;
}

static inline void unit_fill(void *memory, size_t bytes, uint64_t *state)
{
	for (size_t i = 0; i < bytes; i++)
		((unsigned char *)memory)[i] = (unsigned char)unit_random(state);
}

/* False while the memory of a test is counted: libcheck allocates some to note a place. */
static bool unit_notes_places = true;

/* libcheck notes the place of every assertion that passes with a system call, and prints the last
 * place after a crash or a timeout ("after this point"). In loops over bytes the calls took most of
 * the time: only the first place in each millisecond is noted. The linker puts this function in
 * front of libcheck's. */
void __real__mark_point(const char *file, int line);
void __wrap__mark_point(const char *file, int line);
void __wrap__mark_point(const char *file, int line)
{
	static _Thread_local uint64_t noted;
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	uint64_t millisecond = (uint64_t)now.tv_sec * 1000 + (uint64_t)now.tv_nsec / 1000000;
	if (millisecond == noted || !unit_notes_places)
		return;
	noted = millisecond;
	__real__mark_point(file, line);
}

/* Waits for an event. There is no other limit than the test's, after which libcheck names this
 * place. */
#define UNIT_AWAIT(condition)                                                                      \
	do {                                                                                       \
		while (!(condition)) {                                                             \
			mark_point();                                                              \
			usleep(1000);                                                              \
		}                                                                                  \
	} while (0)

/* Creates a suite of a single test case, as most test programs need. seconds is the time limit of
 * each test, generous enough for a sanitizer on a busy machine. */
static inline Suite *unit_suite(const char *name, TCase **tcase, double seconds)
{
	Suite *suite = suite_create(name);
	*tcase = tcase_create(name);
	tcase_set_timeout(*tcase, seconds);
	suite_add_tcase(suite, *tcase);
	return suite;
}

/* Runs the suite, as verbose as CK_VERBOSITY says, and returns the exit status of the test program.
 */
static inline int unit_main(Suite *suite)
{
	SRunner *runner = srunner_create(suite);
	srunner_run_all(runner, CK_ENV);
	int failed = srunner_ntests_failed(runner);
	srunner_free(runner);
	if (failed)
		fprintf(stderr, "random tests ran with GPUMEM_SEED=%" PRIu64 "\n", unit_seed());
	return failed ? 1 : 0;
}

#endif
