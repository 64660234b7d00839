/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* Stores by several threads: every byte in its place when the call returns, whoever helps, and in a
 * child that has no helpers. */
#include "client/preload/crew.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "client/preload/own.h"
#include "tests/unit/unit.h"

#define LARGEST (3UL << 20)
#ifdef __SANITIZE_THREAD__
#define ROUNDS 10
#else
#define ROUNDS 60
#endif
#define THREADS 4

_Thread_local int own_inside;

static unsigned char byte_of(unsigned seed, size_t at)
{
	return (unsigned char)(seed * 31 + at * 7 + at / 4096);
}

/* A store at an odd place, of any size, between bytes that stay. */
static void one_store(unsigned char *to, unsigned char *from, unsigned seed)
{
	size_t bytes = 1 + seed * 7919UL * 4099UL % (LARGEST - 200), offset = seed % 97;

	for (size_t i = 0; i < bytes; i++)
		from[i] = byte_of(seed, i);
	memset(to, 0xee, bytes + 200);
	crew_store((char *)to + offset, (const char *)from, bytes);
	if (memcmp(to + offset, from, bytes) != 0)
		ck_abort_msg("%zu bytes at %zu are not what was stored", bytes, offset);
	for (size_t i = 0; i < offset; i++)
		if (to[i] != 0xee)
			ck_abort_msg("a byte before them changed");
	for (size_t i = offset + bytes; i < bytes + 200; i++)
		if (to[i] != 0xee)
			ck_abort_msg("a byte behind them changed");
}

static void *storer(void *number)
{
	unsigned char *to = malloc(LARGEST), *from = malloc(LARGEST);

	for (unsigned i = 0; i < ROUNDS; i++)
		one_store(to, from, (unsigned)(uintptr_t)number * ROUNDS + i);
	free(to);
	free(from);
	return NULL;
}

START_TEST(every_byte)
{
	crew_start((unsigned)_i);
	storer(NULL);
}
END_TEST

START_TEST(who_has_no_helpers_does_it_alone)
{
	pthread_t threads[THREADS];

	crew_start(CREW_MAX);
	for (uintptr_t i = 0; i < THREADS; i++)
		ck_assert_int_eq(pthread_create(&threads[i], NULL, storer, (void *)i), 0);
	for (unsigned i = 0; i < THREADS; i++)
		pthread_join(threads[i], NULL);
}
END_TEST

#ifndef __SANITIZE_THREAD__ /* which ends a child of threads that makes threads */
/* Forks while the helpers look, and while they sleep. */
START_TEST(a_child_starts_its_own)
{
	unsigned char *to = malloc(LARGEST), *from = malloc(LARGEST);

	crew_start(CREW_MAX);
	for (unsigned i = 1; i <= 20; i++) {
		one_store(to, from, i * 101);
		usleep(i % 2 ? 0 : 2000);
		pid_t child = fork();
		ck_assert_int_ge(child, 0);
		if (child == 0) {
			crew_forked();
			for (unsigned j = 0; j < 10; j++)
				one_store(to, from, i * 1000 + j);
			_exit(0);
		}
		int status;
		ck_assert_int_eq(waitpid(child, &status, 0), child);
		ck_assert_int_eq(status, 0);
	}
	free(to);
	free(from);
}
END_TEST
#endif

int main(void)
{
	TCase *tests;
	Suite *suite = unit_suite("preload crew", &tests, 120);

	tcase_add_loop_test(tests, every_byte, 0, CREW_MAX + 1);
	tcase_add_test(tests, who_has_no_helpers_does_it_alone);
#ifndef __SANITIZE_THREAD__
	tcase_add_test(tests, a_child_starts_its_own);
#endif
	return unit_main(suite);
}
