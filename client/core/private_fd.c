/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
#include "client/core/private_fd.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/close_range.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#define DESCRIPTORS_MAX (1U << 20)

/* The system calls are made directly: the functions of libc may be wrappers. close_range(2) is
 * allowed in containers that forbid unshare(2). */
int client_private_fd_table(unsigned from)
{
	struct rlimit limit = {.rlim_cur = DESCRIPTORS_MAX};

	if (syscall(SYS_close_range, from, ~0U, CLOSE_RANGE_UNSHARE) == 0)
		return 0;
	if (unshare(CLONE_FILES) < 0)
		return -errno;
	getrlimit(RLIMIT_NOFILE, &limit);
	for (unsigned fd = from; fd < limit.rlim_cur && fd < DESCRIPTORS_MAX; fd++)
		syscall(SYS_close, fd);
	return 0;
}

int client_private_fd_thread(pthread_t *thread, void *(*begin)(void *argument), void *argument)
{
	sigset_t all_signals, old_mask;

	sigfillset(&all_signals);
	pthread_sigmask(SIG_SETMASK, &all_signals, &old_mask);
	int error = pthread_create(thread, NULL, begin, argument);
	pthread_sigmask(SIG_SETMASK, &old_mask, NULL);
	return -error;
}

struct task {
	int fd, flags;
	int (*work)(int reopened_fd, void *argument);
	void *argument;
	int rc;
};

static void *private_fd_main(void *arg)
{
	struct task *task = arg;
	char path[64];

	task->rc = client_private_fd_table(CLIENT_PRIVATE_FD_ALL);
	if (task->rc < 0)
		return NULL;
	snprintf(path, sizeof(path), "/proc/thread-self/fd/%d", task->fd);
	int reopened_fd = (int)syscall(SYS_openat, AT_FDCWD, path, task->flags | O_CLOEXEC, 0);
	if (reopened_fd < 0) {
		task->rc = -errno;
		return NULL;
	}
	task->rc = task->work(reopened_fd, task->argument);
	syscall(SYS_close, reopened_fd);
	return NULL;
}

int client_private_fd(int fd, int flags, int (*work)(int reopened_fd, void *argument),
		      void *argument)
{
	struct task task = {.fd = fd, .flags = flags, .work = work, .argument = argument};
	pthread_t thread;

	int rc = client_private_fd_thread(&thread, private_fd_main, &task);
	if (rc < 0)
		return rc;
	pthread_join(thread, NULL);
	return task.rc;
}
