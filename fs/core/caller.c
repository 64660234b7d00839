/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
#include "fs/core/caller.h"

#include <errno.h>
#include <signal.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "common/cleanup.h"

/* The initial user namespace has the same inode number on every machine (PROC_USER_INIT_INO). */
#define INITIAL_NAMESPACE 0xEFFFFFFD

/* A request may arrive before its thread sleeps, and the kernel shows the system call only of a
 * sleeping thread. */
#define SLEEP_TRIES    50
#define SLEEP_PAUSE_US 200

struct status {
	uint64_t pending, shared_pending, blocked, effective;
	bool member;   /* of the group given to status_read */
	pid_t process; /* that the thread belongs to */
};

static bool groups_have(const char *text, gid_t group)
{
	char *end;

	for (;; text = end) {
		unsigned long gid = strtoul(text, &end, 10);

		if (end == text || gid == group)
			return end != text;
	}
}

static void status_line(struct status *status, const char *line, gid_t group)
{
	static const struct {
		const char *name;
		size_t at;
	} masks[] = {{"SigPnd:", offsetof(struct status, pending)},
		     {"ShdPnd:", offsetof(struct status, shared_pending)},
		     {"SigBlk:", offsetof(struct status, blocked)},
		     {"CapEff:", offsetof(struct status, effective)}};
	static const char groups[] = "Groups:", process[] = "Tgid:";

	for (size_t i = 0; i < sizeof(masks) / sizeof(masks[0]); i++) {
		size_t length = strlen(masks[i].name);

		if (strncmp(line, masks[i].name, length) == 0)
			*(uint64_t *)((char *)status + masks[i].at) =
			    strtoull(line + length, NULL, 16);
	}
	if (strncmp(line, groups, strlen(groups)) == 0)
		status->member = groups_have(line + strlen(groups), group);
	if (strncmp(line, process, strlen(process)) == 0)
		status->process = (pid_t)strtol(line + strlen(process), NULL, 10);
}

/* False: /proc does not show the thread. */
static bool status_read(pid_t pid, gid_t group, struct status *status)
{
	char path[64], *line AUTO_FREE = NULL;
	size_t room = 0;

	*status = (struct status){0};
	if (pid <= 0)
		return false;
	snprintf(path, sizeof(path), "/proc/%d/status", pid);
	FILE *in AUTO_FCLOSE = fopen(path, "re");
	bool readable = false;

	while (in && getline(&line, &room, in) > 0) {
		status_line(status, line, group);
		readable = true;
	}
	return readable;
}

bool user_is_privileged(uid_t uid)
{
	return uid == 0 || uid == geteuid();
}

bool caller_is_member(const struct caller *caller, gid_t group)
{
	struct status status;

	return caller->gid == group || (status_read(caller->pid, group, &status) && status.member);
}

pid_t caller_process(pid_t pid)
{
	struct status status;

	return status_read(pid, 0, &status) ? status.process : 0;
}

/* 1, 0, or -errno if the daemon cannot see the namespace. */
static int process_in_initial_namespace(pid_t pid)
{
	char path[64] = "/proc/self/ns/user";
	struct stat st;

	if (pid)
		snprintf(path, sizeof(path), "/proc/%d/ns/user", pid);
	if (stat(path, &st))
		return errno == ENOENT ? 1 : -errno;
	return st.st_ino == INITIAL_NAMESPACE;
}

bool caller_in_initial_namespace(pid_t pid)
{
	return process_in_initial_namespace(pid) > 0;
}

bool caller_is_capable(const struct caller *caller, unsigned capability)
{
	struct status status;

	if (!status_read(caller->pid, 0, &status))
		return caller->uid == 0;
	if (!(status.effective >> capability & 1))
		return false;
	int initial = process_in_initial_namespace(caller->pid);

	return initial < 0 ? caller->uid == 0 : initial;
}

bool caller_has_signal(pid_t pid)
{
	struct status status;

	return !status_read(pid, 0, &status) ||
	       (status.pending | status.shared_pending) & ~status.blocked;
}

bool caller_is_killed(pid_t pid)
{
	struct status status;

	return status_read(pid, 0, &status) &&
	       (status.pending | status.shared_pending) >> (SIGKILL - 1) & 1;
}

/* The number of the system call in which the thread sleeps; -1 if unknown. */
static long thread_system_call(pid_t pid)
{
	char path[64], line[256], *end = line;

	snprintf(path, sizeof(path), "/proc/%d/syscall", pid);
	for (int attempt = 0; attempt < SLEEP_TRIES; attempt++) {
		FILE *in AUTO_FCLOSE = fopen(path, "re");

		if (!in || !fgets(line, sizeof(line), in))
			return -1;
		long number = strtol(line, &end, 10);

		if (end != line)
			return number;
		usleep(SLEEP_PAUSE_US);
	}
	return -1;
}

bool caller_is_in_chown(pid_t pid)
{
	static const long chowns[] = {
#ifdef SYS_chown
	    SYS_chown,
#endif
#ifdef SYS_lchown
	    SYS_lchown,
#endif
	    SYS_fchown,
	    SYS_fchownat,
	};
	long number = pid > 0 ? thread_system_call(pid) : -1;

	for (size_t i = 0; i < sizeof(chowns) / sizeof(chowns[0]); i++)
		if (number == chowns[i])
			return true;
	return false;
}
