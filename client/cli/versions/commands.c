/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* gpumem publish, versions and rollback. */
#include <errno.h>
#include <string.h>

#include "client/cli/core/cli.h"
#include "client/cli/core/facts.h"
#include "client/cli/core/output_json.h"
#include "client/cli/output/output.h"
#include "client/cli/versions/versions.h"
#include "client/core/error.h"
#include "client/lib/versions/versions.h"
#include "common/cleanup.h"
#include "common/number.h"

#define KEEP		  (CLI_LONG + 2)
#define NS_PER_SECOND	  UINT64_C(1000000000)
#define AUTO_VERSION_LIST __attribute__((cleanup(version_list_free)))

static int set_fail(const char *word, int error)
{
	cli_error("%s: %s", word, client_error_text());
	return (int)cli_status_of(-error);
}

static void published_print(const char *word, const char *version)
{
	output_line(stdout, "%s/%s: %s", word, VERSIONS_CURRENT, version);
}

/* A version that was never published may be one that is being written. */
static bool is_superfluous(const struct version *version, uint64_t rank, uint64_t keep)
{
	return version->published && rank >= keep && !version->is_current && !version->leases &&
	       !version->n_users && !version->is_unreadable;
}

/* Removes what is older than the versions to keep, unless a process uses it. */
static int older_remove(const char *word, const struct place *place, int set, const char *new_name,
			uint64_t keep)
{
	AUTO_VERSION_LIST struct version_list list = {0};
	int status = version_list_read(place, set, &list);

	for (size_t i = 0; !status && i < list.n; i++) {
		const char *name = list.versions[i].name;

		if (!is_superfluous(&list.versions[i], i, keep) || strcmp(name, new_name) == 0)
			continue;
		int error = version_remove(set, name);

		if (!error)
			output_line(stdout, "%s/%s: removed", word, name);
		else if (error != -EBUSY && error != -ENOENT)
			status = cli_fail(name, -error);
	}
	version_remove_left(set);
	return status;
}

static int publish_run(struct cli_args *args)
{
	AUTO_PLACE struct place place = {0};
	uint64_t keep = 0;
	int code;

	while ((code = cli_option(args)) > 0)
		if (code == KEEP && (parse_u64(args->value, 1, UINT32_MAX, &keep) < 0))
			return cli_usage(args->command, "--keep=%s: not a number from 1 on",
					 args->value);
	if (code < 0)
		return CLI_USAGE;
	AUTO_CLOSE int set = version_set_open(args->argv[0], &place);

	if (set < 0)
		return -set;
	int error = versions_publish(set, args->argv[1]);

	if (error)
		return set_fail(args->argv[0], error);
	published_print(args->argv[0], args->argv[1]);
	return keep ? older_remove(args->argv[0], &place, set, args->argv[1], keep) : CLI_OK;
}

static int rollback_run(struct cli_args *args)
{
	AUTO_PLACE struct place place = {0};
	char version[NAME_MAX + 1];

	if (cli_option(args) < 0)
		return CLI_USAGE;
	AUTO_CLOSE int set = version_set_open(args->argv[0], &place);

	if (set < 0)
		return -set;
	if (args->argc > 1 && strlen(args->argv[1]) >= sizeof(version))
		return cli_fail(args->argv[1], ENAMETOOLONG);
	if (args->argc > 1)
		strcpy(version, args->argv[1]);
	int error =
	    args->argc > 1 ? versions_publish(set, version) : versions_rollback(set, version);

	if (error)
		return set_fail(args->argv[0], error);
	published_print(args->argv[0], version);
	return CLI_OK;
}

static json_t *version_json(const struct version *version)
{
	json_t *pids = json_array();

	for (size_t i = 0; i < version->n_users; i++)
		json_array_append_new(pids, json_integer(version->users[i]));
	return json_pack("{s:o, s:I, s:I, s:I, s:b, s:b, s:o}", "name",
			 output_json_text(version->name), "bytes", (json_int_t)version->bytes,
			 "published", (json_int_t)(version->published / NS_PER_SECOND), "leases",
			 (json_int_t)version->leases, "current", version->is_current, "previous",
			 version->is_previous, "pids", pids);
}

static void pids_cell(struct table *table, const json_t *row)
{
	const json_t *pids = json_object_get(row, "pids");
	char text[64] = "";
	size_t at = 0, shown = 0;

	for (; shown < json_array_size(pids) && at < sizeof(text) - 24; shown++)
		at += (size_t)snprintf(text + at, sizeof(text) - at, "%s%d", shown ? " " : "",
				       (int)json_integer_value(json_array_get(pids, shown)));
	if (shown < json_array_size(pids))
		snprintf(text + at, sizeof(text) - at, " +%zu", json_array_size(pids) - shown);
	table_cell(table, COLOUR_NONE, "%s", *text ? text : "-");
}

static void version_row(struct table *table, const json_t *row)
{
	char size[OUTPUT_TEXT_MAX], at[OUTPUT_TEXT_MAX];
	bool is_current = json_is_true(json_object_get(row, "current"));

	table_cell(table, is_current ? COLOUR_STRONG : COLOUR_NONE, "%s",
		   json_string_value(json_object_get(row, "name")));
	table_cell(table, COLOUR_NONE, "%s", output_size(facts_number(row, "bytes"), size));
	table_cell(table, COLOUR_NONE, "%s",
		   output_date((int64_t)facts_number(row, "published"), at));
	table_cell(table, COLOUR_NONE, "%s",
		   is_current					    ? VERSIONS_CURRENT
		   : json_is_true(json_object_get(row, "previous")) ? VERSIONS_PREVIOUS
								    : "-");
	pids_cell(table, row);
}

static void versions_write(const json_t *list)
{
	static const struct table_column columns[] = {
	    {"VERSION", 0}, {"SIZE", TABLE_RIGHT}, {"PUBLISHED", 0}, {"LINK", 0}, {"PROCESSES", 0},
	};

	table_list(TABLE(columns), list, version_row);
}

static int versions_run(struct cli_args *args)
{
	AUTO_VERSION_LIST struct version_list list = {0};
	AUTO_PLACE struct place place = {0};
	int json;

	if (cli_only_json(args, &json) < 0)
		return CLI_USAGE;
	AUTO_CLOSE int set = version_set_open(args->argv[0], &place);

	if (set < 0)
		return -set;
	int status = version_list_read(&place, set, &list);
	json_t *rows = json_array();

	for (size_t i = 0; i < list.n; i++)
		json_array_append_new(rows, version_json(&list.versions[i]));
	return output_list("versions", rows, json, status, versions_write);
}

static const struct cli_option publish_options[] = {
    {KEEP, "keep", "N", "then remove published versions but the last N, and those in use"}, {0}};
static const struct cli_option versions_options[] = {CLI_JSON, {0}};

const struct command command_publish = {
    .name = "publish",
    .words = "SET VERSION",
    .summary = "Make a version the current one",
    .help = "SET is a directory, VERSION the name of a file or directory in it. The link\n"
	    "SET/current is exchanged by one rename: each look-up finds the earlier version or\n"
	    "this one. SET/previous names the earlier one.",
    .options = publish_options,
    .min_words = 2,
    .max_words = 2,
    .run = publish_run,
};

const struct command command_rollback = {
    .name = "rollback",
    .words = "SET [VERSION]",
    .summary = "Make an earlier version current again",
    .help = "Without VERSION, the one that was current before.",
    .min_words = 1,
    .max_words = 2,
    .run = rollback_run,
};

const struct command command_versions = {
    .name = "versions",
    .words = "SET",
    .summary = "List the versions of a set, and who uses them",
    .help = "The version that was published last comes first. PROCESSES: those that have mapped\n"
	    "files of a version; others' are shown to root and to the files' owner.",
    .options = versions_options,
    .min_words = 1,
    .max_words = 1,
    .run = versions_run,
};
