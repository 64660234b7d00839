/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
#include "common/log.h"

#include <errno.h>
#include <pthread.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tests/unit/unit.h"

/* Stderr goes to a memory file between capture_start and capture_end; capture_end returns the
 * written text. */
static int saved_stderr, capture_fd;

static void capture_start(void)
{
	capture_fd = memfd_create("stderr", MFD_CLOEXEC);
	saved_stderr = dup(STDERR_FILENO);
	ck_assert_int_ge(capture_fd, 0);
	ck_assert_int_ge(saved_stderr, 0);
	ck_assert_int_eq(dup2(capture_fd, STDERR_FILENO), STDERR_FILENO);
}

static char *capture_end(void)
{
	dup2(saved_stderr, STDERR_FILENO);
	close(saved_stderr);
	off_t bytes = lseek(capture_fd, 0, SEEK_END);
	char *text = calloc(1, (size_t)bytes + 1);
	ck_assert_ptr_nonnull(text);
	ck_assert_int_eq(pread(capture_fd, text, (size_t)bytes, 0), bytes);
	close(capture_fd);
	return text;
}

static void expect_logged(const char *expected)
{
	char *text = capture_end();
	ck_assert_str_eq(text, expected);
	free(text);
}

START_TEST(line_form)
{
	capture_start();
	log_setup(LOG_LEVEL_INFO, LOG_TO_TERMINAL);
	log_error("gpu%d: %s", 3, "no space");
	expect_logged("gpumemfs: gpu3: no space\n");
}
END_TEST

/* The journal needs the level and adds its own name for the logging program. */
START_TEST(line_form_on_the_journal)
{
	char stream[64];
	struct stat st;

	capture_start();
	ck_assert_int_eq(fstat(STDERR_FILENO, &st), 0);
	snprintf(stream, sizeof(stream), "%ju:%ju", (uintmax_t)st.st_dev, (uintmax_t)st.st_ino);
	setenv("JOURNAL_STREAM", stream, 1);
	log_setup(LOG_LEVEL_DEBUG, LOG_TO_TERMINAL);
	log_error("e");
	log_warn("w");
	log_info("i");
	log_debug("d\n<0>forged");
	snprintf(stream, sizeof(stream), "%ju:%ju", (uintmax_t)st.st_dev, (uintmax_t)st.st_ino + 1);
	setenv("JOURNAL_STREAM", stream, 1);
	log_setup(LOG_LEVEL_INFO, LOG_TO_TERMINAL);
	log_error("redirected");
	unsetenv("JOURNAL_STREAM");
	expect_logged("<3>e\n<4>w\n<6>i\n<7>d\\012<0>forged\ngpumemfs: redirected\n");
}
END_TEST

START_TEST(before_setup)
{
	capture_start();
	log_info("early");
	log_debug("hidden");
	expect_logged("gpumemfs: early\n");
}
END_TEST

START_TEST(level_filter)
{
	static const char *expected[] = {
	    "gpumemfs: e\n",
	    "gpumemfs: e\ngpumemfs: w\n",
	    "gpumemfs: e\ngpumemfs: w\ngpumemfs: i\n",
	    "gpumemfs: e\ngpumemfs: w\ngpumemfs: i\ngpumemfs: d\n",
	};
	capture_start();
	log_setup((enum log_level)_i, LOG_TO_TERMINAL);
	log_error("e");
	log_warn("w");
	log_info("i");
	log_debug("d");
	expect_logged(expected[_i]);
	for (int level = LOG_LEVEL_ERROR; level <= LOG_LEVEL_DEBUG; level++)
		ck_assert_int_eq(log_enabled((enum log_level)level), level <= _i);
}
END_TEST

START_TEST(terminal_left)
{
	capture_start();
	log_setup(LOG_LEVEL_DEBUG, LOG_TO_SYSLOG);
	log_debug("unit test of the log: to syslog only");
	log_setup(LOG_LEVEL_DEBUG, 0);
	log_error("nowhere");
	expect_logged("");
}
END_TEST

START_TEST(level_names)
{
	enum log_level level = LOG_LEVEL_WARN;
	for (int i = LOG_LEVEL_ERROR; i <= LOG_LEVEL_DEBUG; i++) {
		ck_assert_int_eq(log_level_parse(log_level_name((enum log_level)i), &level), 0);
		ck_assert_int_eq(level, i);
	}
	ck_assert_str_eq(log_level_name(LOG_LEVEL_WARN), "warn");
	level = LOG_LEVEL_WARN;
	ck_assert_int_eq(log_level_parse("", &level), -EINVAL);
	ck_assert_int_eq(log_level_parse("Error", &level), -EINVAL);
	ck_assert_int_eq(log_level_parse("errors", &level), -EINVAL);
	ck_assert_int_eq(level, LOG_LEVEL_WARN);
}
END_TEST

START_TEST(hostile_name)
{
	capture_start();
	log_setup(LOG_LEVEL_INFO, LOG_TO_TERMINAL);
	log_warn("%s: busy", "a\ngpumemfs: forged\r\x1b[2J\x7f\tzw\xc3\xb6lf \xc2\x9b"
			     "2J\xff");
	expect_logged("gpumemfs: a\\012gpumemfs: forged\\015\\033[2J\\177\\011zw\xc3\xb6lf "
		      "\\302\\2332J\\377: busy\n");
}
END_TEST

START_TEST(long_line)
{
	static char name[100000];
	memset(name, 'n', sizeof(name) - 1);
	capture_start();
	log_setup(LOG_LEVEL_INFO, LOG_TO_TERMINAL);
	log_error("%s", name);
	log_error("next");
	char *text = capture_end();
	char *end = strchr(text, '\n');
	ck_assert_ptr_nonnull(end);
	ck_assert_int_gt(end - text, 4096);
	ck_assert_int_eq(strncmp(end - 4, "n...\n", 5), 0);
	ck_assert_str_eq(end + 1, "gpumemfs: next\n");
	free(text);
}
END_TEST

START_TEST(errno_kept)
{
	capture_start();
	close(STDERR_FILENO);
	log_setup(LOG_LEVEL_INFO, LOG_TO_TERMINAL);
	errno = ENOSPC;
	log_error("to a closed stderr");
	int after = errno;
	expect_logged("");
	ck_assert_int_eq(after, ENOSPC);
}
END_TEST

#define LINES 2000

static void *write_lines(void *name)
{
	for (int i = 0; i < LINES; i++)
		log_info("%s begins and %s ends", (char *)name, (char *)name);
	return NULL;
}

START_TEST(threads_do_not_mix)
{
	static char names[][8] = {"alpha", "beta", "gamma"};
	pthread_t threads[3];
	int counts[3] = {0};

	capture_start();
	log_setup(LOG_LEVEL_INFO, LOG_TO_TERMINAL);
	for (int i = 0; i < 3; i++)
		ck_assert_int_eq(pthread_create(&threads[i], NULL, write_lines, names[i]), 0);
	for (int i = 0; i < 3; i++)
		pthread_join(threads[i], NULL);
	char *text = capture_end();

	char *rest = text;
	for (char *line; (line = strsep(&rest, "\n")) && rest;) {
		int known = 0;
		for (int i = 0; i < 3; i++) {
			char expected[80];
			snprintf(expected, sizeof(expected), "gpumemfs: %s begins and %s ends",
				 names[i], names[i]);
			if (strcmp(line, expected) == 0)
				known = ++counts[i];
		}
		ck_assert_msg(known, "mixed line: %s", line);
	}
	for (int i = 0; i < 3; i++)
		ck_assert_int_eq(counts[i], LINES);
	free(text);
}
END_TEST

#define SECOND 1000000000LL

START_TEST(a_user_has_a_burst_and_then_a_line_now_and_then)
{
	static struct log_limit limit;
	int64_t now = 1000 * SECOND;
	uint64_t left_out = 7;

	for (int i = 0; i < LOG_LIMIT_BURST; i++)
		ck_assert(log_limit_take(&limit, 1000, now, &left_out));
	ck_assert_uint_eq(left_out, 0);
	for (int i = 0; i < 1340; i++)
		ck_assert(!log_limit_take(&limit, 1000, now + i, &left_out));
	/* Another user has a separate limit. */
	ck_assert(log_limit_take(&limit, 1001, now, &left_out));
	ck_assert_uint_eq(left_out, 0);
	now += LOG_LIMIT_SECONDS * SECOND;
	ck_assert(log_limit_take(&limit, 1000, now, &left_out));
	ck_assert_uint_eq(left_out, 1340);
	ck_assert(!log_limit_take(&limit, 1000, now, &left_out));
	now += LOG_LIMIT_BURST * LOG_LIMIT_SECONDS * SECOND;
	for (int i = 0; i < LOG_LIMIT_BURST; i++) {
		ck_assert(log_limit_take(&limit, 1000, now, &left_out));
		ck_assert_uint_eq(left_out, i ? 0 : 1);
	}
	ck_assert(!log_limit_take(&limit, 1000, now, &left_out));
}
END_TEST

START_TEST(many_users_are_each_limited)
{
	static struct log_limit limit;
	uint64_t left_out;

	for (uid_t uid = 0; uid < 10 * LOG_LIMIT_USERS; uid++)
		for (int i = 0; i < LOG_LIMIT_BURST + 5; i++)
			ck_assert_int_eq(log_limit_take(&limit, uid, uid + 1, &left_out),
					 i < LOG_LIMIT_BURST);
}
END_TEST

static unsigned lines_of(const char *text, const char *word)
{
	unsigned lines = 0;

	for (const char *at = text; (at = strstr(at, word)); at++)
		lines++;
	return lines;
}

/* Errors, and warnings that no user caused, are always logged. */
START_TEST(warnings_of_a_flood_are_left_out)
{
	capture_start();
	log_setup(LOG_LEVEL_INFO, LOG_TO_TERMINAL);
	log_caller_set(4242);
	for (int i = 0; i < 1000; i++)
		log_warn("flood");
	for (int i = 0; i < 1000; i++)
		log_caller_error("no room");
	log_error("a fault");
	log_info("a fact");
	log_caller_set(4243);
	log_warn("another user");
	log_caller_change((struct log_caller){0});
	for (int i = 0; i < 100; i++)
		log_warn("daemon");
	char *text = capture_end();

	ck_assert_uint_ge(lines_of(text, "flood"), LOG_LIMIT_BURST);
	ck_assert_uint_lt(lines_of(text, "flood"), 500);
	ck_assert_uint_lt(lines_of(text, "no room"), 500);
	ck_assert_uint_eq(lines_of(text, "a fault\n"), 1);
	ck_assert_uint_eq(lines_of(text, "a fact\n"), 1);
	ck_assert_uint_eq(lines_of(text, "another user\n"), 1);
	ck_assert_uint_eq(lines_of(text, "daemon\n"), 100);
	free(text);
}
END_TEST

int main(void)
{
	TCase *tcase;
	Suite *suite = unit_suite("log", &tcase, 60);
	tcase_add_test(tcase, line_form);
	tcase_add_test(tcase, line_form_on_the_journal);
	tcase_add_test(tcase, before_setup);
	tcase_add_loop_test(tcase, level_filter, LOG_LEVEL_ERROR, LOG_LEVEL_DEBUG + 1);
	tcase_add_test(tcase, terminal_left);
	tcase_add_test(tcase, level_names);
	tcase_add_test(tcase, hostile_name);
	tcase_add_test(tcase, long_line);
	tcase_add_test(tcase, errno_kept);
	tcase_add_test(tcase, threads_do_not_mix);
	tcase_add_test(tcase, a_user_has_a_burst_and_then_a_line_now_and_then);
	tcase_add_test(tcase, many_users_are_each_limited);
	tcase_add_test(tcase, warnings_of_a_flood_are_left_out);
	return unit_main(suite);
}
