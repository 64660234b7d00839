/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
#include "tests/bench/process.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "common/cleanup.h"

#define STEP_NS	    5000000L
#define MOUNT_STEPS 4000 /* 20 s: the first CUDA call on a machine is slow */
#define END_STEPS   2000

extern char **environ;

static void step(void)
{
	nanosleep(&(struct timespec){.tv_nsec = STEP_NS}, NULL);
}

static dev_t device_of(const char *path)
{
	struct stat st;

	return stat(path, &st) ? 0 : st.st_dev;
}

pid_t process_mount(char *const arguments[], const char *mountpoint)
{
	dev_t before = device_of(mountpoint);
	pid_t pid = fork();

	if (pid < 0)
		return -errno;
	if (pid == 0) {
		prctl(PR_SET_PDEATHSIG, SIGTERM);
		setpgid(0, 0); /* keeps ^C away from the daemon: the bench ends the daemon itself */
		execv(arguments[0], arguments);
		fprintf(stderr, "bench: %s: %m\n", arguments[0]);
		_exit(127);
	}
	for (int i = 0; i < MOUNT_STEPS; i++) {
		dev_t now = device_of(mountpoint);

		if (now && now != before)
			return pid;
		if (waitpid(pid, NULL, WNOHANG) == pid)
			return -ECHILD;
		step();
	}
	process_unmount(pid, mountpoint);
	return -ETIMEDOUT;
}

void process_unmount(pid_t daemon, const char *mountpoint)
{
	kill(daemon, SIGTERM);
	for (int i = 0; i < END_STEPS; i++) {
		if (waitpid(daemon, NULL, WNOHANG) == daemon)
			return;
		step();
	}
	fprintf(stderr, "bench: %s: its daemon does not end: killed\n", mountpoint);
	kill(daemon, SIGKILL);
	umount2(mountpoint, MNT_DETACH);
	waitpid(daemon, NULL, 0);
}

int process_run(char *const arguments[], const char *out)
{
	posix_spawn_file_actions_t actions;
	pid_t pid;
	int status;

	posix_spawn_file_actions_init(&actions);
	posix_spawn_file_actions_addopen(&actions, STDOUT_FILENO, out ? out : "/dev/null",
					 O_WRONLY | O_CREAT | O_TRUNC, 0600);
	int error = posix_spawnp(&pid, arguments[0], &actions, NULL, arguments, environ);

	posix_spawn_file_actions_destroy(&actions);
	if (error)
		return -error;
	while (waitpid(pid, &status, 0) < 0)
		if (errno != EINTR)
			return -errno;
	return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

static unsigned long long resident_memory(pid_t pid)
{
	unsigned long long kib = 0;
	char path[64], line[256];

	snprintf(path, sizeof(path), "/proc/%d/status", (int)pid);
	FILE *file AUTO_FCLOSE = fopen(path, "re");

	while (file && fgets(line, sizeof(line), file))
		if (sscanf(line, "VmRSS: %llu kB", &kib) == 1) /* includes RssShmem */
			break;
	return kib * 1024;
}

static double processor_seconds(pid_t pid)
{
	struct timespec used;
	clockid_t clock;

	if (clock_getcpuclockid(pid, &clock) || clock_gettime(clock, &used))
		return 0;
	return (double)used.tv_sec + (double)used.tv_nsec / 1e9;
}

struct process_use process_use(pid_t pid)
{
	struct process_use use = {resident_memory(pid), processor_seconds(pid)};
	char path[64], line[256] = "", *next = line, *end;

	snprintf(path, sizeof(path), "/proc/%d/task/%d/children", (int)pid, (int)pid);
	FILE *file AUTO_FCLOSE = fopen(path, "re");

	if (file && !fgets(line, sizeof(line), file))
		line[0] = '\0';
	for (long child; (child = strtol(next, &end, 10)) > 0; next = end) {
		use.memory += resident_memory((pid_t)child);
		use.seconds += processor_seconds((pid_t)child);
	}
	return use;
}
