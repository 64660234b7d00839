/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* The bench's statistics, its data, the order of its runs and its texts. */
#include <string.h>

#include "tests/bench/bench.h"
#include "tests/bench/measure.h"
#include "tests/bench/report.h"
#include "tests/unit/unit.h"

#define TARGETS 3
#define REPS	4

/* --- statistics */

START_TEST(median_is_the_middle)
{
	double one[] = {7}, odd[] = {9, 1, 5}, even[] = {8, 2, 4, 6};

	ck_assert_double_eq(measure_median(one, 1), 7);
	ck_assert_double_eq(measure_median(odd, 3), 5);
	ck_assert_double_eq(measure_median(even, 4), 5);
}
END_TEST

START_TEST(percentile_is_a_value_that_was_measured)
{
	double values[200];

	for (unsigned n = 1; n <= 200; n++) {
		for (unsigned i = 0; i < n; i++)
			values[i] = n - i;
		ck_assert_double_eq(measure_percentile(values, n, 0), 1);
		ck_assert_double_eq(measure_percentile(values, n, 1), n);
		ck_assert_double_eq(measure_percentile(values, n, 0.5), (n + 1) / 2);
		ck_assert_double_eq(measure_percentile(values, n, 0.99), (99 * n + 99) / 100);
	}
}
END_TEST

/* Four lanes take turns at a device that does a single operation per second. */
START_TEST(rate_is_what_the_device_does)
{
	struct stretch lanes[] = {{3, 10, 19}, {3, 10, 20}, {3, 10, 21}, {3, 10, 22}};

	ck_assert_double_eq(measure_rate(lanes, 4), 1);
	ck_assert_double_eq(measure_rate(lanes, 1), 3.0 / 9);
	lanes[3].begun = 7;
	ck_assert_double_eq(measure_rate(lanes, 4), 12.0 / 15);
}
END_TEST

START_TEST(samples_end_where_the_room_does)
{
	struct samples samples;

	ck_assert_int_eq(samples_open(&samples, 2), 0);
	for (unsigned i = 1; i <= 3; i++)
		samples_add(&samples, i);
	ck_assert_uint_eq(samples.n, 2);
	ck_assert_double_eq(samples.at[1], 2);
	samples_close(&samples);
}
END_TEST

/* --- data */

START_TEST(only_the_right_bytes_pass)
{
	struct data data;
	char kept[DATA_PAGE];

	ck_assert_int_eq(data_open(&data, 2, 4 * DATA_PAGE, 8 * DATA_PAGE), 0);
	const char *source = data_source(&data, 1);

	ck_assert(data_is_right(&data, 1, 5 * DATA_PAGE, source + DATA_PAGE, DATA_PAGE));
	ck_assert(!data_is_right(&data, 0, 5 * DATA_PAGE, source + DATA_PAGE, DATA_PAGE));
	ck_assert(!data_is_right(&data, 1, 6 * DATA_PAGE, source + DATA_PAGE, DATA_PAGE));
	data_poison(data_sink(&data, 1), DATA_PAGE);
	ck_assert(!data_is_right(&data, 1, 0, data_sink(&data, 1), DATA_PAGE));
	for (unsigned page = 0; page < 4; page++) {
		memcpy(kept, source + page * DATA_PAGE, DATA_PAGE);
		data_stamp(&data);
		ck_assert(!data_is_right(&data, 1, page * DATA_PAGE, kept, DATA_PAGE));
	}
	data_close(&data);
}
END_TEST

/* --- the engine, on a case that notes the called targets */

static char calls[64];
static unsigned n_calls;
static enum figure_state gives[TARGETS];
static bool verifies;

static void two_points(struct bench *bench)
{
	point_add(bench, &(struct point){.label = "first", .unit = UNIT_SECONDS});
	point_add(bench, &(struct point){.label = "second", .unit = UNIT_SECONDS});
}

static void note(struct bench *bench, const struct point *points, unsigned n, struct target *target,
		 struct figure *figures)
{
	unsigned index = (unsigned)(target - bench->targets);

	calls[n_calls++] = (char)('a' + index);
	(void)points;
	for (unsigned i = 0; i < n; i++) {
		figures[i].verified = verifies && bench->rep == 0;
		if (gives[index] == FIGURE_SKIPPED)
			figure_skip(&figures[i], "not %s", target->name);
		else if (gives[index] == FIGURE_WRONG)
			figure_wrong(&figures[i], "bad");
		else
			figure_good(&figures[i], (REPS - bench->rep) * 10.0, bench->rep);
	}
}

static const struct bench_case single = {.name = "single", .points = two_points, .run = note};
static const struct bench_case together = {
    .name = "together", .rounds = CASE_TOGETHER, .points = two_points, .run = note};

static struct bench bench;

static void run_case(const struct bench_case *of)
{
	bench = (struct bench){.reps = REPS, .n_targets = TARGETS, .deadline = measure_now() + 1e6};
	for (unsigned i = 0; i < TARGETS; i++)
		bench.targets[i].name = "it";
	memset(calls, 0, sizeof(calls));
	n_calls = 0;
	bench_run_case(&bench, of);
}

static void setup(void)
{
	verifies = true;
	for (unsigned i = 0; i < TARGETS; i++)
		gives[i] = FIGURE_GOOD;
}

static void teardown(void)
{
	for (unsigned i = 0; i < bench.n_reports; i++) {
		free(bench.reports[i].points);
		free(bench.reports[i].results);
	}
	free(bench.reports);
	bench = (struct bench){0};
}

/* Each target is called once in a round. */
static void expect_rounds(unsigned rounds, const char *targets)
{
	size_t each = strlen(targets);

	ck_assert_uint_eq(n_calls, rounds * each);
	for (unsigned round = 0; round < rounds; round++)
		for (const char *at = targets; *at; at++)
			ck_assert_ptr_nonnull(memchr(calls + round * each, *at, each));
}

START_TEST(repetitions_go_over_all_targets_in_turn)
{
	run_case(&single);
	expect_rounds(2 * REPS, "abc");
	ck_assert_uint_eq(bench_failures(&bench), 0);
	const struct result *result = &bench.reports[0].results[TARGETS + 1];

	ck_assert_uint_eq(result->n, REPS);
	ck_assert_double_eq(result->value, 25);
	ck_assert_double_eq(result->p10, 10);
	ck_assert_double_eq(result->p90, 40);
	ck_assert_double_eq(result->p99, 1.5);
}
END_TEST

START_TEST(not_always_in_the_same_order)
{
	unsigned same = 0;

	run_case(&single);
	for (unsigned round = 1; round < 2 * REPS; round++)
		same += memcmp(calls, calls + (size_t)round * TARGETS, TARGETS) == 0;
	ck_assert_uint_lt(same, 2 * REPS - 1);
}
END_TEST

START_TEST(points_that_hang_together_are_one_round)
{
	run_case(&together);
	expect_rounds(REPS, "abc");
	ck_assert_uint_eq(bench.reports[0].results[TARGETS].n, REPS);
}
END_TEST

START_TEST(who_skips_is_not_asked_again)
{
	gives[1] = FIGURE_SKIPPED;
	run_case(&together);
	ck_assert_uint_eq(n_calls, 1 + 2 * REPS);
	ck_assert_ptr_eq(memchr(strchr(calls, 'b') + 1, 'b', sizeof(calls) / 2), NULL);
	ck_assert_str_eq(bench.reports[0].results[1].why, "not it");
	ck_assert_uint_eq(bench_failures(&bench), 0);
}
END_TEST

START_TEST(wrong_bytes_fail)
{
	gives[2] = FIGURE_WRONG;
	run_case(&together);
	ck_assert_uint_eq(bench_failures(&bench), 2);
}
END_TEST

START_TEST(what_nobody_compared_fails)
{
	verifies = false;
	run_case(&together);
	ck_assert_uint_eq(bench_failures(&bench), 2 * TARGETS);
}
END_TEST

START_TEST(a_daemon_that_is_missing_fails)
{
	run_case(&single);
	snprintf(bench.targets[1].absent, WHY_MAX, "does not mount");
	bench.targets[1].kind = TARGET_GPU;
	ck_assert_uint_eq(bench_failures(&bench), 1);
	bench.targets[1].kind = TARGET_PEER;
	ck_assert_uint_eq(bench_failures(&bench), 0);
}
END_TEST

START_TEST(past_the_budget_it_says_so)
{
	run_case(&single);
	teardown();
	bench = (struct bench){.reps = REPS, .n_targets = TARGETS, .deadline = measure_now() - 1};
	n_calls = 0;
	bench_run_case(&bench, &single);
	ck_assert_uint_eq(n_calls, 0);
	ck_assert_int_eq(bench.reports[0].results[0].state, FIGURE_SKIPPED);
	ck_assert_ptr_nonnull(strstr(bench.reports[0].results[0].why, "--budget"));
}
END_TEST

/* --- texts */

START_TEST(values_have_three_digits)
{
	static const struct {
		enum unit unit;
		double value;
		const char *text;
	} wanted[] = {
	    {UNIT_RATE, 0, "0.00 B/s"},	       {UNIT_RATE, 5.3201e9, "5.32 GB/s"},
	    {UNIT_RATE, 999.7, "1.00 kB/s"},   {UNIT_RATE, 55.24e9, "55.2 GB/s"},
	    {UNIT_RATE, 210.4e9, "210 GB/s"},  {UNIT_SECONDS, 6.04e-6, "6.04 us"},
	    {UNIT_SECONDS, 0.5e-9, "0.50 ns"}, {UNIT_ELAPSED, 12.3, "12.3 s"},
	    {UNIT_OPS, 45120, "45.1 k/s"},     {UNIT_BYTES, 535, "535 B"},
	    {UNIT_BYTES, 3 << 20, "3.00 MiB"},
	};
	char text[FIGURE_TEXT_MAX];

	for (unsigned i = 0; i < sizeof(wanted) / sizeof(wanted[0]); i++)
		ck_assert_str_eq(report_value(wanted[i].unit, wanted[i].value, text),
				 wanted[i].text);
}
END_TEST

START_TEST(sizes_are_exact)
{
	char text[FIGURE_TEXT_MAX];

	ck_assert_str_eq(report_size(64, text), "64 B");
	ck_assert_str_eq(report_size(4096, text), "4 KiB");
	ck_assert_str_eq(report_size(16 << 20, text), "16 MiB");
	ck_assert_str_eq(report_size(4097, text), "4097 B");
	ck_assert_str_eq(report_size(0, text), "0 B");
	ck_assert_str_eq(report_size(1536 << 10, text), "1536 KiB");
	ck_assert_str_eq(report_size(1ULL << 50, text), "1024 TiB");
	ck_assert_str_eq(report_size(UINT64_MAX, text), "18446744073709551615 B");
}
END_TEST

int main(void)
{
	TCase *tcase;
	Suite *suite = unit_suite("bench", &tcase, 20);

	tcase_add_checked_fixture(tcase, setup, teardown);
	tcase_add_test(tcase, median_is_the_middle);
	tcase_add_test(tcase, percentile_is_a_value_that_was_measured);
	tcase_add_test(tcase, rate_is_what_the_device_does);
	tcase_add_test(tcase, samples_end_where_the_room_does);
	tcase_add_test(tcase, only_the_right_bytes_pass);
	tcase_add_test(tcase, repetitions_go_over_all_targets_in_turn);
	tcase_add_test(tcase, not_always_in_the_same_order);
	tcase_add_test(tcase, points_that_hang_together_are_one_round);
	tcase_add_test(tcase, who_skips_is_not_asked_again);
	tcase_add_test(tcase, wrong_bytes_fail);
	tcase_add_test(tcase, what_nobody_compared_fails);
	tcase_add_test(tcase, a_daemon_that_is_missing_fails);
	tcase_add_test(tcase, past_the_budget_it_says_so);
	tcase_add_test(tcase, values_have_three_digits);
	tcase_add_test(tcase, sizes_are_exact);
	return unit_main(suite);
}
