/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
#include "fs/share/binder.h"

#include <errno.h>
#include <pthread.h>
#include <spawn.h>
#include <stdio.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/cleanup.h"
#include "common/protocol.h"

/* Held until the pid of the new process is known: binder_is waits for the pid. */
static pthread_mutex_t binder_lock = PTHREAD_MUTEX_INITIALIZER;
static pid_t binder_pid;

/* exec closes every other descriptor. */
static int binder_spawn(int socket, int tree, pid_t *pid)
{
	extern char **environ;
	char flag[32], path[32], *argv[] = {"gpumemfs", flag, path, NULL};
	posix_spawn_file_actions_t actions;

	snprintf(flag, sizeof(flag), "--bind=%d", socket);
	snprintf(path, sizeof(path), "/proc/self/fd/%d", tree);
	posix_spawn_file_actions_init(&actions);
	/* A duplicate onto the same number: removes close-on-exec in the child. */
	posix_spawn_file_actions_adddup2(&actions, socket, socket);
	posix_spawn_file_actions_adddup2(&actions, tree, tree);
	scoped_lock(&binder_lock);
	int error = -posix_spawn(&binder_pid, "/proc/self/exe", &actions, NULL, argv, environ);

	*pid = binder_pid;
	posix_spawn_file_actions_destroy(&actions);
	return error;
}

int binder_bind(int socket, int tree)
{
	pid_t pid;
	int status, error = binder_spawn(socket, tree, &pid);

	if (error)
		return error;
	while (waitpid(pid, &status, 0) < 0)
		if (errno != EINTR)
			return -errno;
	return WIFEXITED(status) ? -WEXITSTATUS(status) : -ECHILD;
}

bool binder_is(pid_t pid)
{
	scoped_lock(&binder_lock);
	return pid == binder_pid;
}

int binder_run(int socket, const char *tree)
{
	struct sockaddr_un address = {.sun_family = AF_UNIX};

	snprintf(address.sun_path, sizeof(address.sun_path), "%s/%s", tree, GPUMEM_SOCKET_NAME);
	return bind(socket, (struct sockaddr *)&address, sizeof(address)) ? errno : 0;
}
