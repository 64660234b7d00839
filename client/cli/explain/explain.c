/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* gpumem explain: says of a file, or of the files of a process, whether processes have the memory
 * itself, and why not. */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <string.h>
#include <sys/stat.h>

#include "client/cli/core/cli.h"
#include "client/cli/core/facts.h"
#include "client/cli/core/output_json.h"
#include "client/cli/core/residence.h"
#include "client/cli/explain/uses.h"
#include "client/cli/output/output.h"
#include "common/cleanup.h"
#include "common/number.h"

#define COMMAND_CELLS 32

static json_t *use_json(const struct use *use)
{
	AUTO_FREE char *command = facts_command(use->pid);
	const char *advice = use_advice(use);

	return json_pack(
	    "{s:I, s:I, s:o, s:o, s:o, s:s, s:I, s:b, s:s*, s:s*}", "pid", (json_int_t)use->pid,
	    "uid", (json_int_t)use->uid, "user", output_json_user(use->uid), "command",
	    output_json_text(command ? command : "?"), "path", output_json_text(use->path),
	    "manner", use_manner(use), "mapped_bytes", (json_int_t)use->mapped, "open", use->open,
	    "access", use->lease, "advice", advice);
}

static json_t *uses_json(const struct uses *uses)
{
	json_t *all = json_array();

	for (size_t i = 0; i < uses->count; i++)
		json_array_append_new(all, use_json(&uses->at[i]));
	return all;
}

static const char *text_of(const json_t *object, const char *name)
{
	const char *text = json_string_value(json_object_get(object, name));

	return text ? text : "";
}

/* The command line without the folders of its program. */
static const char *command_shown(const char *command)
{
	const char *end = strchrnul(command, ' '),
		   *slash = memrchr(command, '/', (size_t)(end - command));

	return slash ? slash + 1 : command;
}

static void use_row(struct table *table, const json_t *row)
{
	const char *manner = text_of(row, "manner"), *access = text_of(row, "access");
	bool in_place = strcmp(manner, "in place") == 0, own = strcmp(access, "own") == 0;

	table_cell(table, COLOUR_STRONG, "%d", (int)facts_number(row, "pid"));
	table_user(table, COLOUR_NONE, row);
	table_cell(table, COLOUR_NONE, "%.*s", COMMAND_CELLS,
		   command_shown(text_of(row, "command")));
	table_cell(table, in_place || own ? COLOUR_GOOD : COLOUR_WARN, "%s%s%s", manner,
		   in_place && *access ? ", " : "", in_place ? access : "");
	table_cell(table, COLOUR_NONE, "%s", text_of(row, "path"));
	table_cell(table, COLOUR_NONE, "%s", text_of(row, "advice"));
}

static void uses_write(const json_t *list)
{
	static const struct table_column columns[] = {
	    {"PID", TABLE_RIGHT}, {"USER", 0}, {"COMMAND", TABLE_OPTIONAL},
	    {"GETS BYTES", 0},	  {"FILE", 0}, {"TO HAVE THE MEMORY", 0},
	};

	table_list(TABLE(columns), list, use_row);
}

/* Reports the processes of which the caller may not see the mappings. */
static void hidden_write(const struct uses *uses)
{
	if (uses->hidden)
		cli_error("%u process%s may use files unseen: /proc hides mappings from this user",
			  uses->hidden, uses->hidden == 1 ? "" : "es");
}

#define LEFT                                                                                       \
	": it left a full GPU, or gpumem evict moved it; gpumem fetch, or a program that maps "    \
	"it, brings it back"

static const char *why_there(const struct residence *residence)
{
	if (residence_bytes_in(residence, "disk"))
		return "on the disk" LEFT;
	if (residence->count && strcmp(residence->places[0].name, "host") != 0 &&
	    residence_bytes_in(residence, "host"))
		return "in system memory" LEFT;
	return NULL;
}

static const char *why_copied(bool trusted)
{
	return trusted
		   ? "a process that opens it for reading gets the memory itself (share=trusted)"
		   : "a process that opens it for reading gets a private copy (share=trusted: the "
		     "memory itself)";
}

/* A regular file of a mount. */
struct explained {
	char resident[RESIDENCE_TEXT_MAX];
	const char *reason, *shared;
	uint64_t size;
	struct use_filter filter;
};

static int explained_read(const struct place *place, struct explained *explained)
{
	const char *path = place->path;
	AUTO_FREE char *share = NULL;
	struct residence residence;
	struct stat st;
	int status = place_stat(place, &st);

	if (status)
		return status;
	residence_read(path, &residence);
	residence_text(&residence, explained->resident);
	explained->reason = why_there(&residence);
	explained->shared = why_copied(facts_attribute(path, "share", &share) == 0 &&
				       strcmp(share, "trusted") == 0);
	explained->size = (uint64_t)st.st_size;
	explained->filter = (struct use_filter){.device = st.st_dev, .inode = st.st_ino};
	return CLI_OK;
}

static int file_write(const char *path, const struct explained *explained, json_t *list, int json)
{
	char size[OUTPUT_TEXT_MAX];

	if (json)
		return output_json(
		    json_pack("{s:o, s:I, s:s, s:s*, s:s, s:o}", "path", output_json_text(path),
			      "size", (json_int_t)explained->size, "resident", explained->resident,
			      "why", explained->reason, "share", explained->shared, "uses", list));
	output_line(stdout, "%s: %s on %s", path, output_size(explained->size, size),
		    explained->resident);
	if (explained->reason)
		output_line(stdout, "  %s", explained->reason);
	output_line(stdout, "  %s", explained->shared);
	if (!json_array_size(list))
		output_line(stdout, "  no process uses it");
	return output_list("uses", list, false, CLI_OK, uses_write);
}

static int file_explain(const char *path, int json)
{
	AUTO_PLACE struct place place = {0};
	struct explained explained = {0};
	struct uses uses;
	int status = place_find(path, &place);

	if (status == CLI_OK)
		status = explained_read(&place, &explained);
	if (status)
		return status;
	int error = uses_find(&place.mounts, &explained.filter, &uses);

	if (error)
		return cli_fail(path, -error);
	status = file_write(place.path, &explained, uses_json(&uses), json);
	hidden_write(&uses);
	uses_free(&uses);
	return status;
}

static int process_write(pid_t pid, const struct uses *uses, int json)
{
	json_t *list = uses_json(uses);

	if (!json && !uses->count && !uses->hidden)
		output_line(stdout, "process %d uses no file of a mount", (int)pid);
	return output_list("uses", list, json, CLI_OK, uses_write);
}

static int process_explain(pid_t pid, int json)
{
	struct use_filter filter = {.pid = pid};
	struct mounts mounts;
	struct uses uses;
	char name[32];

	snprintf(name, sizeof(name), "process %d", (int)pid);
	int error = mounts_find(&mounts);

	if (error)
		return cli_fail("/proc/self/mountinfo", -error);
	int status = mounts_drop_dead(&mounts);

	error = uses_find(&mounts, &filter, &uses);
	mounts_free(&mounts);
	if (error)
		return cli_fail(name, -error);
	int written = process_write(pid, &uses, json);

	hidden_write(&uses);
	if (uses.hidden && !written)
		written = CLI_DENIED;
	uses_free(&uses);
	return written ? written : status;
}

static int explain_run(struct cli_args *args)
{
	uint64_t pid;
	int json;

	if (cli_only_json(args, &json) < 0)
		return CLI_USAGE;
	if (parse_u64(args->argv[0], 1, INT_MAX, &pid) == 0)
		return process_explain((pid_t)pid, json);
	return file_explain(args->argv[0], json);
}

static const struct cli_option explain_options[] = {CLI_JSON, {0}};

const struct command command_explain = {
    .name = "explain",
    .words = "PATH|PID",
    .summary = "Say who has the memory of a file itself, who gets copies, and why",
    .help =
	"PID: the same of all files that a process has open, mapped or shared. A file whose name\n"
	"is a number is ./NUMBER.",
    .options = explain_options,
    .min_words = 1,
    .max_words = 1,
    .run = explain_run,
};
