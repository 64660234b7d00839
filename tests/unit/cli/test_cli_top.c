/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* gpumem top: rates from counters and from the access log. */
#include "client/cli/top/top.h"

#include <string.h>

#include "client/cli/output/output.h"
#include "tests/unit/unit.h"

static struct top top;

static void setup(void)
{
	memset(&top, 0, sizeof(top));
	top.mountpoint = "/mnt";
}

static void teardown(void)
{
	top.log = -1;
	top_close(&top);
}

/* Passes counters as a daemon reports them, with the given MiB read on gpu0 and written on gpu1. */
static void sample(unsigned read, unsigned write, unsigned requests, double now)
{
	json_t *stats = json_pack(
	    "{s:I, s:I, s:I, s:{s:{s:i, s:i}}, s:[{s:s, s:i, s:i, s:i, s:b, s:{s:i}, s:I, s:i},"
	    " {s:s, s:I, s:I}]}",
	    "read_bytes", (json_int_t)read << 20, "write_bytes", (json_int_t)write << 20,
	    "copy_bytes", (json_int_t)0, "operations", "read", "requests", (int)requests, "errors",
	    1, "volumes", "name", "gpu0", "total_bytes", 1000, "free_bytes", 400, "held_bytes", 500,
	    "health", "ok", "bar", "mapped_bytes", 7, "read_bytes", (json_int_t)read << 20,
	    "requests", (int)requests, "name", "gpu1", "read_bytes", (json_int_t)0, "write_bytes",
	    (json_int_t)write << 20);

	ck_assert_ptr_nonnull(stats);
	top_take_stats(&top, stats, now);
	json_decref(stats);
}

static void logged(const char *text)
{
	top_take_log(&top, text, strlen(text));
}

START_TEST(rates_are_of_the_interval)
{
	sample(100, 50, 10, 5.0);
	ck_assert_double_eq(top.rate.read, 0);
	sample(104, 50, 14, 7.0);
	ck_assert_double_eq(top.rate.read, 2 << 20);
	ck_assert_double_eq(top.rate.write, 0);
	ck_assert_double_eq(top.request_rate, 2);
	ck_assert_double_eq(top.error_rate, 0);
	ck_assert_uint_eq(top.n_gpus, 2);
	ck_assert_str_eq(top.gpus[0].name, "gpu0");
	ck_assert_uint_eq(top.gpus[0].used, 600);
	ck_assert_uint_eq(top.gpus[0].mapped, 7);
	ck_assert(strcmp(top.gpus[0].health, "ok") == 0 && strcmp(top.gpus[1].health, "ok") == 0);
	ck_assert_double_eq(top.gpus[0].rate.read, 2 << 20);
	ck_assert_double_eq(top.gpus[0].request_rate, 2);
	ck_assert_double_eq(top.gpus[1].rate.read, 0);
	/* A restarted daemon counts from zero. */
	sample(1, 1, 1, 8.0);
	ck_assert_double_eq(top.rate.read, 0);
	ck_assert_double_eq(top.gpus[0].rate.read, 0);
}
END_TEST

/* An older daemon does not report the rates of each GPU. */
START_TEST(older_daemons_count_all_alone)
{
	json_t *stats =
	    json_pack("{s:I, s:[{s:s}]}", "read_bytes", (json_int_t)1, "volumes", "name", "gpu0");

	top_take_stats(&top, stats, 1);
	ck_assert(!top.gpus[0].counted);
	json_decref(stats);
	sample(0, 0, 0, 2);
	ck_assert(top.gpus[0].counted);
}
END_TEST

/* The bytes of lost log lines are shared out in the proportion of the logged lines. */
START_TEST(log_says_who_had_what)
{
	sample(0, 0, 0, 1);
	logged(
	    "time=1.0 pid=5 uid=0 op=read offset=0 length=99 result=300 latency=0.1 path=/gpu0/a");
	logged(
	    "\ntime=1.0 pid=5 uid=0 op=read offset=0 length=9 result=100 latency=0.1 path=/gpu0/e\n"
	    "lost=17\n"
	    "time=1.0 pid=5 uid=0 op=read offset=0 length=9 result=EIO latency=0.1 path=/gpu0/c\n"
	    "time=1.0 pid=5 uid=0 op=lookup offset=0 length=0 result=0 latency=0.1 path=/gpu0/d\n"
	    "time=1.0 pid=5 uid=0 op=write offset=0 length=9 result=9 latency=0.1 path=/gpu1/b\n");
	sample(400, 8, 4, 2);
	top_end_interval(&top);
	ck_assert_double_eq(top.gpus[0].rate.read, 400 << 20);
	ck_assert_double_eq(top.gpus[1].rate.write, 8 << 20);
	ck_assert_double_eq(top.gpus[1].history[TOP_HISTORY - 1], 8 << 20);
	ck_assert_uint_eq(top.n_files, 3);
	ck_assert_str_eq(top.files[0].path, "gpu0/a");
	ck_assert_double_eq(top.files[0].rate.read, 300 << 20);
	ck_assert_str_eq(top.files[1].path, "gpu0/e");
	ck_assert_double_eq(top.files[1].rate.read, 100 << 20);
	ck_assert_str_eq(top.files[2].path, "gpu1/b");
	ck_assert_double_eq(top.files[2].rate.write, 8 << 20);
	/* An interval later no file is busy. */
	sample(400, 8, 4, 3);
	top_end_interval(&top);
	ck_assert_uint_eq(top.n_files, 0);
	ck_assert_double_eq(top.gpus[1].history[TOP_HISTORY - 2], 8 << 20);
	ck_assert_double_eq(top.gpus[1].history[TOP_HISTORY - 1], 0);
}
END_TEST

START_TEST(more_files_than_it_can_show)
{
	char line[128];

	for (int i = 0; i < 2 * TOP_FILES; i++) {
		snprintf(line, sizeof(line), "t op=write result=5 path=/gpu0/%d\n", i);
		logged(line);
	}
	ck_assert_uint_eq(top.n_files, TOP_FILES);
	ck_assert_double_eq(top.gpus[0].log_bytes.write, 2 * TOP_FILES * 5);
}
END_TEST

START_TEST(endless_lines_are_survived)
{
	static char text[100000];

	memset(text, 'x', sizeof(text));
	top_take_log(&top, text, sizeof(text));
	logged("\nt op=copy result=5 path=/gpu0/a to=/gpu1/b\n");
	ck_assert_uint_eq(top.n_files, 1);
	ck_assert_str_eq(top.files[0].path, "gpu1/b");
	ck_assert_double_eq(top.files[0].bytes.copy, 5);
}
END_TEST

/* Without the access log top shows the daemon's estimates. */
START_TEST(busy_files_of_others_than_root)
{
	json_t *stats =
	    json_pack("{s:[], s:[{s:s, s:i}, {s:s, s:i}, {s:s, s:i}]}", "volumes", "busy", "path",
		      "/gpu0/a\\012b", "recent_bytes", 500, "path", "/gpu1/c", "recent_bytes", 20,
		      "path", "/gpu1/d", "recent_bytes", 0);

	top.log = -1;
	for (int i = 1; i < 3; i++) {
		top_take_stats(&top, stats, i);
		top_end_interval(&top);
		ck_assert_uint_eq(top.n_files, 2);
		ck_assert_str_eq(top.files[0].path, "gpu0/a\\012b");
		ck_assert_uint_eq(top.files[0].recent, 500);
		ck_assert_str_eq(top.files[1].path, "gpu1/c");
	}
	json_decref(stats);
}
END_TEST

struct screen {
	char text[64][512];
	unsigned lines;
};

static void put(void *context, const char *text, bool strong)
{
	struct screen *screen = context;

	(void)strong;
	ck_assert_uint_lt(screen->lines, 64);
	snprintf(screen->text[screen->lines++], 512, "%s", text);
}

START_TEST(screen_fits)
{
	static struct screen screen;

	sample(0, 0, 0, 1);
	logged("t op=read result=5 path=/gpu0/a\n");
	sample(3, 0, 0, 2);
	top_end_interval(&top);
	top_write(&top, 40, 120, put, &screen);
	ck_assert_ptr_nonnull(strstr(screen.text[0], "/mnt"));
	ck_assert_ptr_nonnull(strstr(screen.text[2], "gpu0"));
	ck_assert_ptr_nonnull(strstr(screen.text[2], "3.15 MB/s"));
	ck_assert_ptr_nonnull(strstr(screen.text[6], "/gpu0/a"));
	for (unsigned i = 0; i < screen.lines; i++)
		ck_assert_uint_le(output_width(screen.text[i]), 120);
	screen.lines = 0;
	top_write(&top, 4, 20, put, &screen);
	ck_assert_uint_eq(screen.lines, 4);
	for (unsigned i = 0; i < screen.lines; i++)
		ck_assert_uint_le(output_width(screen.text[i]), 20);
}
END_TEST

static void places_sample(const char *name, unsigned moved, double now)
{
	json_t *stats =
	    json_pack("{s:[{s:s, s:{s:{s:i}, s:{s:i, s:i, s:I}}}]}", "volumes", "name", "gpu0",
		      "places", "gpu", "file_bytes", 3 << 20, name, "size_bytes", 64 << 20,
		      "file_bytes", 5 << 20, "moved_bytes", (json_int_t)moved << 20);

	ck_assert_ptr_nonnull(stats);
	top_take_stats(&top, stats, now);
	json_decref(stats);
}

START_TEST(places_have_rates)
{
	static struct screen screen;
	json_t *json, *host;

	places_sample("host", 10, 1);
	places_sample("host", 14, 3);
	top_end_interval(&top);
	top_write(&top, 40, 120, put, &screen);
	ck_assert_str_eq(screen.text[3], "       files:  gpu 3M of 0  host 5M of 64M +2.10 MB/s");
	json = top_json(&top);
	host = json_object_get(
	    json_object_get(json_array_get(json_object_get(json, "gpus"), 0), "places"), "host");
	ck_assert_int_eq(json_integer_value(json_object_get(host, "file_bytes")), 5 << 20);
	ck_assert_double_eq(json_real_value(json_object_get(host, "moved_bytes_per_second")),
			    2 << 20);
	json_decref(json);
	/* A place of a later version. */
	places_sample("a place whose name is much too long", 14, 4);
	ck_assert_uint_eq(top.gpus[0].n_places, 2);
	ck_assert_str_eq(top.gpus[0].places[1].name, "a place whose n");
}
END_TEST

int main(void)
{
	TCase *tests;
	Suite *suite = unit_suite("cli_top", &tests, 60);

	tcase_add_checked_fixture(tests, setup, teardown);
	tcase_add_test(tests, rates_are_of_the_interval);
	tcase_add_test(tests, older_daemons_count_all_alone);
	tcase_add_test(tests, log_says_who_had_what);
	tcase_add_test(tests, more_files_than_it_can_show);
	tcase_add_test(tests, endless_lines_are_survived);
	tcase_add_test(tests, busy_files_of_others_than_root);
	tcase_add_test(tests, screen_fits);
	tcase_add_test(tests, places_have_rates);
	return unit_main(suite);
}
