/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
#include "client/cli/fusermount.h"

#include <errno.h>
#include <spawn.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/wait.h>
#include <unistd.h>

#include "client/cli/core/cli.h"
#include "common/cleanup.h"

#define PROGRAM "fusermount3"

/* Starts the program in the folder, with its messages in the file. 0 or an errno. */
static int fusermount_start(int folder, const char *name, int flags, int messages, pid_t *child)
{
	char *const arguments[] = {(char *)PROGRAM, (char *)(flags & MNT_DETACH ? "-uz" : "-u"),
				   (char *)"--", (char *)name, NULL};
	posix_spawn_file_actions_t actions;
	int error = posix_spawn_file_actions_init(&actions);

	if (error)
		return error;
	error = posix_spawn_file_actions_addfchdir_np(&actions, folder);
	if (!error)
		error = posix_spawn_file_actions_adddup2(&actions, messages, STDERR_FILENO);
	if (!error)
		error = posix_spawnp(child, PROGRAM, &actions, NULL, arguments, environ);
	posix_spawn_file_actions_destroy(&actions);
	return error;
}

/* The program gives the reason of a failure as a message alone. */
static int failure_read(int messages)
{
	char line[512];
	ssize_t length = pread(messages, line, sizeof(line) - 1, 0);

	line[length > 0 ? length : 0] = '\0';
	line[strcspn(line, "\n")] = '\0';
	if (strstr(line, strerror(EBUSY)))
		return -EBUSY;
	cli_error("%s", *line ? line : PROGRAM " failed");
	return CLI_FAILED;
}

int fusermount_execute(int folder, const char *name, int flags)
{
	AUTO_CLOSE int messages = memfd_create(PROGRAM, MFD_CLOEXEC);
	pid_t child;
	int status;

	if (messages < 0)
		return cli_fail(PROGRAM, errno);
	int error = fusermount_start(folder, name, flags, messages, &child);

	if (error == ENOENT) {
		cli_error("there is no " PROGRAM ", by which users unmount: install fuse3");
		return CLI_FAILED;
	}
	if (error)
		return cli_fail(PROGRAM, error);
	while (waitpid(child, &status, 0) < 0)
		if (errno != EINTR)
			return cli_fail(PROGRAM, errno);
	return status == 0 ? CLI_OK : failure_read(messages);
}
