/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* gpumem park and gpumem unpark: ask processes to give the memory of files back for a while, and to
 * map the files again. */
#include "client/cli/core/park.h"

#include <errno.h>
#include <signal.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "client/cli/core/cli.h"
#include "client/cli/core/facts.h"
#include "client/cli/core/mounts.h"
#include "client/cli/core/output_json.h"
#include "client/cli/output/output.h"
#include "common/cleanup.h"
#include "common/number.h"

#define NOW	(CLI_LONG + 2)
#define TIMEOUT (CLI_LONG + 3)

struct parking {
	struct park_request request;
	unsigned seconds;
	json_t *all; /* a row for each process */
	int status;
	/* Of the word that is asked for. */
	size_t first; /* its first row */
	const char *mountpoint;
	const char *inside; /* the file within the mount; NULL: all files of the process */
};

/* What became of a process. */
struct outcome {
	const char *state;
	const char *text; /* for people */
	enum cli_status status;
};

static void row_add(struct parking *parking, pid_t pid, uint32_t files,
		    const struct outcome *outcome)
{
	AUTO_FREE char *command = facts_command(pid);
	json_t *row = json_pack("{s:I, s:o, s:I, s:s, s:s, s:o}", "pid", (json_int_t)pid, "command",
				output_json_text(command ? command : "?"), "files",
				(json_int_t)files, "state", outcome->state, "result", outcome->text,
				"mount", output_json_text(parking->mountpoint));

	if (row)
		json_array_append_new(parking->all, row);
	if (outcome->status)
		parking->status = (int)outcome->status;
}

static void answer_add(struct parking *parking, const struct park_answer *answer)
{
	bool parks = parking->request.notice == GPUMEM_NOTICE_PARK;
	struct outcome outcome = {parks ? "parked" : "unparked", parks ? "parked" : "unparked",
				  CLI_OK};
	char text[64];

	if (answer->state == GPUMEM_NOTIFIED_WAITS) {
		snprintf(text, sizeof(text), "no answer%s within %u s",
			 parking->request.timing == PARK_NOW ? "" : ": no safe point",
			 parking->seconds);
		outcome = (struct outcome){"timeout", text, CLI_FAILED};
	} else if (answer->error) {
		outcome = (struct outcome){"failed", cli_words(answer->error),
					   cli_status_of(answer->error)};
	} else if (!answer->files) {
		return; /* the process has no such file */
	}
	row_add(parking, answer->pid, answer->files, &outcome);
}

static bool row_is_there(const struct parking *parking, pid_t pid)
{
	AUTO_FREE char *mount = output_escape(parking->mountpoint);
	const json_t *row;
	size_t i;

	json_array_foreach (parking->all, i, row)
		if (i >= parking->first && (pid_t)facts_number(row, "pid") == pid && mount &&
		    strcmp(json_string_value(json_object_get(row, "mount")), mount) == 0)
			return true;
	return false;
}

static const struct outcome outcome_denied = {"denied", "belongs to another user", CLI_DENIED};
static const struct outcome outcome_unsupported = {
    "unsupported", "takes no requests: see gpumem_safe_point in libgpumem(3)", CLI_FAILED};

/* A process that holds the file, or a file, and has not answered. Files of host/ and private copies
 * have no memory to give back. */
static void sharer_add(void *context, const struct sharer *sharer)
{
	struct parking *parking = context;
	bool meant = parking->inside ? strcmp(sharer->path, parking->inside) == 0
				     : sharer->pid == parking->request.pid;
	bool is_foreign = geteuid() && sharer->uid != geteuid();

	if (meant && strcmp(sharer->access, "copy") != 0 &&
	    strncmp(sharer->path, "/host/", strlen("/host/")) != 0 &&
	    !row_is_there(parking, sharer->pid))
		row_add(parking, sharer->pid, 0,
			is_foreign ? &outcome_denied : &outcome_unsupported);
}

/* path: the file, or the mount for all files. A mount that cannot be asked, because its daemon is
 * older or belongs to another user, is not where the process has its files. */
static void place_ask(struct parking *parking, const char *path)
{
	AUTO_ANSWERS struct park_answers answers = {0};
	int error = park_ask(path, &parking->request, &answers);

	for (size_t i = 0; i < answers.count; i++)
		answer_add(parking, &answers.at[i]);
	if (error && error != -ESRCH && parking->inside)
		parking->status = cli_fail(path, -error);
	else if (parking->request.notice == GPUMEM_NOTICE_PARK)
		facts_sharers(parking->mountpoint, sharer_add, parking);
}

static void file_ask(struct parking *parking, const char *word)
{
	AUTO_PLACE struct place place = {0};
	struct stat st;
	int status = place_find(word, &place);

	if (!status && stat(place.path, &st) < 0)
		status = cli_fail(word, errno);
	else if (!status && !S_ISREG(st.st_mode))
		status = cli_fail(word, S_ISDIR(st.st_mode) ? EISDIR : EINVAL);
	if (status) {
		parking->status = status;
		return;
	}
	parking->mountpoint = place.mount->mountpoint;
	parking->inside = place.inside;
	place_ask(parking, place.path);
}

static bool mount_is_usable(const struct mount_at *mount)
{
	return mounts_answers(mount) == 0;
}

static void process_ask(struct parking *parking)
{
	struct mounts mounts;
	int error = mounts_find(&mounts);

	if (error) {
		parking->status = cli_fail("/proc/self/mountinfo", -error);
		return;
	}
	mounts_keep(&mounts, mount_is_usable);
	for (size_t i = 0; i < mounts.count; i++) {
		parking->mountpoint = mounts.at[i].mountpoint;
		place_ask(parking, parking->mountpoint);
	}
	mounts_free(&mounts);
}

static void process_row(struct table *table, const json_t *row)
{
	const char *state = json_string_value(json_object_get(row, "state"));
	bool good = strcmp(state, "parked") == 0 || strcmp(state, "unparked") == 0;

	table_cell(table, COLOUR_STRONG, "%d", (int)facts_number(row, "pid"));
	table_cell(table, COLOUR_NONE, "%lu", (unsigned long)facts_number(row, "files"));
	table_cell(table, COLOUR_NONE, "%.48s", json_string_value(json_object_get(row, "command")));
	table_cell(table, good ? COLOUR_NONE : COLOUR_BAD, "%s",
		   json_string_value(json_object_get(row, "result")));
}

static void processes_write(const json_t *all)
{
	static const struct table_column columns[] = {
	    {"PID", TABLE_RIGHT},
	    {"FILES", TABLE_RIGHT},
	    {"COMMAND", TABLE_OPTIONAL},
	    {"RESULT", 0},
	};

	table_list(TABLE(columns), all, process_row);
}

static int options_read(struct cli_args *args, struct parking *parking, int *json)
{
	uint64_t seconds = PARK_SECONDS;
	int code, status = CLI_OK;

	*json = 0;
	while (!status && (code = cli_option(args)) > 0) {
		*json |= code == CLI_JSON_CODE;
		if (code == NOW)
			parking->request.timing = PARK_NOW;
		if (code == TIMEOUT)
			status = park_timeout_read(args, &seconds);
	}
	if (status)
		return status;
	parking->seconds = (unsigned)seconds;
	parking->request.seconds = (double)seconds;
	return code < 0 ? CLI_USAGE : CLI_OK;
}

/* A daemon tells users about their own processes alone. */
static int process_fail(pid_t pid, enum gpumem_notice notice)
{
	if (kill(pid, 0) < 0 && errno == EPERM) {
		cli_error("%d: this process belongs to another user", pid);
		return CLI_DENIED;
	}
	cli_error("%d: this process %s", pid,
		  notice == GPUMEM_NOTICE_PARK ? "maps no file of gpumemfs"
					       : "has no file that was parked on request");
	return CLI_FAILED;
}

/* CLI_USAGE, or else 0 and the status in parking. */
static int word_ask(struct cli_args *args, struct parking *parking, const char *word, bool json)
{
	enum gpumem_notice notice = parking->request.notice;
	bool digits = word[strspn(word, "0123456789")] == '\0';
	int old_status = parking->status;
	uint64_t pid = 0;

	if (digits && parse_u64(word, 1, INT32_MAX, &pid))
		return cli_usage(args->command, "%s is no number of a process", word);
	parking->request.pid = (pid_t)pid;
	parking->first = json_array_size(parking->all);
	parking->inside = NULL;
	parking->status = CLI_OK;
	if (digits)
		process_ask(parking);
	else
		file_ask(parking, word);
	bool found_none = !parking->status && json_array_size(parking->all) == parking->first;

	if (found_none && digits)
		parking->status = process_fail(parking->request.pid, notice);
	else if (found_none && !json)
		output_line(stdout, "%s: no process has it %s", word,
			    notice == GPUMEM_NOTICE_PARK ? "mapped" : "parked");
	if (!parking->status)
		parking->status = old_status;
	return CLI_OK;
}

static int processes_ask(struct cli_args *args, enum gpumem_notice notice)
{
	struct parking parking = {.request = {.notice = notice}};
	int json, status = options_read(args, &parking, &json);

	if (status)
		return status;
	parking.all = json_array();
	for (int i = 0; i < args->argc && status != CLI_USAGE; i++)
		status = word_ask(args, &parking, args->argv[i], json);
	if (status == CLI_USAGE) {
		json_decref(parking.all);
		return status;
	}
	return output_list("processes", parking.all, json, parking.status, processes_write);
}

static int park_run(struct cli_args *args)
{
	return processes_ask(args, GPUMEM_NOTICE_PARK);
}

static int unpark_run(struct cli_args *args)
{
	return processes_ask(args, GPUMEM_NOTICE_UNPARK);
}

static const struct cli_option park_options[] = {
    {NOW, "now", NULL, "do not wait for a safe point: nothing in the process may use the files"},
    {TIMEOUT, "timeout", "SECONDS", "how long to wait for answers (10)"},
    CLI_JSON,
    {0}};

const struct command command_park = {
    .name = "park",
    .words = "PID|PATH...",
    .summary = "Ask processes to give the GPU memory of their files back",
    .help =
	"All files of processes, or files in all of your processes. A process acts at its next\n"
	"gpumem_safe_point. A file in the current directory whose name is a number: ./NUMBER.",
    .options = park_options,
    .min_words = 1,
    .max_words = -1,
    .run = park_run,
};

const struct command command_unpark = {
    .name = "unpark",
    .words = "PID|PATH...",
    .summary = "Ask processes to map the files again that they parked on request",
    .options = park_options,
    .min_words = 1,
    .max_words = -1,
    .run = unpark_run,
};
