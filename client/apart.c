/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
#include "client/apart.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <sys/syscall.h>
#include <unistd.h>

struct task {
	int fd, flags;
	int (*work)(int again, void *argument);
	void *argument;
	int rc;
};

/* The system calls themselves: libc's may be somebody's wrappers. */
static void *apart(void *arg)
{
	struct task *task = arg;
	char path[64];

	if (unshare(CLONE_FILES) < 0) {
		task->rc = -errno;
		return NULL;
	}
	snprintf(path, sizeof(path), "/proc/thread-self/fd/%d", task->fd);
	int again = (int)syscall(SYS_openat, AT_FDCWD, path, task->flags | O_CLOEXEC, 0);
	if (again < 0) {
		task->rc = -errno;
		return NULL;
	}
	task->rc = task->work(again, task->argument);
	syscall(SYS_close, again);
	return NULL;
}

int client_apart(int fd, int flags, int (*work)(int again, void *argument), void *argument)
{
	struct task task = {.fd = fd, .flags = flags, .work = work, .argument = argument};
	sigset_t all, before;
	pthread_t thread;

	/* The program's signals are for its own threads. */
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &before);
	int error = pthread_create(&thread, NULL, apart, &task);
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	if (error)
		return -error;
	pthread_join(thread, NULL);
	return task.rc;
}
