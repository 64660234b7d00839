/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* gpumem sharers: shows which processes have leases of files. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "client/cli/core/cli.h"
#include "client/cli/core/facts.h"
#include "client/cli/core/mounts.h"
#include "client/cli/core/output_json.h"
#include "client/cli/output/output.h"
#include "common/cleanup.h"

#define COMMAND_CELLS 48

struct sharers {
	const char *mountpoint;
	const char *inside; /* only this path and the paths below */
	json_t *all;
};

static void sharer_add(void *context, const struct sharer *sharer)
{
	struct sharers *sharers = context;
	AUTO_FREE char *command = facts_command(sharer->pid), *path = NULL;

	if (!facts_is_below(sharer->path, sharers->inside) || !command)
		return;
	const char *between = *sharer->path == '/' ? "" : ": ";

	if (asprintf(&path, "%s%s%s", sharers->mountpoint, between, sharer->path) < 0)
		return;
	json_t *row = json_pack(
	    "{s:o, s:I, s:I, s:s, s:o, s:I, s:o, s:I}", "path", output_json_text(path), "pid",
	    (json_int_t)sharer->pid, "uid", (json_int_t)sharer->uid, "access", sharer->access,
	    "command", output_json_text(command), "bytes", (json_int_t)sharer->bytes, "user",
	    output_json_user(sharer->uid), "since", (json_int_t)sharer->start);

	if (row)
		json_array_append_new(sharers->all, row);
}

static void sharer_row(struct table *table, const json_t *row)
{
	char size[OUTPUT_TEXT_MAX], start[OUTPUT_TEXT_MAX];

	table_cell(table, COLOUR_STRONG, "%d", (int)facts_number(row, "pid"));
	table_user(table, COLOUR_NONE, row);
	table_cell(table, COLOUR_NONE, "%s", json_string_value(json_object_get(row, "access")));
	table_cell(table, COLOUR_NONE, "%s", output_size(facts_number(row, "bytes"), size));
	table_cell(table, COLOUR_NONE, "%s",
		   output_date((int64_t)facts_number(row, "since"), start));
	table_cell(table, COLOUR_NONE, "%.*s", COMMAND_CELLS,
		   json_string_value(json_object_get(row, "command")));
	table_cell(table, COLOUR_NONE, "%s", json_string_value(json_object_get(row, "path")));
}

static void sharers_write(const json_t *all)
{
	static const struct table_column columns[] = {
	    {"PID", TABLE_RIGHT},
	    {"USER", 0},
	    {"ACCESS", 0},
	    {"SIZE", TABLE_RIGHT},
	    {"SINCE", TABLE_OPTIONAL},
	    {"COMMAND", TABLE_OPTIONAL},
	    {"PATH", 0},
	};

	table_list(TABLE(columns), all, sharer_row);
}

static int sharers_of_mount(const char *mountpoint, const char *inside, void *all)
{
	struct sharers sharers = {mountpoint, inside, all};

	return facts_sharers(mountpoint, sharer_add, &sharers);
}

static int sharers_run(struct cli_args *args)
{
	int json;

	if (cli_only_json(args, &json) < 0)
		return CLI_USAGE;
	json_t *all = json_array();
	int status = place_each(args->argc ? args->argv[0] : NULL, sharers_of_mount, all);

	return output_list("sharers", all, json, status, sharers_write);
}

static const struct cli_option sharers_options[] = {CLI_JSON, {0}};

const struct command command_sharers = {
    .name = "sharers",
    .words = "[PATH]",
    .summary = "Show which processes share the memory of files",
    .help = "Without PATH, the sharers of every mount. Without sharers nothing is printed.",
    .options = sharers_options,
    .max_words = 1,
    .run = sharers_run,
};
