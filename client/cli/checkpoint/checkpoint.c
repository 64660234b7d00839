/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* gpumem checkpoint: moves the GPU memory of a process to system memory, by the driver, and the
 * process to a directory, by CRIU; and back. */
#include <errno.h>
#include <limits.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "client/cli/checkpoint/criu.h"
#include "client/cli/checkpoint/files.h"
#include "client/cli/checkpoint/images.h"
#include "client/cli/core/cli.h"
#include "client/cli/output/output.h"
#include "client/core/error.h"
#include "client/gpu/cuda/process.h"
#include "common/cleanup.h"
#include "common/number.h"

enum { TO = CLI_LONG + 2, RESTORE, NOW, TIMEOUT };

#define DIGITS_MAX    16
#define REASON_MAX    256
#define FAILED_ADVICE ": the process cannot use CUDA any more: end the process"

/* The words of the command line. */
struct request {
	const char *directory; /* to save the process in; NULL: none */
	bool restore;
	enum park_timing timing;
	uint64_t seconds; /* to wait for a safe point */
};

static int own_check(pid_t pid)
{
	char path[sizeof("/proc/") + DIGITS_MAX];
	struct stat st;

	snprintf(path, sizeof(path), "/proc/%d", (int)pid);
	if (stat(path, &st) < 0) {
		cli_error("there is no process %d", (int)pid);
		return CLI_FAILED;
	}
	if (geteuid() != 0 && geteuid() != st.st_uid) {
		cli_error("process %d belongs to another user", (int)pid);
		return CLI_DENIED;
	}
	if (process_is_daemon(pid)) {
		cli_error(
		    "process %d is a daemon of gpumemfs, whose memory other processes have mapped",
		    (int)pid);
		return CLI_FAILED;
	}
	return CLI_OK;
}

static int process_find(pid_t pid, struct files *files)
{
	*files = (struct files){0};
	int status = own_check(pid);

	return status ? status : files_find(pid, files);
}

/* The driver's error for the process. */
static int driver_fail(pid_t pid, int error, const char *advice)
{
	cli_error("process %d: %s%s", (int)pid, client_error_text(), advice);
	return (int)cli_status_of(-error);
}

static int state_find(pid_t pid, enum client_process_state *state)
{
	int found = cuda_process_state(pid);

	if (found < 0)
		return driver_fail(pid, found,
				   found == -EINVAL ? ": does the process use CUDA?" : "");
	*state = (enum client_process_state)found;
	return CLI_OK;
}

static int gpu_restore(pid_t pid)
{
	int error = cuda_process_change(pid, CLIENT_PROCESS_CHECKPOINTED, CLIENT_PROCESS_LOCKED);

	if (!error)
		return CLI_OK;
	if (error == -ENOSPC)
		return driver_fail(pid, error,
				   ": its memory stays in system memory until the GPU has room "
				   "(gpumem evict --free) and gpumem checkpoint --restore is "
				   "tried again");
	return driver_fail(pid, error,
			   cuda_process_state(pid) == CLIENT_PROCESS_FAILED ? FAILED_ADVICE : "");
}

/* The driver's steps back, from any state. */
static int gpu_resume(pid_t pid)
{
	enum client_process_state state = CLIENT_PROCESS_FAILED;
	int status = state_find(pid, &state);

	if (!status && state == CLIENT_PROCESS_FAILED) {
		cli_error("process %d: a restore has failed" FAILED_ADVICE, (int)pid);
		status = CLI_FAILED;
	}
	if (!status && state == CLIENT_PROCESS_CHECKPOINTED)
		status = gpu_restore(pid);
	if (status || state == CLIENT_PROCESS_RUNNING)
		return status;
	int error = cuda_process_change(pid, CLIENT_PROCESS_LOCKED, CLIENT_PROCESS_RUNNING);

	return error ? driver_fail(pid, error, "") : CLI_OK;
}

/* After a failed step of gpu_checkpoint, with the reason in words: "" if the reason was reported.
 */
static void gpu_go_on(const struct files *files, const char *reason)
{
	int error = cuda_process_change(files->pid, CLIENT_PROCESS_LOCKED, CLIENT_PROCESS_RUNNING);
	uint32_t count = 0;

	if (error) {
		driver_fail(files->pid, error,
			    ": the process is still stopped: try gpumem checkpoint --restore");
		return;
	}
	if (*reason)
		cli_error("process %d: %s: the process goes on", (int)files->pid, reason);
	files_unpark(files, &count);
}

/* A locked process maps no file, so that the leases are checked under the lock. After an error the
 * files are mapped again. */
static int gpu_checkpoint(struct files *files)
{
	char reason[REASON_MAX] = "";
	pid_t pid = files->pid;
	uint32_t count = 0;
	int error = cuda_process_change(pid, CLIENT_PROCESS_RUNNING, CLIENT_PROCESS_LOCKED);

	if (error) {
		int status = driver_fail(pid, error, ": the process could not be stopped");

		files_unpark(files, &count);
		return status;
	}
	int status = files_check(files);

	if (!status) {
		error =
		    cuda_process_change(pid, CLIENT_PROCESS_LOCKED, CLIENT_PROCESS_CHECKPOINTED);
		if (!error)
			return CLI_OK;
		snprintf(reason, sizeof(reason), "%s", client_error_text());
		status = (int)cli_status_of(-error);
	}
	gpu_go_on(files, reason);
	return status;
}

static int gpu_suspend(struct files *files, const struct request *request)
{
	enum client_process_state state = CLIENT_PROCESS_FAILED;
	int status = state_find(files->pid, &state);

	if (status)
		return status;
	if (state != CLIENT_PROCESS_RUNNING) {
		cli_error(
		    "process %d is stopped by a checkpoint already: gpumem checkpoint --restore %d",
		    (int)files->pid, (int)files->pid);
		return CLI_FAILED;
	}
	status = files_park(files, request->timing, (unsigned)request->seconds);
	return status ? status : gpu_checkpoint(files);
}

static int process_suspend(struct files *files, const struct request *request)
{
	int status = gpu_suspend(files, request);

	if (!status)
		printf("process %d: its GPU memory is in system memory; gpumem checkpoint "
		       "--restore %d brings it back\n",
		       (int)files->pid, (int)files->pid);
	return status;
}

/* All steps back, from any state, *count files among them. */
static int process_resume(const struct files *files, uint32_t *count)
{
	int status = gpu_resume(files->pid);

	*count = 0;
	return status ? status : files_unpark(files, count);
}

static int process_save_in(struct files *files, const struct request *request,
			   struct private_dir *images)
{
	uint32_t count = 0;
	int status = gpu_suspend(files, request);

	if (status) {
		private_dir_remove(images);
		return status;
	}
	status = criu_dump(files->pid, images->path);
	if (status)
		process_resume(files, &count);
	else
		output_line(
		    stdout,
		    "process %d: saved in %s; gpumem checkpoint --restore %s starts it again",
		    (int)files->pid, request->directory, request->directory);
	return status;
}

static int process_save(struct files *files, const struct request *request)
{
	AUTO_PRIVATE_DIR struct private_dir images = PRIVATE_DIR_NONE;
	int status = criu_is_there() ? CLI_OK : CLI_FAILED;

	if (!status)
		status = images_make(request->directory, &images);
	return status ? status : process_save_in(files, request, &images);
}

/* After an interruption a process may run whose files are still parked. */
static int process_restore(struct files *files)
{
	enum client_process_state state = CLIENT_PROCESS_FAILED;
	uint32_t count = 0;

	/* A process that criu_dump has stopped has no thread that answers the driver. */
	if (kill(files->pid, SIGCONT) < 0)
		return cli_fail("the process", errno);
	int status = state_find(files->pid, &state);

	if (!status)
		status = process_resume(files, &count);
	if (status || state != CLIENT_PROCESS_RUNNING || count)
		return status;
	cli_error("process %d is not stopped by a checkpoint", (int)files->pid);
	return CLI_FAILED;
}

static int process_load(const char *word, struct files *files)
{
	AUTO_PRIVATE_DIR struct private_dir images = PRIVATE_DIR_NONE;
	AUTO_FREE char *pid_file = NULL;
	pid_t pid = 0;
	int status = images_open(word, &images);

	if (!status && !criu_is_there())
		status = CLI_FAILED;
	if (status)
		return status;
	if (asprintf(&pid_file, "%s/" IMAGES_PID, images.path) < 0) {
		pid_file = NULL;
		return cli_fail(word, ENOMEM);
	}
	status = criu_restore(images.path, pid_file);
	if (!status)
		status = images_read_pid(&images, &pid);
	return status ? status : process_find(pid, files);
}

static int restore(const char *word)
{
	struct files files = {0};
	uint64_t number;
	int status;

	if (parse_u64(word, 1, INT_MAX, &number) == 0)
		status = process_find((pid_t)number, &files);
	else
		status = process_load(word, &files);
	if (!status)
		status = process_restore(&files);
	if (!status)
		printf("process %d: its GPU memory is back\n", (int)files.pid);
	files_free(&files);
	return status;
}

static int checkpoint(const char *word, const struct request *request)
{
	struct files files;
	uint64_t number;

	if (parse_u64(word, 1, INT_MAX, &number) < 0)
		return cli_usage(&command_checkpoint, "%s is not the number of a process", word);
	int status = process_find((pid_t)number, &files);

	if (!status)
		status = request->directory ? process_save(&files, request)
					    : process_suspend(&files, request);
	files_free(&files);
	return status;
}

static int checkpoint_run(struct cli_args *args)
{
	struct request request = {.timing = PARK_AT_SAFE_POINT, .seconds = PARK_SECONDS};
	int code, status = CLI_OK;

	while (!status && (code = cli_option(args)) > 0) {
		if (code == TO)
			request.directory = args->value;
		else if (code == RESTORE)
			request.restore = true;
		else if (code == NOW)
			request.timing = PARK_NOW;
		else
			status = park_timeout_read(args, &request.seconds);
	}
	if (status)
		return status;
	if (code < 0)
		return CLI_USAGE;
	if (request.restore && request.directory)
		return cli_usage(args->command, "--to and --restore exclude each other");
	return request.restore ? restore(args->argv[0]) : checkpoint(args->argv[0], &request);
}

static const struct cli_option checkpoint_options[] = {
    {TO, "to", "DIR", "save the process in a new directory, with CRIU, and end it"},
    {RESTORE, "restore", NULL, "go on with a process, or with the process saved in a directory"},
    {NOW, "now", NULL, "do not wait for a safe point: nothing in the process may use the files"},
    {TIMEOUT, "timeout", "SECONDS", "how long to wait for a safe point (10)"},
    {0}};

const struct command command_checkpoint = {
    .name = "checkpoint",
    .words = "PID|DIR",
    .summary = "Stop a process's use of GPUs, and keep or save its GPU memory",
    .help = "The driver moves what the process has allocated. Files that the process has mapped\n"
	    "are parked before, as by gpumem park, and mapped again after.",
    .options = checkpoint_options,
    .min_words = 1,
    .max_words = 1,
    .run = checkpoint_run,
};
