/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
#include "fs/keeper/daemonize.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/cleanup.h"

/* In the launcher: a byte means that the mount answers requests, the end of the pipe that mounting
 * failed. Does not return. */
static void launcher_wait(int fd, pid_t child)
{
	char byte;
	ssize_t n;
	int status = 0;

	do
		n = read(fd, &byte, 1);
	while (n < 0 && errno == EINTR);
	if (n == 1)
		_exit(EXIT_SUCCESS);
	if (waitpid(child, &status, 0) == child && WIFSIGNALED(status))
		log_error("ended by signal %d (%s) before the mount was ready", WTERMSIG(status),
			  strsignal(WTERMSIG(status)));
	_exit(EXIT_FAILURE);
}

/* Opens /dev/null for a closed stdin, stdout or stderr; otherwise a later file would get the
 * number, and log lines would go into it. */
static int stdio_occupy(void)
{
	int fd;

	do
		fd = open("/dev/null", O_RDWR);
	while (fd >= 0 && fd <= STDERR_FILENO);
	if (fd < 0) {
		int rc = -errno;
		log_error("/dev/null: %s", strerror(-rc));
		return rc;
	}
	close(fd);
	return 0;
}

int daemon_start(enum daemon_mode mode, struct daemon *daemon)
{
	int ends[2];

	daemon->ready_fd = -1;
	int rc = stdio_occupy();
	if (rc < 0 || mode == DAEMON_FOREGROUND)
		return rc;
	if (pipe2(ends, O_CLOEXEC) < 0) {
		rc = -errno;
		log_error("cannot make a pipe: %s", strerror(-rc));
		return rc;
	}
	fflush(NULL);
	pid_t child = fork();
	if (child < 0) {
		rc = -errno;
		log_error("cannot fork: %s", strerror(-rc));
		close(ends[0]);
		close(ends[1]);
		return rc;
	}
	if (child > 0) {
		close(ends[1]);
		launcher_wait(ends[0], child);
	}
	close(ends[0]);
	daemon->ready_fd = ends[1];
	setsid();
	/* So that the daemon keeps no other file system busy. */
	if (chdir("/") < 0)
		log_warn("cannot change to /: %s", strerror(errno));
	return 0;
}

static void terminal_leave(void)
{
	AUTO_CLOSE int null = open("/dev/null", O_RDWR | O_CLOEXEC);

	if (null < 0) {
		log_warn("/dev/null: %s: the terminal stays open", strerror(errno));
		return;
	}
	fflush(NULL);
	for (int fd = STDIN_FILENO; fd <= STDERR_FILENO; fd++)
		dup2(null, fd);
}

/* Without SIGPIPE, by which a killed launcher would kill the daemon. */
static int launcher_release(int fd)
{
	struct sigaction new_action = {.sa_handler = SIG_IGN}, old_action;

	sigaction(SIGPIPE, &new_action, &old_action);
	int rc = write(fd, "", 1) == 1 ? 0 : -errno;
	sigaction(SIGPIPE, &old_action, NULL);
	return rc;
}

void daemon_leave(enum log_level level)
{
	log_setup(level, LOG_TO_SYSLOG);
	terminal_leave();
}

int daemon_ready(struct daemon *daemon, enum log_level level)
{
	AUTO_CLOSE int fd = daemon->ready_fd;

	if (fd < 0)
		return 0;
	daemon->ready_fd = -1;
	daemon_leave(level);
	return launcher_release(fd);
}
