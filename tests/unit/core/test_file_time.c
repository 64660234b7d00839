/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* Times of files as numbers: the way there and back, and the order. */
#include "fs/core/file_time.h"

#include "tests/unit/unit.h"

/* Ascending. */
static const struct timespec times[] = {
    {-FILE_TIME_MAX, 0},
    {-62135596800, 0},
    {-FILE_TIME_EXACT - 1, 0},
    {-FILE_TIME_EXACT, 0},
    {-FILE_TIME_EXACT, 1},
    {-1, 0},
    {-1, 999999999},
    {0, 0},
    {0, 1},
    {1700000000, 123456789},
    {FILE_TIME_EXACT - 1, 999999999},
    {FILE_TIME_EXACT, 0},
    {FILE_TIME_EXACT + 1, 0},
    {253402300799, 0},
    {FILE_TIME_MAX, 0},
};

START_TEST(times_come_back_in_order)
{
	for (size_t i = 0; i < sizeof(times) / sizeof(times[0]); i++) {
		int64_t time = file_time_from_spec(&times[i]);
		struct timespec back = file_time_to_spec(time);

		ck_assert(file_time_fits(&times[i]));
		ck_assert_int_eq(back.tv_sec, times[i].tv_sec);
		ck_assert_int_eq(back.tv_nsec, times[i].tv_nsec);
		if (i)
			ck_assert_int_gt(time, file_time_from_spec(&times[i - 1]));
	}
}
END_TEST

START_TEST(far_times_are_rounded_down)
{
	struct timespec later = {FILE_TIME_EXACT, 999999999};
	struct timespec earlier = {-FILE_TIME_EXACT - 1, 999999999};

	ck_assert_int_eq(file_time_to_spec(file_time_from_spec(&later)).tv_nsec, 0);
	ck_assert_int_eq(file_time_to_spec(file_time_from_spec(&later)).tv_sec, FILE_TIME_EXACT);
	ck_assert_int_eq(file_time_to_spec(file_time_from_spec(&earlier)).tv_sec,
			 -FILE_TIME_EXACT - 1);
}
END_TEST

START_TEST(times_that_do_not_fit)
{
	ck_assert(!file_time_fits(&(struct timespec){FILE_TIME_MAX + 1, 0}));
	ck_assert(!file_time_fits(&(struct timespec){-FILE_TIME_MAX - 1, 0}));
	ck_assert(!file_time_fits(&(struct timespec){INT64_MAX, 0}));
	ck_assert(!file_time_fits(&(struct timespec){INT64_MIN, 0}));
}
END_TEST

/* Earlier versions stored the ends of the range for times beyond 2262 and before 1677. */
START_TEST(clamped_times_of_earlier_versions)
{
	ck_assert_int_eq(file_time_to_spec(INT64_MAX).tv_sec, 9223372036);
	ck_assert_int_eq(file_time_to_spec(INT64_MIN).tv_sec, -9223372037);
}
END_TEST

int main(void)
{
	TCase *tests;
	Suite *suite = unit_suite("file_time", &tests, 30);

	tcase_add_test(tests, times_come_back_in_order);
	tcase_add_test(tests, far_times_are_rounded_down);
	tcase_add_test(tests, times_that_do_not_fit);
	tcase_add_test(tests, clamped_times_of_earlier_versions);
	return unit_main(suite);
}
