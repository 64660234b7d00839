/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* The log line about the time of a takeover. */
#include "fs/core/timeline.h"

#include <string.h>

#include "tests/unit/unit.h"

static void expect(const struct timeline *timeline, const char *wanted)
{
	char text[TIMELINE_TEXT];

	timeline_write(timeline, text);
	ck_assert_str_eq(text, wanted);
}

START_TEST(parts_follow_each_other)
{
	struct timeline timeline = {
	    .at = {1000, 2000, 4000, 8000, 8000, 8100, 9100, 9200, 9300, 10000}};

	expect(&timeline, "reaping 1.0, process 2.0, driver 4.0, preparing 0.0, keeper 0.1, "
			  "journal 1.0, memory 0.1, serving 0.1, first answer 0.7, "
			  "together 9.0 ms; requests waited 9.0 ms at most");
}
END_TEST

/* The new daemon's process is older than the end of the old daemon, so its earlier work costs no
 * time. */
START_TEST(what_was_done_before_is_free)
{
	struct timeline timeline = {
	    .at = {100000, 103000, 4000, 8000, 8000, 103500, 104000, 104500, 105000, 106000}};

	expect(&timeline, "reaping 3.0, process 0.0, driver 0.0, preparing 0.0, keeper 0.5, "
			  "journal 0.5, memory 0.5, serving 0.5, first answer 1.0, "
			  "together 6.0 ms; requests waited 6.0 ms at most");
}
END_TEST

/* A request that comes long after the start of serving did not wait for the takeover. */
START_TEST(an_idle_mount)
{
	struct timeline timeline = {
	    .at = {1000, 2000, 4000, 8000, 8000, 8100, 9100, 9200, 9300, 43000000}, .idle = true};

	expect(&timeline, "reaping 1.0, process 2.0, driver 4.0, preparing 0.0, keeper 0.1, "
			  "journal 1.0, memory 0.1, serving 0.1, together 8.3 ms; "
			  "no request waited");
}
END_TEST

START_TEST(the_longest_line_fits)
{
	struct timeline timeline = {0};
	char text[TIMELINE_TEXT];

	for (int mark = 1; mark < TIMELINE_MARKS; mark++)
		timeline.at[mark] = INT64_MAX / TIMELINE_MARKS * mark;
	timeline_write(&timeline, text);
	ck_assert_ptr_nonnull(strstr(text, " ms at most"));
}
END_TEST

int main(void)
{
	TCase *tcase;
	Suite *suite = unit_suite("timeline", &tcase, 30);

	tcase_add_test(tcase, parts_follow_each_other);
	tcase_add_test(tcase, what_was_done_before_is_free);
	tcase_add_test(tcase, an_idle_mount);
	tcase_add_test(tcase, the_longest_line_fits);
	return unit_main(suite);
}
