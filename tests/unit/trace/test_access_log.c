/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
#include "fs/trace/access_log.h"

#include <errno.h>
#include <limits.h>
#include <pthread.h>
#include <stdatomic.h>
#include <string.h>

#include "tests/unit/unit.h"

static struct access_log *shared;

static void up(void)
{
	ck_assert_int_eq(access_log_new(&shared), 0);
}

static void down(void)
{
	access_log_free(shared);
}

static struct access_reader *reader_new(void)
{
	struct access_reader *reader;

	ck_assert_int_eq(access_log_open(shared, &reader), 0);
	return reader;
}

static void add(const char *path, const char *to, int64_t result)
{
	struct access_entry entry = {
	    .time = {.tv_sec = 12, .tv_nsec = 34},
	    .pid = 56,
	    .uid = 78,
	    .operation = "read",
	    .offset = 9,
	    .length = 10,
	    .result = result,
	    .latency = 1000000011,
	    .path = path,
	    .to = to,
	};

	access_log_add(shared, &entry);
}

/* Returns the next text, of at most the given number of bytes. */
static const char *take(struct access_reader *reader, size_t bytes)
{
	static char text[2 * ACCESS_RING_BYTES];

	ck_assert_uint_lt(bytes, sizeof(text));
	text[access_log_take(shared, reader, text, bytes)] = 0;
	return text;
}

#define HEAD "time=12.000000034 pid=56 uid=78 op=read offset=9 length=10 "

START_TEST(a_line_says_it_all)
{
	struct access_reader *reader = reader_new();

	add("/gpu0/a", NULL, 7);
	ck_assert_str_eq(take(reader, 1000), HEAD "result=7 latency=1.000000011 path=/gpu0/a\n");
	add("/gpu0/a", "/gpu1/b", -ENOSPC);
	ck_assert_str_eq(take(reader, 1000),
			 HEAD "result=ENOSPC latency=1.000000011 path=/gpu0/a to=/gpu1/b\n");
	ck_assert_str_eq(take(reader, 1000), "");
	ck_assert(access_log_close(shared, reader));
}
END_TEST

/* A name cannot forge a field or a line. */
START_TEST(names_are_escaped)
{
	struct access_reader *reader = reader_new();

	add("/gpu0/a b\nc\\d\te\x7f\xff\xc2\x9b\xc3\xb6", NULL, 0);
	ck_assert_str_eq(take(reader, 1000),
			 HEAD "result=0 latency=1.000000011 "
			      "path=/gpu0/a\\040b\\012c\\134d\\011e\\177\\377\\302\\233\xc3\xb6\n");
	access_log_close(shared, reader);
}
END_TEST

START_TEST(long_names_are_cut)
{
	static char path[PATH_MAX], spaces[PATH_MAX];
	struct access_reader *reader = reader_new();

	memset(path, 'p', sizeof(path) - 1);
	memset(spaces, ' ', sizeof(spaces) - 1);
	add(spaces, path, 0);
	const char *text = take(reader, ACCESS_RING_BYTES);

	ck_assert_ptr_nonnull(strstr(text, "\\040... to=ppp"));
	ck_assert_str_eq(text + strlen(text) - 3, "pp\n");
	access_log_close(shared, reader);
}
END_TEST

START_TEST(each_reader_has_every_line_since_he_came)
{
	struct access_reader *first = reader_new();

	add("/1", NULL, 0);
	struct access_reader *second = reader_new();

	add("/2", NULL, 0);
	const char *one = take(first, 1000);

	ck_assert(strstr(one, "path=/1\n") && strstr(one, "path=/2\n"));
	one = take(second, 1000);
	ck_assert(!strstr(one, "path=/1\n") && strstr(one, "path=/2\n"));
	ck_assert(!access_log_close(shared, first));
	ck_assert(access_log_close(shared, second));
}
END_TEST

START_TEST(small_reads_get_the_same)
{
	struct access_reader *whole = reader_new(), *pieces = reader_new();
	char wanted[1000], got[1000] = "";

	add("/a", NULL, 0);
	add("/b", NULL, 0);
	strcpy(wanted, take(whole, sizeof(wanted) - 1));
	for (const char *piece; *(piece = take(pieces, 3));)
		strcat(got, piece);
	ck_assert_str_eq(got, wanted);
}
END_TEST

START_TEST(readers_have_an_end)
{
	struct access_reader *readers[ACCESS_READERS_MAX], *more;

	for (unsigned i = 0; i < ACCESS_READERS_MAX; i++)
		readers[i] = reader_new();
	ck_assert_int_eq(access_log_open(shared, &more), -ENFILE);
	access_log_close(shared, readers[1]);
	ck_assert_int_eq(access_log_open(shared, &more), 0);
}
END_TEST

/* Lines and losses add up to the lines that were added, however the reads were sized. */
static uint64_t lines_in(const char *text, uint64_t *lost)
{
	uint64_t lines = 0;

	for (const char *line = text; *line; line = strchr(line, '\n') + 1) {
		uint64_t n = 0;

		if (sscanf(line, "lost=%" SCNu64 "\n", &n) == 1)
			*lost += n;
		else
			lines += strncmp(line, "time=", 5) == 0;
	}
	return lines;
}

#define MANY 20000

START_TEST(a_slow_reader_is_told)
{
	struct access_reader *reader = reader_new();
	uint64_t lost = 0, lines = 0;
	char start[11];

	add("/first", NULL, 0);
	strcpy(start, take(reader, sizeof(start) - 1)); /* ends in the middle of a line */
	ck_assert_str_eq(start, "time=12.00");
	for (int i = 1; i < MANY; i++)
		add("/file", NULL, 0);
	ck_assert_str_eq(take(reader, 1), "\n");
	for (const char *text; *(text = take(reader, ACCESS_RING_BYTES));)
		lines += lines_in(text, &lost);
	ck_assert_uint_gt(lost, 0);
	ck_assert_uint_gt(lines, 0);
	ck_assert_uint_eq(lost + lines, MANY);
}
END_TEST

START_TEST(nothing_is_kept_without_readers)
{
	add("/before", NULL, 0);
	struct access_reader *reader = reader_new();

	ck_assert_str_eq(take(reader, 1000), "");
	add("/during", NULL, 0);
	access_log_close(shared, reader);
	ck_assert_ptr_null(shared->ring);
	reader = reader_new();
	ck_assert_str_eq(take(reader, 1000), "");
}
END_TEST

#define WRITERS 4
#define LINES	3000

static atomic_bool written;

static void *write_lines(void *name)
{
	for (int i = 0; i < LINES; i++)
		add(name, NULL, i);
	return NULL;
}

struct sums {
	uint64_t lines, lost;
};

/* Reads until no line is left. */
static void *read_lines(void *pointer)
{
	static _Thread_local char text[ACCESS_RING_BYTES + 1];
	struct access_reader *reader = reader_new();
	struct sums *sums = pointer;
	uint64_t seen = 0;

	sums->lines = sums->lost = 0;
	for (;;) {
		bool last = atomic_load(&written);
		size_t length = access_log_take(shared, reader, text, ACCESS_RING_BYTES);

		text[length] = 0;
		sums->lines += lines_in(text, &sums->lost);
		if (last && !length)
			break;
		if (!length)
			access_log_wait(shared, &seen, 10);
	}
	access_log_close(shared, reader);
	return NULL;
}

/* Readers come and go while workers write: lines stay whole, and a reader that was there from the
 * start has all lines, or a notice of the lost lines. */
START_TEST(threads_write_and_read)
{
	struct access_reader *all = reader_new();
	pthread_t writers[WRITERS], readers[2];
	static struct sums sums[2];
	uint64_t lines = 0, lost = 0;

	atomic_store(&written, false);
	for (int i = 0; i < 2; i++)
		ck_assert_int_eq(pthread_create(&readers[i], NULL, read_lines, &sums[i]), 0);
	for (int i = 0; i < WRITERS; i++)
		ck_assert_int_eq(pthread_create(&writers[i], NULL, write_lines, "/gpu0/a file"), 0);
	for (int i = 0; i < WRITERS; i++)
		pthread_join(writers[i], NULL);
	atomic_store(&written, true);
	access_log_wake(shared);
	for (int i = 0; i < 2; i++)
		pthread_join(readers[i], NULL);
	for (const char *text; *(text = take(all, ACCESS_RING_BYTES));)
		lines += lines_in(text, &lost);
	ck_assert_uint_eq(lines + lost, (uint64_t)WRITERS * LINES);
	for (int i = 0; i < 2; i++)
		ck_assert_uint_le(sums[i].lines + sums[i].lost, (uint64_t)WRITERS * LINES);
}
END_TEST

int main(void)
{
	TCase *tests;
	Suite *suite = unit_suite("access_log", &tests, 120);

	tcase_add_checked_fixture(tests, up, down);
	tcase_add_test(tests, a_line_says_it_all);
	tcase_add_test(tests, names_are_escaped);
	tcase_add_test(tests, long_names_are_cut);
	tcase_add_test(tests, each_reader_has_every_line_since_he_came);
	tcase_add_test(tests, small_reads_get_the_same);
	tcase_add_test(tests, readers_have_an_end);
	tcase_add_test(tests, a_slow_reader_is_told);
	tcase_add_test(tests, nothing_is_kept_without_readers);
	tcase_add_test(tests, threads_write_and_read);
	return unit_main(suite);
}
