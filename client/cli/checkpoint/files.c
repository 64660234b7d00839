/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
#include "client/cli/checkpoint/files.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include "client/cli/core/cli.h"
#include "client/cli/core/facts.h"
#include "client/cli/output/output.h"
#include "common/cleanup.h"
#include "common/number.h"

#define PROC_PATH_MAX 64
#define POLL_US	      20000
/* The daemon ends a lease some moments after the process has given the lease up. */
#define LEASE_WAIT_S 2
/* A process whose connection was lost, or that CRIU has started, listens again after a second. */
#define LISTEN_WAIT_S 5
#define UNPARK_WAIT_S 60

bool process_is_daemon(pid_t pid)
{
	char path[PROC_PATH_MAX], name[64] = "";

	snprintf(path, sizeof(path), "/proc/%d/comm", (int)pid);
	AUTO_FCLOSE FILE *file = fopen(path, "re");
	return file && fgets(name, sizeof(name), file) && strncmp(name, "gpumemfs", 8) == 0;
}

/* Whether the daemon answers, and numbers processes as this process does: leases have the daemon's
 * numbers. */
static bool mount_is_usable(const struct mount_at *mount)
{
	AUTO_FREE char *text = NULL, *line = NULL;
	uint64_t number;

	if (mounts_answers(mount) || facts_text(mount->mountpoint, "params", &text) < 0)
		return false;
	line = facts_line(text, "daemon"); /* "1 process 27 keeper 26"; not with every daemon */
	char *word = line ? strstr(line, "process ") : NULL;
	if (!word)
		return true;
	word += strlen("process ");
	word[strcspn(word, " ")] = '\0';
	return parse_u64(word, 1, INT_MAX, &number) == 0 && process_is_daemon((pid_t)number);
}

/* Without a request to a daemon. A library that has a file mapped has the file open, too. */
static bool file_is_open(pid_t pid, dev_t device)
{
	char path[PROC_PATH_MAX];
	const struct dirent *entry;
	bool found = false;
	struct statx st;

	snprintf(path, sizeof(path), "/proc/%d/fd", (int)pid);
	DIR *folder = opendir(path);
	while (folder && !found && (entry = readdir(folder)))
		found =
		    statx(dirfd(folder), entry->d_name, AT_STATX_DONT_SYNC, STATX_TYPE, &st) == 0 &&
		    makedev(st.stx_dev_major, st.stx_dev_minor) == device;
	if (folder)
		closedir(folder);
	return found;
}

/* An error of a mount that has no files of the process, and may be ending, is no error. */
static int mount_fail(const struct mount_at *mount, pid_t pid, int error)
{
	return file_is_open(pid, mount->device) ? cli_fail(mount->mountpoint, -error) : CLI_OK;
}

/* Mounts that do not answer, mounts of a part of a file system, and mounts of another container
 * have leases that this process cannot read. */
static int unread_check(const struct files *files)
{
	char path[PROC_PATH_MAX];
	struct mounts theirs = {0};
	int status = CLI_OK;

	snprintf(path, sizeof(path), "/proc/%d/mountinfo", (int)files->pid);
	AUTO_FCLOSE FILE *table = fopen(path, "re");
	int error = table ? mounts_read(table, &theirs) : -errno;
	if (error)
		return cli_fail(path, -error);
	for (size_t i = 0; i < theirs.count && !status; i++) {
		if (mounts_have(&files->mounts, theirs.at[i].device) ||
		    !file_is_open(files->pid, theirs.at[i].device))
			continue;
		cli_error("process %d has files of %s open, and what it has mapped there cannot be "
			  "read here: the daemon has ended, or runs in another container",
			  (int)files->pid, theirs.at[i].mountpoint);
		status = CLI_FAILED;
	}
	mounts_free(&theirs);
	return status;
}

int files_find(pid_t pid, struct files *files)
{
	*files = (struct files){.pid = pid};
	int error = mounts_find(&files->mounts);

	if (error)
		return cli_fail("/proc/self/mountinfo", -error);
	mounts_keep(&files->mounts, mount_is_usable);
	return CLI_OK;
}

void files_free(struct files *files)
{
	mounts_free(&files->mounts);
	free(files->leased);
}

/* Files of host/ are no memory of a GPU. */
static void lease_look(void *context, const struct sharer *sharer)
{
	struct files *files = context;

	if (files->leased || sharer->pid != files->pid || facts_is_below(sharer->path, "/host"))
		return;
	if (asprintf(&files->leased, "%s%s%s%s",
		     strcmp(sharer->access, "copy") == 0 ? "a private copy of " : "",
		     files->reading, *sharer->path == '/' ? "" : ": ", sharer->path) < 0)
		files->leased = strdup("a file");
}

/* Sets files->leased. */
static int leases_read(struct files *files)
{
	int status = CLI_OK;

	free(files->leased);
	files->leased = NULL;
	for (size_t i = 0; i < files->mounts.count && !status; i++) {
		files->reading = files->mounts.at[i].mountpoint;
		int error = facts_sharers(files->reading, lease_look, files);

		if (error)
			status = mount_fail(&files->mounts.at[i], files->pid, error);
	}
	return status;
}

static int leases_fail(const struct files *files)
{
	AUTO_FREE char *leased = output_escape(files->leased);

	cli_error("process %d has mapped %s, which the driver could not bring back: the process "
		  "must park its files (gpumem_park, gpumem.torch.sleep, gpumem_safe_point), or "
		  "close them",
		  (int)files->pid, leased ? leased : "a file");
	return CLI_FAILED;
}

int files_check(struct files *files)
{
	int status = leases_read(files);

	return !status && files->leased ? leases_fail(files) : status;
}

static int leases_wait(struct files *files)
{
	double deadline = cli_seconds() + LEASE_WAIT_S;
	int status = leases_read(files);

	while (!status && files->leased && cli_seconds() < deadline) {
		usleep(POLL_US);
		status = leases_read(files);
	}
	return !status && files->leased ? leases_fail(files) : status;
}

/* A mount with no answer from the process is no error. */
static int mount_park(const struct mount_at *mount, const struct park_request *request)
{
	AUTO_ANSWERS struct park_answers answers = {0};
	int error = park_ask(mount->mountpoint, request, &answers), pid = (int)request->pid;

	/* ENOTTY: an older daemon. */
	if (error && error != -ESRCH && error != -ENOTTY)
		return mount_fail(mount, request->pid, error);
	for (size_t i = 0; i < answers.count; i++) {
		if (answers.at[i].state == GPUMEM_NOTIFIED_WAITS) {
			cli_error("process %d has not parked its files within %.0f s: no safe "
				  "point (gpumem_safe_point)",
				  pid, request->seconds);
			return CLI_FAILED;
		}
		if (answers.at[i].error) {
			cli_error("process %d has not parked its files: %s", pid,
				  cli_words(answers.at[i].error));
			return (int)cli_status_of(answers.at[i].error);
		}
	}
	return CLI_OK;
}

/* Behind a request that waits for a safe point, so that the process acts on both in their order. */
static void park_withdraw(const struct files *files, enum park_timing timing)
{
	const struct park_request request = {GPUMEM_NOTICE_UNPARK, timing, files->pid, 0};

	for (size_t i = 0; i < files->mounts.count; i++) {
		AUTO_ANSWERS struct park_answers answers = {0};
		park_ask(files->mounts.at[i].mountpoint, &request, &answers);
	}
}

int files_park(struct files *files, enum park_timing timing, unsigned seconds)
{
	const struct park_request request = {GPUMEM_NOTICE_PARK, timing, files->pid, seconds};
	int status = unread_check(files);

	if (!status)
		status = leases_read(files);
	if (status || !files->leased)
		return status;
	for (size_t i = 0; i < files->mounts.count && !status; i++)
		status = mount_park(&files->mounts.at[i], &request);
	if (!status)
		status = leases_wait(files);
	if (status)
		park_withdraw(files, timing);
	return status;
}

/* Waits for a process that has files open to listen again. */
static int mount_unpark(const struct mount_at *mount, pid_t pid, uint32_t *count)
{
	const struct park_request request = {GPUMEM_NOTICE_UNPARK, PARK_NOW, pid, UNPARK_WAIT_S};
	double deadline = cli_seconds() + LISTEN_WAIT_S;
	AUTO_ANSWERS struct park_answers answers = {0};
	int error = park_ask(mount->mountpoint, &request, &answers);

	while (error == -ESRCH && cli_seconds() < deadline && file_is_open(pid, mount->device)) {
		usleep(POLL_US);
		error = park_ask(mount->mountpoint, &request, &answers);
	}
	if (error == -ESRCH || error == -ENOTTY || !file_is_open(pid, mount->device))
		return CLI_OK;
	bool is_waiting = false;
	for (size_t i = 0; i < answers.count && !error; i++) {
		*count += answers.at[i].files;
		is_waiting |= answers.at[i].state == GPUMEM_NOTIFIED_WAITS;
		error = -answers.at[i].error;
	}
	if (!error && !is_waiting)
		return CLI_OK;
	cli_error("process %d: its files are still parked: %s; gpumem unpark %d tries again",
		  (int)pid, error ? cli_words(-error) : "no answer", (int)pid);
	return error ? (int)cli_status_of(-error) : CLI_FAILED;
}

int files_unpark(const struct files *files, uint32_t *count)
{
	int status = CLI_OK;

	*count = 0;
	for (size_t i = 0; i < files->mounts.count; i++) {
		int mount_status = mount_unpark(&files->mounts.at[i], files->pid, count);

		status = status ? status : mount_status;
	}
	return status;
}
