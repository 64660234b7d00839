/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/clock.h"
#include "common/log.h"
#include "fs/keeper/internal.h"

/* In the child. The session is the daemon's own: a signal to the keeper's process group or from its
 * terminal does not reach both processes, and the keeper's end sends the daemon no SIGHUP. */
static void child_exec(const struct keeper *keeper, int ipc, int program)
{
	extern char **environ;
	char **argv = calloc((size_t)keeper->argc + 2, sizeof(*argv));
	char argument[32], pid[16];
	sigset_t no_signals;

	sigemptyset(&no_signals);
	sigprocmask(SIG_SETMASK, &no_signals, NULL);
	setsid();
	fcntl(ipc, F_SETFD, 0);
	snprintf(argument, sizeof(argument), "--line=%d", ipc);
	snprintf(pid, sizeof(pid), "%d", getpid());
	/* systemd expects the watchdog's keep-alive messages from the daemon that serves. */
	if (getenv("WATCHDOG_PID"))
		setenv("WATCHDOG_PID", pid, 1);
	if (argv) {
		argv[0] = keeper->argv[0];
		argv[1] = argument;
		memcpy(argv + 2, keeper->argv + 1, (size_t)keeper->argc * sizeof(*argv));
		syscall(SYS_execveat, program, "", argv, environ, AT_EMPTY_PATH);
	}
	log_error("cannot start the daemon: %s", strerror(errno));
	_exit(EXIT_FAILURE);
}

static int child_welcome(const struct keeper *keeper, const struct child *child)
{
	struct ipc_message message = ipc_message(IPC_WELCOME, keeper->generation);

	message.value = keeper->holds_max;
	message.flags = IPC_REPLACES;
	if (child == &keeper->standby)
		message.flags |= IPC_STANDBY;
	if (keeper->wanted_gpu)
		snprintf(message.text, sizeof(message.text), "%s", keeper->wanted_gpu);
	if (!keeper->options->foreground)
		message.flags |= IPC_BACKGROUND;
	if (!keeper->options->foreground && (!keeper->launcher || keeper->launcher->ready_fd < 0))
		message.flags |= IPC_SYSLOG;
	return ipc_offer(child->ipc, &message, -1);
}

int child_start(struct keeper *keeper, struct child *child, int program)
{
	int ends[2], error = ipc_pair(ends);

	if (error)
		return error;
	pid_t pid = fork();

	if (pid < 0) {
		error = -errno;
		close(ends[0]);
		close(ends[1]);
		return error;
	}
	if (pid == 0)
		child_exec(keeper, ends[1], program);
	close(ends[1]);
	keeper->generation++;
	*child = (struct child){
	    .pid = pid,
	    .pidfd = (int)syscall(SYS_pidfd_open, pid, 0),
	    .ipc = ends[0],
	    .program = program,
	    .start_ms = clock_ms(),
	};
	if (child->pidfd < 0) {
		error = -errno;
		kill(pid, SIGKILL);
		waitpid(pid, NULL, 0);
		close(child->ipc);
		*child = (struct child){0};
		return error;
	}
	child_welcome(keeper, child); /* an error closes the socket, and the daemon ends */
	return 0;
}

int child_reap(struct child *child)
{
	int status = 0;

	/* An adopted daemon may be a child of another process. */
	if (waitpid(child->pid, &status, 0) != child->pid)
		status = CHILD_UNKNOWN;
	close(child->pidfd);
	if (child->ipc >= 0)
		close(child->ipc);
	*child = (struct child){0};
	return status;
}

void child_go(struct keeper *keeper, const struct child *child)
{
	struct ipc_message go = ipc_message(IPC_GO, (uint64_t)keeper->seen_us);

	refuse_stop(keeper);
	go.value = (uint64_t)keeper->reaped_us;
	ipc_offer(child->ipc, &go, -1);
}

void child_kill(const struct child *child)
{
	if (child->pid)
		syscall(SYS_pidfd_send_signal, child->pidfd, SIGKILL, NULL, 0);
}
