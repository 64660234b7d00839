/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* The daemon's end of the IPC channel, with a keeper at the other end, and with a peer that is no
 * keeper. */
#include "common/system/descriptors.h"
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

/* Serves a daemon as a keeper does, until the daemon has gone. The exit status is the number of
 * held descriptors. */
static void keep_house(int line)
{
	static struct options options = {.mountpoint = "a mount"};
	struct keeper state = {.options = &options,
			       .old_program = -1,
			       .upgrade_fd = -1,
			       .serving = {.pid = 1, .ipc = line}};
	struct ipc_message hello = ipc_message(IPC_WELCOME, 7);
	struct pollfd wait = {.fd = line, .events = POLLIN};

	hello.value = HOLDS_MAX;
	ipc_send(line, &hello, -1);
	while (state.serving.ipc >= 0 && poll(&wait, 1, -1) > 0)
		while (keeper_receive(&state, &state.serving))
			;
	_exit((int)state.held.count);
}

static int hire(void)
{
	int ends[2];

	ck_assert_int_eq(ipc_pair(ends), 0);
	keeper = fork();
	if (keeper == 0) {
		close(ends[0]);
		keep_house(ends[1]);
	}
	close(ends[1]);
	return ends[0];
}

/* Returns the number of descriptors that the keeper held when the daemon had gone. */
static int left_behind(void)
{
	int status;

	ck_assert_int_eq(waitpid(keeper, &status, 0), keeper);
	ck_assert(WIFEXITED(status));
	return WEXITSTATUS(status);
}

static struct fdstore *daemon_of(int line)
{
	struct fdstore *fdstore;

	ck_assert_int_eq(fdstore_open(line, argv, &fdstore), 0);
	return fdstore;
}

START_TEST(holds_and_gives)
{
	struct fdstore *fdstore = daemon_of(hire());
	uint64_t one = fdstore_id(FDSTORE_CHUNK, 1), two = fdstore_id(FDSTORE_HOST, 1);
	int fd = some_file(11);

	ck_assert_uint_eq(fdstore_generation(fdstore), 7);
	ck_assert_int_eq(fdstore_take(fdstore, one), -ENOENT);
	ck_assert_int_eq(fdstore_hold(fdstore, one, fd), 0);
	close(fd);
	fd = some_file(12);
	ck_assert_int_eq(fdstore_hold(fdstore, two, fd), 0);
	close(fd);

	fd = fdstore_take(fdstore, one);
	ck_assert_int_ge(fd, 0);
	ck_assert_int_eq(size_of(fd), 11);
	ck_assert_int_eq(fcntl(fd, F_GETFD) & FD_CLOEXEC, FD_CLOEXEC);
	close(fd);
	fdstore_drop(fdstore, one);
	ck_assert_int_eq(fdstore_take(fdstore, one), -ENOENT);
	ck_assert_int_ge(fd = fdstore_take(fdstore, two), 0);
	close(fd);
	fdstore_close(fdstore);
	ck_assert_int_eq(left_behind(), 1);
}
END_TEST

static int count_one(uint64_t id, int fd, void *arg)
{
	unsigned *count = arg;

	ck_assert_int_eq(size_of(fd), (off_t)fdstore_number(id));
	++*count;
	return 0;
}

START_TEST(walks)
{
	struct fdstore *fdstore = daemon_of(hire());
	unsigned all = 0, some = 0;

	for (unsigned i = 0; i < 30; i++) {
		int fd = some_file(i);

		ck_assert_int_eq(fdstore_hold(fdstore, fdstore_id(1 + i % 3, i), fd), 0);
		close(fd);
	}
	ck_assert_int_eq(fdstore_each(fdstore, count_one, &all), 0);
	ck_assert_uint_eq(all, 30);
	ck_assert_int_eq(fdstore_each_of(fdstore, FDSTORE_CLONE, count_one, &some), 0);
	ck_assert_uint_eq(some, 10);
	fdstore_close(fdstore);
	ck_assert_int_eq(left_behind(), 30);
}
END_TEST

/* Gathered descriptors no longer need the keeper. */
START_TEST(gathers)
{
	struct fdstore *before = daemon_of(hire());
	unsigned all = 0;

	for (unsigned i = 0; i < 30; i++) {
		int fd = some_file(i);

		ck_assert_int_eq(fdstore_hold(before, fdstore_id(1 + i % 3, i), fd), 0);
		close(fd);
	}
	fdstore_wait_idle(before);
	ck_assert_int_eq(fdstore_gather(before), 0);
	kill(keeper, SIGKILL);
	waitpid(keeper, NULL, 0);
	ck_assert_int_eq(fdstore_each(before, count_one, &all), 0);
	ck_assert_uint_eq(all, 30);
	all = 0;
	ck_assert_int_eq(fdstore_each_of(before, FDSTORE_CLONE, count_one, &all), 0);
	ck_assert_uint_eq(all, 10);
	int fd = fdstore_take(before, fdstore_id(FDSTORE_CLONE, 4));

	ck_assert_int_eq(size_of(fd), 4);
	close(fd);
	ck_assert_int_eq(fdstore_take(before, fdstore_id(FDSTORE_CLONE, 5)), -ENOENT);
	fdstore_drop(before, fdstore_id(FDSTORE_CLONE, 4));
	ck_assert_int_eq(fdstore_take(before, fdstore_id(FDSTORE_CLONE, 4)), -ENOENT);
	fdstore_close(before);
}
END_TEST

/* The fuse_init may exist although the keeper cannot be asked, so the daemon must not make a new
 * fuse_init. */
START_TEST(agrees_on_nothing_else)
{
	struct fdstore *fdstore = daemon_of(hire());
	struct fuse_init *fuse_init = NULL;

	kill(keeper, SIGKILL);
	waitpid(keeper, NULL, 0);
	log_setup(LOG_LEVEL_ERROR, 0);
	ck_assert_int_eq(fuse_init_open(fdstore, &fuse_init), -EPIPE);
	ck_assert_ptr_null(fuse_init);
	fdstore_close(fdstore);
}
END_TEST

/* Memory leaves descriptors for connections, and connections leave descriptors for the daemon's own
 * use. */
START_TEST(no_more_than_it_can)
{
	static const enum fdstore_kind kinds[] = {FDSTORE_HOST, FDSTORE_CHUNK, FDSTORE_SOCKET,
						  FDSTORE_JOURNAL};
	struct fdstore *fdstore = daemon_of(hire());
	int fd = some_file(1);
	uint64_t held = 0;

	for (unsigned i = 0; i < 4; i++) {
		uint64_t wanted = i < 2	   ? descriptors_for(DESCRIPTOR_MEMORY, HOLDS_MAX)
				  : i == 2 ? descriptors_for(DESCRIPTOR_CONNECTION, HOLDS_MAX)
					   : HOLDS_MAX;

		ck_assert(i == 1 || held < wanted);
		for (; held < wanted; held++)
			ck_assert_int_eq(fdstore_hold(fdstore, fdstore_id(kinds[i], held), fd), 0);
		ck_assert_int_eq(fdstore_hold(fdstore, fdstore_id(kinds[i], held), fd), -EMFILE);
	}
	fdstore_drop(fdstore, fdstore_id(FDSTORE_JOURNAL, held - 1));
	ck_assert_int_eq(fdstore_hold(fdstore, fdstore_id(FDSTORE_CHUNK, HOLDS_MAX), fd), -EMFILE);
	ck_assert_int_eq(fdstore_hold(fdstore, fdstore_id(FDSTORE_JOURNAL, HOLDS_MAX), fd), 0);
	close(fd);
	fdstore_close(fdstore);
	ck_assert_int_eq(left_behind(), HOLDS_MAX);
}
END_TEST

/* As many descriptors under way, in a socket without a reader, as the kernel allows an ordinary
 * user: the next is refused with ETOOMANYREFS. */
static void fill_user_limit(int ends[2])
{
	struct rlimit few = {16, 16};
	struct ipc_message message = ipc_message(IPC_HOLD, 1);
	int error = 0;

	ck_assert_int_eq(ipc_pair(ends), 0);
	ck_assert_int_eq(setrlimit(RLIMIT_NOFILE, &few), 0);
	if (geteuid() == 0)
		ck_assert_int_eq(setuid(65534), 0);
	for (unsigned i = 0; i < 100 && !error; i++)
		error = ipc_send(ends[0], &message, 0);
	ck_assert_int_eq(error, -ETOOMANYREFS);
}

/* The next daemon would not find such a descriptor: this daemon does not count on it, either. */
START_TEST(a_refused_descriptor_is_not_held)
{
	struct fdstore *fdstore = daemon_of(hire());
	uint64_t id = fdstore_id(FDSTORE_CHUNK, 1);
	int fd = some_file(1), ends[2];

	ck_assert_int_eq(fdstore_gather(fdstore), 0);
	fill_user_limit(ends);
	ck_assert_int_eq(fdstore_hold(fdstore, id, fd), -ETOOMANYREFS);
	ck_assert_int_eq(fdstore_take(fdstore, id), -ENOENT);
	close(ends[0]);
	close(ends[1]);
	ck_assert_int_eq(fdstore_hold(fdstore, id, fd), 0);
	close(fd);
	fdstore_close(fdstore);
	ck_assert_int_eq(left_behind(), 1);
}
END_TEST

START_TEST(an_end_on_purpose_leaves_nothing)
{
	struct fdstore *fdstore = daemon_of(hire());
	int fd = some_file(1);

	ck_assert_int_eq(fdstore_hold(fdstore, fdstore_id(FDSTORE_CHUNK, 1), fd), 0);
	close(fd);
	fdstore_end(fdstore);
	ck_assert_int_eq(fdstore_fd(fdstore), -1);
	fdstore_drop(fdstore, fdstore_id(FDSTORE_CHUNK, 1));
	fdstore_close(fdstore);
	ck_assert_int_eq(left_behind(), 0);
}
END_TEST

START_TEST(a_start_that_failed_leaves_all)
{
	struct fdstore *fdstore = daemon_of(hire());
	int fd = some_file(1);

	ck_assert_int_eq(fdstore_hold(fdstore, fdstore_id(FDSTORE_CHUNK, 1), fd), 0);
	close(fd);
	fdstore_close(fdstore);
	ck_assert_int_eq(left_behind(), 1);
}
END_TEST

/* The daemon keeps descriptors that are held after the end of the keeper for the next keeper. */
START_TEST(a_keeper_that_is_gone)
{
	struct fdstore *fdstore = daemon_of(hire());
	struct pollfd line = {.fd = fdstore_fd(fdstore), .events = POLLRDHUP};
	int fd = some_file(1);

	kill(keeper, SIGKILL);
	ck_assert_int_eq(poll(&line, 1, -1), 1);
	ck_assert_int_eq(fdstore_hold(fdstore, fdstore_id(FDSTORE_CHUNK, 1), fd), 0);
	ck_assert_int_lt(fdstore_take(fdstore, fdstore_id(FDSTORE_CHUNK, 1)), 0);
	fdstore_drop(fdstore, fdstore_id(FDSTORE_CHUNK, 1));
	fdstore_ready(fdstore);
	fdstore_end(fdstore);
	fdstore_close(fdstore);
	close(fd);
	waitpid(keeper, NULL, 0);
}
END_TEST

START_TEST(without_a_keeper)
{
	ck_assert_int_eq(fdstore_hold(NULL, fdstore_id(FDSTORE_CHUNK, 1), 0), 0);
	ck_assert_int_eq(fdstore_take(NULL, fdstore_id(FDSTORE_CHUNK, 1)), -ENOENT);
	ck_assert_int_eq(fdstore_each(NULL, count_one, NULL), 0);
	ck_assert_int_eq(fdstore_wait(NULL), 0);
	ck_assert_uint_eq(fdstore_generation(NULL), 1);
	ck_assert_int_eq(fdstore_fd(NULL), -1);
	fdstore_drop(NULL, 1);
	fdstore_ready(NULL);
	fdstore_end(NULL);
	fdstore_close(NULL);
}
END_TEST

/* Packets that are no messages, each with a descriptor that must not stay open. */
START_TEST(nonsense_is_refused)
{
	struct ipc_message message = ipc_message(IPC_HOLD, 1), got;
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
		message.type = IPC_TYPES;
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
	ck_assert_int_eq(ipc_pair(ends), 0);
	if (bytes == sizeof(message))
		ck_assert_int_eq(ipc_send(ends[0], &message, 0), 0);
	else
		ck_assert_int_eq(send(ends[0], &message, bytes, 0), (ssize_t)bytes);
	ck_assert_int_eq(ipc_receive(ends[1], &got, &fd), -EPROTO);
	ck_assert_int_eq(fd, -1);
	ck_assert_int_eq(ipc_poll(ends[1], &got, &fd), -EAGAIN);
	close(ends[0]);
	ck_assert_int_eq(ipc_receive(ends[1], &got, &fd), -EPIPE);
	close(ends[1]);
	fd = dup(0);
	ck_assert_int_eq(fd, before);
	close(fd);
}
END_TEST

START_TEST(no_line_at_all)
{
	int ends[2];
	struct fdstore *fdstore;

	log_setup(LOG_LEVEL_ERROR, 0);
	ck_assert_int_eq(ipc_pair(ends), 0);
	close(ends[1]);
	ck_assert_int_eq(fdstore_open(ends[0], argv, &fdstore), -EPIPE);
	ck_assert_int_lt(fdstore_open(dup(0), argv, &fdstore), 0);
}
END_TEST

int main(void)
{
	TCase *tcase;
	Suite *suite = unit_suite("fdstore", &tcase, 60);

	log_setup(LOG_LEVEL_ERROR, LOG_TO_TERMINAL);
	tcase_add_test(tcase, holds_and_gives);
	tcase_add_test(tcase, walks);
	tcase_add_test(tcase, gathers);
	tcase_add_test(tcase, agrees_on_nothing_else);
	tcase_add_test(tcase, no_more_than_it_can);
	tcase_add_test(tcase, a_refused_descriptor_is_not_held);
	tcase_add_test(tcase, an_end_on_purpose_leaves_nothing);
	tcase_add_test(tcase, a_start_that_failed_leaves_all);
	tcase_add_test(tcase, a_keeper_that_is_gone);
	tcase_add_test(tcase, without_a_keeper);
	tcase_add_loop_test(tcase, nonsense_is_refused, 0, 8);
	tcase_add_test(tcase, no_line_at_all);
	return unit_main(suite);
}
