/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
#include "client/cli/checkpoint/criu.h"

#include <dirent.h>
#include <errno.h>
#include <limits.h>
#include <signal.h>
#include <spawn.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "client/cli/core/cli.h"
#include "common/cleanup.h"
#include "common/number.h"
#include "common/protocol.h"

#define DIGITS_MAX 16

bool criu_is_there(void)
{
	AUTO_FREE char *path = strdup(getenv("PATH") ? getenv("PATH") : "");
	char *rest, *folder = path ? strtok_r(path, ":", &rest) : NULL;
	char program[PATH_MAX];

	for (; folder; folder = strtok_r(NULL, ":", &rest)) {
		snprintf(program, sizeof(program), "%s/criu", folder);
		if (access(program, X_OK) == 0)
			return true;
	}
	cli_error(
	    "criu is not installed: without it only the GPU memory of a process can be moved, to "
	    "system memory (gpumem checkpoint PID)");
	return false;
}

/* Runs CRIU, with its log in the directory of the images. */
static int criu_run(const char *verb, const char *directory, char *const *words)
{
	extern char **environ;
	pid_t child;
	int status;

	int error = posix_spawnp(&child, *words, NULL, NULL, words, environ);
	if (error)
		return cli_fail("criu", error);
	while (waitpid(child, &status, 0) < 0)
		if (errno != EINTR)
			return cli_fail("criu", errno);
	if (WIFEXITED(status) && WEXITSTATUS(status) == 0)
		return CLI_OK;
	cli_error("criu %s failed: %s/%s.log has the reason", verb, directory, verb);
	return CLI_FAILED;
}

/* A socket is named by its place in the mount, or in a directory of its user. */
static bool socket_is_of_daemon(int fd)
{
	struct sockaddr_un peer = {0};
	socklen_t length = sizeof(peer) - 1;

	return getpeername(fd, (struct sockaddr *)&peer, &length) == 0 &&
	       peer.sun_family == AF_UNIX &&
	       (strstr(peer.sun_path, "/" GPUMEM_SOCKET_NAME) ||
		strstr(peer.sun_path, "/" GPUMEM_SOCKET_KIND "-"));
}

/* 0 or -errno. */
static int connections_end(pid_t pid)
{
	AUTO_CLOSE int process = (int)syscall(SYS_pidfd_open, pid, 0);
	char path[sizeof("/proc//fd") + DIGITS_MAX];
	const struct dirent *entry;
	int error = process < 0 ? -errno : 0;
	uint64_t number;

	snprintf(path, sizeof(path), "/proc/%d/fd", (int)pid);
	DIR *folder = opendir(path);
	while (folder && !error && (entry = readdir(folder))) {
		if (parse_u64(entry->d_name, 0, INT_MAX, &number) < 0)
			continue;
		AUTO_CLOSE int fd = (int)syscall(SYS_pidfd_getfd, process, (int)number, 0);
		if (fd < 0 && errno != EBADF) /* EBADF: closed meanwhile */
			error = -errno;
		else if (fd >= 0 && socket_is_of_daemon(fd))
			shutdown(fd, SHUT_RDWR);
	}
	if (!folder)
		return -errno;
	closedir(folder);
	return error;
}

int criu_dump(pid_t pid, char *directory)
{
	char number[DIGITS_MAX];
	char *words[] = {"criu",	 "dump",     "--tree",	    number,
			 "--images-dir", directory,  "--shell-job", "--file-locks",
			 "--log-file",	 "dump.log", NULL};
	int status;

	snprintf(number, sizeof(number), "%d", (int)pid);
	if (kill(pid, SIGSTOP) < 0)
		return cli_fail(number, errno);
	int error = connections_end(pid);

	if (error) {
		cli_error("process %d: its connections to daemons could not be ended: %s", (int)pid,
			  strerror(-error));
		status = (int)cli_status_of(-error);
	} else {
		status = criu_run("dump", directory, words);
	}
	if (status)
		kill(pid, SIGCONT);
	return status;
}

int criu_restore(char *directory, char *pid_file)
{
	char *words[] = {"criu",       "restore",     "--images-dir",
			 directory,    "--shell-job", "--file-locks",
			 "--log-file", "restore.log", "--restore-detached",
			 "--pidfile",  pid_file,      NULL};

	return criu_run("restore", directory, words);
}
