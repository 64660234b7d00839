/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
#include "fs/trace/trace.h"

#include <jansson.h>
#include <pthread.h>
#include <string.h>

#include "common/text/utf8.h"
#include "tests/unit/unit.h"

static struct trace *trace;

static void up(void)
{
	ck_assert_int_eq(trace_new(&trace), 0);
}

static void down(void)
{
	trace_free(trace);
}

/* The text as a reader gets it: valid JSON, even while events are added. */
static json_t *written(void)
{
	char *text = NULL;
	size_t length = 0;
	FILE *out = open_memstream(&text, &length);
	json_error_t error;

	ck_assert_int_eq(trace_write(trace, "/mnt/\"gpumem\"\xff", out), 0);
	fclose(out);
	json_t *json = json_loads(text, JSON_REJECT_DUPLICATES, &error);

	ck_assert_msg(json, "line %d: %s in: %s", error.line, error.text, text);
	free(text);
	return json;
}

static size_t events_in(json_t *json)
{
	return json_array_size(json_object_get(json, "traceEvents")) - 1; /* the title */
}

static json_t *event_at(json_t *json, size_t index)
{
	return json_array_get(json_object_get(json, "traceEvents"), index + 1);
}

static void add(const char *path, int64_t bytes)
{
	struct trace_event event = {.at = trace->began + 5001,
				    .lasted = 1500,
				    .name = "write",
				    .bytes = bytes,
				    .other_bytes = -1};

	event.pid = 7;
	trace_path(&event, path);
	trace_add(trace, &event);
}

START_TEST(nothing_before_the_start)
{
	add("/gpu0/a", 1);
	json_t *json = written();

	ck_assert_uint_eq(events_in(json), 0);
	json_decref(json);
}
END_TEST

START_TEST(events_are_told)
{
	struct trace_event volume = {
	    .at = trace->began, .name = "gpu0", .bytes = 10, .other_bytes = 2};
	const char *name, *phase, *path, *category;
	json_int_t bytes, files, other;
	double at, lasted;

	ck_assert_int_eq(trace_start(trace), 0);
	volume.at = trace->began - 1; /* before the trace began */
	add("/gpu0/a", -4096);
	trace_add(trace, &volume);
	json_t *json = written();

	ck_assert_uint_eq(events_in(json), 2);
	ck_assert_int_eq(json_unpack(event_at(json, 0), "{s:s,s:s,s:s,s:F,s:F,s:{s:I,s:s}}", "name",
				     &name, "ph", &phase, "cat", &category, "ts", &at, "dur",
				     &lasted, "args", "bytes", &bytes, "path", &path),
			 0);
	ck_assert_str_eq(name, "write");
	ck_assert_str_eq(phase, "X");
	ck_assert_str_eq(category, "given back");
	ck_assert_str_eq(path, "/gpu0/a");
	ck_assert_int_eq(bytes, -4096);
	ck_assert(at == 5.001 && lasted == 1.5);
	ck_assert_int_eq(json_unpack(event_at(json, 1), "{s:s,s:s,s:F,s:{s:I,s:I}}", "name", &name,
				     "ph", &phase, "ts", &at, "args", "files", &files, "other",
				     &other),
			 0);
	ck_assert_str_eq(name, "gpu0 bytes");
	ck_assert_str_eq(phase, "C");
	ck_assert(at == 0 && files == 10 && other == 2);
	json_decref(json);
}
END_TEST

/* Moves between places, and volumes with several places. */
START_TEST(places_are_told)
{
	struct trace_event event = {.name = "evict", .lasted = 1, .other_bytes = -1};
	const char *category;
	json_int_t host, disk;

	ck_assert_int_eq(trace_start(trace), 0);
	event.in[PLACE_HOST] = -8192;
	event.in[PLACE_DISK] = 8192;
	trace_add(trace, &event);
	event.other_bytes = 0;
	event.in[PLACE_HOST] = 5;
	event.in[PLACE_DISK] = -1;
	trace_add(trace, &event);
	json_t *json = written();

	ck_assert_int_eq(json_unpack(event_at(json, 0), "{s:s,s:{s:I,s:I}}", "cat", &category,
				     "args", "host", &host, "disk", &disk),
			 0);
	ck_assert_str_eq(category, "moved");
	ck_assert(host == -8192 && disk == 8192);
	ck_assert_int_eq(json_unpack(event_at(json, 1), "{s:{s:I}}", "args", "host", &host), 0);
	ck_assert_int_eq(host, 5);
	ck_assert_ptr_null(json_object_get(json_object_get(event_at(json, 1), "args"), "disk"));
	json_decref(json);
}
END_TEST

/* A path may have any bytes; of a long path the end is kept. */
START_TEST(names_of_any_bytes)
{
	static const char bad[] = "/gpu0/\x01\n\"\\\xff\xc3\xb6\xe2\x82";
	char path[1000];
	const char *shown;

	ck_assert_int_eq(trace_start(trace), 0);
	add(bad, 1);
	memset(path, 'x', sizeof(path) - 1);
	strcpy(path + sizeof(path) - 5, "/end");
	add(path, 1);
	json_t *json = written();

	ck_assert_int_eq(json_unpack(event_at(json, 0), "{s:{s:s}}", "args", "path", &shown), 0);
	ck_assert_str_eq(shown, "/gpu0/\\001\\012\"\\134\\377\xc3\xb6\\342\\202");
	ck_assert_int_eq(json_unpack(event_at(json, 1), "{s:{s:s}}", "args", "path", &shown), 0);
	ck_assert_uint_eq(strlen(shown), TRACE_PATH_BYTES - 1);
	ck_assert_str_eq(shown + strlen(shown) - 5, "x/end");
	ck_assert_int_eq(strncmp(shown, "...x", 4), 0);
	json_decref(json);
}
END_TEST

START_TEST(the_oldest_are_lost)
{
	json_int_t lost, bytes;

	ck_assert_int_eq(trace_start(trace), 0);
	for (int i = 1; i <= TRACE_EVENTS + 3; i++)
		add("/a", i);
	json_t *json = written();

	ck_assert_int_eq(json_unpack(json, "{s:{s:I}}", "otherData", "lost", &lost), 0);
	ck_assert_int_eq(lost, 3);
	ck_assert_uint_eq(events_in(json), TRACE_EVENTS);
	json_unpack(event_at(json, 0), "{s:{s:I}}", "args", "bytes", &bytes);
	ck_assert_int_eq(bytes, 4);
	json_decref(json);
	ck_assert_int_eq(trace_start(trace), 0);
	json = written();
	ck_assert_uint_eq(events_in(json), 0);
	json_decref(json);
}
END_TEST

static void *add_many(void *path)
{
	for (int i = 1; i < TRACE_EVENTS; i++)
		add(path, i);
	return NULL;
}

START_TEST(valid_at_every_read)
{
	pthread_t threads[3];

	ck_assert_int_eq(trace_start(trace), 0);
	for (int i = 0; i < 3; i++)
		ck_assert_int_eq(pthread_create(&threads[i], NULL, add_many, "/gpu0/\xff"), 0);
	for (int i = 0; i < 10; i++)
		json_decref(written());
	for (int i = 0; i < 3; i++)
		pthread_join(threads[i], NULL);
	json_t *json = written();

	ck_assert_uint_eq(events_in(json), TRACE_EVENTS);
	json_decref(json);
}
END_TEST

int main(void)
{
	TCase *tests;
	Suite *suite = unit_suite("trace", &tests, 120);

	tcase_add_checked_fixture(tests, up, down);
	tcase_add_test(tests, nothing_before_the_start);
	tcase_add_test(tests, events_are_told);
	tcase_add_test(tests, places_are_told);
	tcase_add_test(tests, names_of_any_bytes);
	tcase_add_test(tests, the_oldest_are_lost);
	tcase_add_test(tests, valid_at_every_read);
	return unit_main(suite);
}
