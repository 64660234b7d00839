/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
#include "common/background.h"

#include <sched.h>

#include "tests/unit/unit.h"

static atomic_int rounds, ends;

static void count_rounds(struct background *background)
{
	int ms = *(const int *)background->context;

	while (background_wait(background, ms))
		atomic_fetch_add(&rounds, 1);
	atomic_fetch_add(&ends, 1);
}

static void rounds_await(int n)
{
	while (atomic_load(&rounds) < n)
		sched_yield();
}

START_TEST(each_wake_is_a_round)
{
	struct background background = {0};
	int ms = -1;

	background_wake(&background);
	ck_assert_int_eq(background_start(&background, count_rounds, &ms), 0);
	for (int i = 1; i <= 1000; i++) {
		background_wake(&background);
		rounds_await(i);
	}
	background_stop(&background);
	ck_assert_int_eq(atomic_load(&rounds), 1000);
	ck_assert_int_eq(atomic_load(&ends), 1);
	background_wake(&background);
	background_stop(&background);
}
END_TEST

START_TEST(time_passes_without_a_wake)
{
	struct background background = {0};
	int ms = 1;

	ck_assert_int_eq(background_start(&background, count_rounds, &ms), 0);
	rounds_await(3);
	background_stop(&background);
}
END_TEST

START_TEST(a_thread_starts_again)
{
	struct background background = {0};
	int ms = -1;

	for (int i = 1; i <= 3; i++) {
		ck_assert_int_eq(background_start(&background, count_rounds, &ms), 0);
		background_wake(&background);
		rounds_await(i);
		background_stop(&background);
		ck_assert_int_eq(atomic_load(&ends), i);
	}
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("background");
	TCase *tcase = tcase_create("background");

	suite_add_tcase(suite, tcase);
	tcase_add_test(tcase, each_wake_is_a_round);
	tcase_add_test(tcase, time_passes_without_a_wake);
	tcase_add_test(tcase, a_thread_starts_again);
	return unit_main(suite);
}
