/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
#include <pthread.h>

#include "fs/core/stats.h"
#include "tests/unit/unit.h"

#define NOW 1000

static struct stats shared;

static void up(void)
{
	shared = (struct stats){NULL};
}

static void down(void)
{
	stats_free(&shared);
}

static struct busy *worker_new(void)
{
	return &stats_block_new(&shared)->busy;
}

START_TEST(workers_add_up)
{
	struct busy *one = worker_new(), *other = worker_new();
	struct busy_file files[4];

	busy_add(one, 7, 100, NOW);
	busy_add(other, 7, 50, NOW + 2);
	busy_add(other, 8, 120, NOW);
	busy_add(other, 9, 0, NOW); /* no bytes moved */
	ck_assert_uint_eq(busy_files(&shared, files, 4, NOW + 2), 2);
	ck_assert_uint_eq(files[0].ino, 7);
	ck_assert_uint_eq(files[0].bytes, 150);
	ck_assert_uint_eq(files[0].touched, NOW + 2);
	ck_assert_uint_eq(files[1].ino, 8);
	ck_assert_uint_eq(files[1].bytes, 120);
	ck_assert_uint_eq(busy_files(&shared, files, 1, NOW), 1);
	ck_assert_uint_eq(files[0].ino, 7);
}
END_TEST

START_TEST(what_is_idle_goes)
{
	struct busy *worker = worker_new();
	struct busy_file files[4];

	busy_add(worker, 7, 100, NOW);
	busy_add(worker, 8, 100, NOW + 1);
	ck_assert_uint_eq(busy_files(&shared, files, 4, NOW + BUSY_SECONDS), 2);
	ck_assert_uint_eq(busy_files(&shared, files, 4, NOW + BUSY_SECONDS + 1), 1);
	ck_assert_uint_eq(files[0].ino, 8);
}
END_TEST

/* Thousands of files with a single access do not hide the two hot files. */
START_TEST(the_busiest_are_found_among_many)
{
	struct busy *worker = worker_new();
	struct busy_file files[BUSY_SLOTS];

	for (uint64_t i = 0; i < 20000; i++) {
		busy_add(worker, 1000 + i, 10, NOW);
		busy_add(worker, i % 3 ? 1 : 2, 100, NOW);
	}
	ck_assert_uint_le(busy_files(&shared, files, BUSY_SLOTS, NOW), BUSY_SLOTS);
	ck_assert_uint_eq(files[0].ino, 1);
	ck_assert_uint_eq(files[1].ino, 2);
	ck_assert_uint_gt(files[0].bytes, files[1].bytes);
}
END_TEST

/* A file that was hot for long makes room for files that are hot now. */
START_TEST(the_past_fades)
{
	struct busy *worker = worker_new();
	struct busy_file files[1];

	for (unsigned i = 0; i < 1000; i++)
		busy_add(worker, 1, 1 << 30, NOW);
	for (unsigned i = 0; i < 64 * BUSY_HALF_LIFE; i++)
		busy_add(worker, 2, 4096, NOW);
	ck_assert_uint_eq(busy_files(&shared, files, 1, NOW), 1);
	ck_assert_uint_eq(files[0].ino, 2);
}
END_TEST

#define FILES 50

static void *work(void *pointer)
{
	for (uint64_t i = 0; i < 100000; i++)
		busy_add(pointer, 1 + i * i % FILES, i, NOW);
	return NULL;
}

/* A reader sees only existing files while the workers count. */
START_TEST(looked_at_while_at_work)
{
	struct busy_file files[64];
	pthread_t threads[3];

	for (int i = 0; i < 3; i++)
		ck_assert_int_eq(pthread_create(&threads[i], NULL, work, worker_new()), 0);
	for (int i = 0; i < 1000; i++) {
		size_t count = busy_files(&shared, files, 64, NOW);

		ck_assert_uint_le(count, FILES);
		for (size_t n = 0; n < count; n++) {
			ck_assert(files[n].ino >= 1 && files[n].ino <= FILES);
			ck_assert_uint_gt(files[n].bytes, 0);
			ck_assert(n == 0 || files[n - 1].bytes >= files[n].bytes);
		}
	}
	for (int i = 0; i < 3; i++)
		pthread_join(threads[i], NULL);
}
END_TEST

int main(void)
{
	TCase *tests;
	Suite *suite = unit_suite("hot_files", &tests, 120);

	tcase_add_checked_fixture(tests, up, down);
	tcase_add_test(tests, workers_add_up);
	tcase_add_test(tests, what_is_idle_goes);
	tcase_add_test(tests, the_busiest_are_found_among_many);
	tcase_add_test(tests, the_past_fades);
	tcase_add_test(tests, looked_at_while_at_work);
	return unit_main(suite);
}
