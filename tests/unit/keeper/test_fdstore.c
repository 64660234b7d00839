/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* A daemon's end of the line with a keeper at the other, and with what is none. */
#include "common/descriptors.h"
#include "fs/keeper/fdstore.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/log.h"
#include "fs/keeper/fuse_init.h"
#include "fs/keeper/internal.h"
#include "fs/keeper/ipc.h"
#include "tests/unit/sized_file.h"
#include "tests/unit/unit.h"

#define HOLDS_MAX 40

static pid_t keeper;
static char *argv[] = {"gpumemfs", "--line=0", NULL};

/* What a keeper does for a daemon, until that has gone; its exit status is how much it held. */
static void keep_house(int line)
{
	static struct options options = {.mountpoint = "a mount"};
	struct keeper state = {
	    .options = &options, .before = -1, .asking = -1, .serving = {.pid = 1, .line = line}};
	struct line_message hello = line_message(LINE_WELCOME, 7);
	struct pollfd wait = {.fd = line, .events = POLLIN};

	hello.value = HOLDS_MAX;
	line_send(line, &hello, -1);
	while (state.serving.line >= 0 && poll(&wait, 1, -1) > 0)
		while (keeper_hear(&state, &state.serving))
			;
	_exit((int)state.held.count);
}

static int hire(void)
{
	int ends[2];

	ck_assert_int_eq(line_pair(ends), 0);
	keeper = fork();
	if (keeper == 0) {
		close(ends[0]);
		keep_house(ends[1]);
	}
	close(ends[1]);
	return ends[0];
}

/* How much it held when the daemon had gone. */
static int left_behind(void)
{
	int status;

	ck_assert_int_eq(waitpid(keeper, &status, 0), keeper);
	ck_assert(WIFEXITED(status));
	return WEXITSTATUS(status);
}

static struct keep *daemon_of(int line)
{
	struct keep *keep;

	ck_assert_int_eq(keep_open(line, argv, &keep), 0);
	return keep;
}

START_TEST(holds_and_gives)
{
	struct keep *keep = daemon_of(hire());
	uint64_t one = keep_id(KEEP_CHUNK, 1), two = keep_id(KEEP_HOST, 1);
	int fd = some_file(11);

	ck_assert_uint_eq(keep_turn(keep), 7);
	ck_assert_int_eq(keep_take(keep, one), -ENOENT);
	ck_assert_int_eq(keep_hold(keep, one, fd), 0);
	close(fd);
	fd = some_file(12);
	ck_assert_int_eq(keep_hold(keep, two, fd), 0);
	close(fd);

	fd = keep_take(keep, one);
	ck_assert_int_ge(fd, 0);
	ck_assert_int_eq(size_of(fd), 11);
	ck_assert_int_eq(fcntl(fd, F_GETFD) & FD_CLOEXEC, FD_CLOEXEC);
	close(fd);
	keep_drop(keep, one);
	ck_assert_int_eq(keep_take(keep, one), -ENOENT);
	ck_assert_int_ge(fd = keep_take(keep, two), 0);
	close(fd);
	keep_close(keep);
	ck_assert_int_eq(left_behind(), 1);
}
END_TEST

static int count_one(uint64_t id, int fd, void *arg)
{
	unsigned *count = arg;

	ck_assert_int_eq(size_of(fd), (off_t)keep_number(id));
	++*count;
	return 0;
}

START_TEST(walks)
{
	struct keep *keep = daemon_of(hire());
	unsigned all = 0, some = 0;

	for (unsigned i = 0; i < 30; i++) {
		int fd = some_file(i);

		ck_assert_int_eq(keep_hold(keep, keep_id(1 + i % 3, i), fd), 0);
		close(fd);
	}
	ck_assert_int_eq(keep_each(keep, count_one, &all), 0);
	ck_assert_uint_eq(all, 30);
	ck_assert_int_eq(keep_each_of(keep, KEEP_CLONE, count_one, &some), 0);
	ck_assert_uint_eq(some, 10);
	keep_close(keep);
	ck_assert_int_eq(left_behind(), 30);
}
END_TEST

/* What was gathered needs no keeper any more. */
START_TEST(gathers)
{
	struct keep *before = daemon_of(hire());
	unsigned all = 0;

	for (unsigned i = 0; i < 30; i++) {
		int fd = some_file(i);

		ck_assert_int_eq(keep_hold(before, keep_id(1 + i % 3, i), fd), 0);
		close(fd);
	}
	keep_settle(before);
	ck_assert_int_eq(keep_gather(before), 0);
	kill(keeper, SIGKILL);
	waitpid(keeper, NULL, 0);
	ck_assert_int_eq(keep_each(before, count_one, &all), 0);
	ck_assert_uint_eq(all, 30);
	all = 0;
	ck_assert_int_eq(keep_each_of(before, KEEP_CLONE, count_one, &all), 0);
	ck_assert_uint_eq(all, 10);
	int fd = keep_take(before, keep_id(KEEP_CLONE, 4));

	ck_assert_int_eq(size_of(fd), 4);
	close(fd);
	ck_assert_int_eq(keep_take(before, keep_id(KEEP_CLONE, 5)), -ENOENT);
	keep_drop(before, keep_id(KEEP_CLONE, 4));
	ck_assert_int_eq(keep_take(before, keep_id(KEEP_CLONE, 4)), -ENOENT);
	keep_close(before);
}
END_TEST

/* What cannot be asked for may be there all the same. */
START_TEST(agrees_on_nothing_else)
{
	struct keep *keep = daemon_of(hire());
	struct agreement *agreement = NULL;

	kill(keeper, SIGKILL);
	waitpid(keeper, NULL, 0);
	log_setup(LOG_LEVEL_ERROR, 0);
	ck_assert_int_eq(agreement_open(keep, &agreement), -EPIPE);
	ck_assert_ptr_null(agreement);
	keep_close(keep);
}
END_TEST

/* Memory leaves room for connections, and those for the daemon's own. */
START_TEST(no_more_than_it_can)
{
	static const enum keep_kind kinds[] = {KEEP_HOST, KEEP_CHUNK, KEEP_SOCKET, KEEP_JOURNAL};
	struct keep *keep = daemon_of(hire());
	int fd = some_file(1);
	uint64_t held = 0;

	for (unsigned i = 0; i < 4; i++) {
		uint64_t wanted = i < 2	   ? descriptors_for(DESCRIPTOR_MEMORY, HOLDS_MAX)
				  : i == 2 ? descriptors_for(DESCRIPTOR_CONNECTION, HOLDS_MAX)
					   : HOLDS_MAX;

		ck_assert(i == 1 || held < wanted);
		for (; held < wanted; held++)
			ck_assert_int_eq(keep_hold(keep, keep_id(kinds[i], held), fd), 0);
		ck_assert_int_eq(keep_hold(keep, keep_id(kinds[i], held), fd), -EMFILE);
	}
	keep_drop(keep, keep_id(KEEP_JOURNAL, held - 1));
	ck_assert_int_eq(keep_hold(keep, keep_id(KEEP_CHUNK, HOLDS_MAX), fd), -EMFILE);
	ck_assert_int_eq(keep_hold(keep, keep_id(KEEP_JOURNAL, HOLDS_MAX), fd), 0);
	close(fd);
	keep_close(keep);
	ck_assert_int_eq(left_behind(), HOLDS_MAX);
}
END_TEST

START_TEST(an_end_on_purpose_leaves_nothing)
{
	struct keep *keep = daemon_of(hire());
	int fd = some_file(1);

	ck_assert_int_eq(keep_hold(keep, keep_id(KEEP_CHUNK, 1), fd), 0);
	close(fd);
	keep_end(keep);
	ck_assert_int_eq(keep_fd(keep), -1);
	keep_drop(keep, keep_id(KEEP_CHUNK, 1));
	keep_close(keep);
	ck_assert_int_eq(left_behind(), 0);
}
END_TEST

START_TEST(a_start_that_failed_leaves_all)
{
	struct keep *keep = daemon_of(hire());
	int fd = some_file(1);

	ck_assert_int_eq(keep_hold(keep, keep_id(KEEP_CHUNK, 1), fd), 0);
	close(fd);
	keep_leave(keep);
	keep_drop(keep, keep_id(KEEP_CHUNK, 1));
	keep_close(keep);
	ck_assert_int_eq(left_behind(), 1);
}
END_TEST

/* What is held then is for the next keeper. */
START_TEST(a_keeper_that_is_gone)
{
	struct keep *keep = daemon_of(hire());
	struct pollfd line = {.fd = keep_fd(keep), .events = POLLRDHUP};
	int fd = some_file(1);

	kill(keeper, SIGKILL);
	ck_assert_int_eq(poll(&line, 1, -1), 1);
	ck_assert_int_eq(keep_hold(keep, keep_id(KEEP_CHUNK, 1), fd), 0);
	ck_assert_int_lt(keep_take(keep, keep_id(KEEP_CHUNK, 1)), 0);
	keep_drop(keep, keep_id(KEEP_CHUNK, 1));
	keep_ready(keep);
	keep_end(keep);
	keep_close(keep);
	close(fd);
	waitpid(keeper, NULL, 0);
}
END_TEST

START_TEST(without_a_keeper)
{
	ck_assert_int_eq(keep_hold(NULL, keep_id(KEEP_CHUNK, 1), 0), 0);
	ck_assert_int_eq(keep_take(NULL, keep_id(KEEP_CHUNK, 1)), -ENOENT);
	ck_assert_int_eq(keep_each(NULL, count_one, NULL), 0);
	ck_assert_int_eq(keep_wait(NULL), 0);
	ck_assert_uint_eq(keep_turn(NULL), 1);
	ck_assert_int_eq(keep_fd(NULL), -1);
	keep_drop(NULL, 1);
	keep_ready(NULL);
	keep_end(NULL);
	keep_close(NULL);
}
END_TEST

/* Packets that are no messages, each with a descriptor that must not stay open. */
START_TEST(nonsense_is_refused)
{
	struct line_message message = line_message(LINE_HOLD, 1), got;
	size_t bytes = sizeof(message);
	int ends[2], fd, before = dup(0);

	switch (_i) {
	case 0:
		message.magic++;
		break;
	case 1:
		message.version++;
		break;
	case 2:
		message.type = 0;
		break;
	case 3:
		message.type = LINE_TYPES;
		break;
	case 4:
		message.reserved = 1;
		break;
	case 5:
		memset(message.text, 'x', sizeof(message.text));
		break;
	default:
		bytes = _i == 6 ? bytes - 1 : 1;
		break;
	}
	close(before);
	ck_assert_int_eq(line_pair(ends), 0);
	if (bytes == sizeof(message))
		ck_assert_int_eq(line_send(ends[0], &message, 0), 0);
	else
		ck_assert_int_eq(send(ends[0], &message, bytes, 0), (ssize_t)bytes);
	ck_assert_int_eq(line_receive(ends[1], &got, &fd), -EPROTO);
	ck_assert_int_eq(fd, -1);
	ck_assert_int_eq(line_poll(ends[1], &got, &fd), -EAGAIN);
	close(ends[0]);
	ck_assert_int_eq(line_receive(ends[1], &got, &fd), -EPIPE);
	close(ends[1]);
	fd = dup(0);
	ck_assert_int_eq(fd, before);
	close(fd);
}
END_TEST

START_TEST(no_line_at_all)
{
	int ends[2];
	struct keep *keep;

	log_setup(LOG_LEVEL_ERROR, 0);
	ck_assert_int_eq(line_pair(ends), 0);
	close(ends[1]);
	ck_assert_int_eq(keep_open(ends[0], argv, &keep), -EPIPE);
	ck_assert_int_lt(keep_open(dup(0), argv, &keep), 0);
}
END_TEST

int main(void)
{
	TCase *tcase;
	Suite *suite = unit_suite("keep", &tcase, 60);

	log_setup(LOG_LEVEL_ERROR, LOG_TO_TERMINAL);
	tcase_add_test(tcase, holds_and_gives);
	tcase_add_test(tcase, walks);
	tcase_add_test(tcase, gathers);
	tcase_add_test(tcase, agrees_on_nothing_else);
	tcase_add_test(tcase, no_more_than_it_can);
	tcase_add_test(tcase, an_end_on_purpose_leaves_nothing);
	tcase_add_test(tcase, a_start_that_failed_leaves_all);
	tcase_add_test(tcase, a_keeper_that_is_gone);
	tcase_add_test(tcase, without_a_keeper);
	tcase_add_loop_test(tcase, nonsense_is_refused, 0, 8);
	tcase_add_test(tcase, no_line_at_all);
	return unit_main(suite);
}
