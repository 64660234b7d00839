/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
#include "fs/keeper/daemonize.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <sched.h>
#include <signal.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/unit/unit.h"

/* The daemon's report to the test, which is not the process that started the daemon. */
struct report {
	pid_t pid, session;
	char folder[PATH_MAX];
	bool stderr_kept; /* between start and ready */
	bool stdio_null;  /* after ready */
	int ready;	  /* the result of daemon_ready */
};

typedef void (*daemon_part)(struct daemon *daemon);

/* The pipe between the test and the daemon. */
static int ends[2];

/* Starts a launcher in its own process; the daemon runs part and exits. Sets said to the output on
 * stderr, and returns the launcher's wait status. */
static int launch(daemon_part part, char *said, size_t room)
{
	int errors[2];

	ck_assert_int_eq(pipe2(errors, O_CLOEXEC), 0);
	ck_assert_int_eq(pipe2(ends, O_CLOEXEC), 0);
	pid_t launcher = fork();
	ck_assert_int_ge(launcher, 0);
	if (launcher == 0) {
		struct daemon daemon;
		dup2(errors[1], STDERR_FILENO);
		close(errors[0]);
		close(errors[1]);
		if (daemon_start(DAEMON_BACKGROUND, &daemon) < 0)
			_exit(99);
		part(&daemon);
		_exit(0);
	}
	close(errors[1]);
	int status;
	ck_assert_int_eq(waitpid(launcher, &status, 0), launcher);
	size_t length = 0;
	ssize_t got;
	while ((got = read(errors[0], said + length, room - 1 - length)) > 0)
		length += (size_t)got;
	said[length] = '\0';
	close(errors[0]);
	return status;
}

static bool is_null(int fd)
{
	struct stat here, null;

	return fstat(fd, &here) == 0 && stat("/dev/null", &null) == 0 &&
	       here.st_rdev == null.st_rdev;
}

static void reports(struct daemon *daemon)
{
	struct report report = {.pid = getpid(), .session = getsid(0)};

	if (!getcwd(report.folder, sizeof(report.folder)))
		_exit(1);
	report.stderr_kept = !is_null(STDERR_FILENO);
	log_info("nearly there");
	report.ready = daemon_ready(daemon, LOG_LEVEL_ERROR);
	report.stdio_null =
	    is_null(STDIN_FILENO) && is_null(STDOUT_FILENO) && is_null(STDERR_FILENO);
	log_info("not for the terminal");
	if (write(ends[1], &report, sizeof(report)) < 0)
		_exit(1);
}

START_TEST(launcher_returns_when_ready)
{
	struct report report;
	char said[1024];

	int status = launch(reports, said, sizeof(said));
	ck_assert(WIFEXITED(status) && WEXITSTATUS(status) == 0);
	ck_assert_int_eq(read(ends[0], &report, sizeof(report)), sizeof(report));
	ck_assert_int_ne(report.pid, getpid());
	ck_assert_int_eq(report.session, report.pid);
	ck_assert_str_eq(report.folder, "/");
	ck_assert(report.stderr_kept);
	ck_assert(report.stdio_null);
	ck_assert_int_eq(report.ready, 0);
	ck_assert_str_eq(said, "gpumemfs: nearly there\n");
	close(ends[0]);
	close(ends[1]);
}
END_TEST

static void waits_for_permission(struct daemon *daemon)
{
	char byte;

	if (daemon_ready(daemon, LOG_LEVEL_ERROR) < 0)
		_exit(1);
	/* The daemon ends when the test closes its end of the pipe. */
	close(ends[1]);
	(void)!read(ends[0], &byte, 1);
}

/* The launcher must not wait for the daemon's end: the daemon ends only after the test saw the
 * launcher end. */
START_TEST(launcher_does_not_wait_for_the_end)
{
	char said[1024];

	int status = launch(waits_for_permission, said, sizeof(said));
	ck_assert(WIFEXITED(status) && WEXITSTATUS(status) == 0);
	ck_assert_str_eq(said, "");
	/* The daemon still runs: a pipe without readers would give EPIPE. */
	close(ends[0]);
	signal(SIGPIPE, SIG_IGN);
	ck_assert_int_eq(write(ends[1], "", 1), 1);
	close(ends[1]);
}
END_TEST

static void gives_up(struct daemon *daemon)
{
	(void)daemon;
	log_error("/x: no such directory");
	_exit(0);
}

START_TEST(failure_is_the_exit_status)
{
	char said[1024];
	int status = launch(gives_up, said, sizeof(said));

	ck_assert(WIFEXITED(status) && WEXITSTATUS(status) == 1);
	ck_assert_str_eq(said, "gpumemfs: /x: no such directory\n");
}
END_TEST

static void is_killed(struct daemon *daemon)
{
	(void)daemon;
	raise(SIGKILL);
}

START_TEST(a_signal_is_reported)
{
	char said[1024];
	int status = launch(is_killed, said, sizeof(said));

	ck_assert(WIFEXITED(status) && WEXITSTATUS(status) == 1);
	ck_assert_str_eq(said, "gpumemfs: ended by signal 9 (Killed) before the mount was ready\n");
}
END_TEST

static void outlives_its_launcher(struct daemon *daemon)
{
	struct report report = {0};

	/* The launcher is a child of the test, which reaps the launcher: a new parent number means
	 * that the launcher is gone. */
	pid_t launcher = getppid();
	kill(launcher, SIGKILL);
	while (getppid() == launcher)
		sched_yield();
	report.ready = daemon_ready(daemon, LOG_LEVEL_ERROR);
	report.stdio_null = is_null(STDERR_FILENO);
	if (write(ends[1], &report, sizeof(report)) < 0)
		_exit(1);
}

START_TEST(a_killed_launcher_does_no_harm)
{
	struct report report;
	char said[1024];

	int status = launch(outlives_its_launcher, said, sizeof(said));
	ck_assert(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
	ck_assert_int_eq(read(ends[0], &report, sizeof(report)), sizeof(report));
	ck_assert_int_eq(report.ready, -EPIPE);
	ck_assert(report.stdio_null);
	close(ends[0]);
	close(ends[1]);
}
END_TEST

START_TEST(foreground_changes_nothing)
{
	struct daemon daemon;
	char before[PATH_MAX], after[PATH_MAX];
	pid_t pid = getpid(), session = getsid(0);

	ck_assert_ptr_nonnull(getcwd(before, sizeof(before)));
	ck_assert_int_eq(daemon_start(DAEMON_FOREGROUND, &daemon), 0);
	ck_assert_int_eq(daemon_ready(&daemon, LOG_LEVEL_INFO), 0);
	ck_assert_int_eq(getpid(), pid);
	ck_assert_int_eq(getsid(0), session);
	ck_assert_ptr_nonnull(getcwd(after, sizeof(after)));
	ck_assert_str_eq(before, after);
}
END_TEST

/* With stderr closed, the next opened file would get the number of stderr, and with the number
 * every log line. */
START_TEST(closed_stdio_is_occupied)
{
	struct daemon daemon;

	fflush(NULL);
	int out = dup(STDOUT_FILENO), errors = dup(STDERR_FILENO);
	close(STDIN_FILENO);
	close(STDERR_FILENO);
	int rc = daemon_start(DAEMON_FOREGROUND, &daemon);
	int fd = memfd_create("next", 0);
	bool occupied = is_null(STDIN_FILENO) && is_null(STDERR_FILENO);
	dup2(errors, STDERR_FILENO);
	ck_assert_int_eq(rc, 0);
	ck_assert(occupied);
	ck_assert_int_gt(fd, STDERR_FILENO);
	close(fd);
	close(out);
	close(errors);
}
END_TEST

int main(void)
{
	TCase *tests;
	Suite *suite = unit_suite("daemonize", &tests, 60);

	tcase_add_test(tests, launcher_returns_when_ready);
	tcase_add_test(tests, launcher_does_not_wait_for_the_end);
	tcase_add_test(tests, failure_is_the_exit_status);
	tcase_add_test(tests, a_signal_is_reported);
	tcase_add_test(tests, a_killed_launcher_does_no_harm);
	tcase_add_test(tests, foreground_changes_nothing);
	tcase_add_test(tests, closed_stdio_is_occupied);
	return unit_main(suite);
}
