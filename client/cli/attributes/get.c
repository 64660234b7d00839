/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* gpumem get: the attributes of a file or directory, or the parameters of a mount. */
#include <jansson.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "client/cli/attributes/attributes.h"
#include "client/cli/core/facts.h"
#include "client/cli/core/mounts.h"
#include "client/cli/core/output_json.h"
#include "client/cli/core/params.h"
#include "client/cli/core/walk.h"
#include "client/cli/output/output.h"
#include "common/cleanup.h"
#include "common/number.h"

/* What the command line asks for. */
struct request {
	const struct command *command;
	char **paths;
	int n_paths;
	char **names; /* ends with NULL */
	bool recursive;
	bool of_mount; /* the path is the mountpoint: its parameters */
	json_t *json;  /* with --json the values of each path */
};

/* All attributes that the file has, in the order of the table. */
static json_t *attributes_get(const char *path)
{
	json_t *values = json_object();

	for (const struct attribute *attribute = attributes; attribute->name; attribute++) {
		AUTO_FREE char *text = NULL;

		if (attribute->kind != ATTRIBUTE_READ_ONLY_LINES &&
		    facts_attribute(path, attribute->name, &text) == 0)
			json_object_set_new(values, attribute->name, json_string(text));
	}
	return values;
}

static int attributes_get_named(const struct request *request, const struct place *place,
				json_t *values)
{
	const char *path = place->path;

	for (char **word = request->names; *word; word++) {
		if (request->of_mount && params_get(place, *word, values) > 0)
			continue;
		const struct attribute *attribute = attribute_find(*word);
		AUTO_FREE char *text = NULL;

		if (!attribute)
			return attribute_unknown(request->command, *word);
		int error = facts_attribute(path, attribute->name, &text);

		/* Not each file below a directory has each attribute. */
		if (error == -ENODATA && request->recursive)
			continue;
		if (error == -ENODATA) {
			cli_error("%s has no %s", path, attribute->name);
			return CLI_FAILED;
		}
		if (error)
			return cli_fail(path, -error);
		json_object_set_new(values, attribute->name, json_string(text));
	}
	return CLI_OK;
}

/* A value may have several lines. */
static void value_write(const char *text)
{
	do {
		size_t length = strcspn(text, "\n");

		output_line(stdout, "%.*s", (int)length, text);
		text += length + (text[length] == '\n');
	} while (*text);
}

/* The values as JSON: numbers as numbers, and null for a limit that is not set. */
static json_t *get_json(const json_t *values)
{
	json_t *all = json_object(), *value;
	const char *name;

	json_object_foreach ((json_t *)values, name, value) {
		const char *text = json_string_value(value);
		uint64_t number;

		if (parse_u64(text, 0, INT64_MAX, &number) == 0)
			json_object_set_new(all, name, json_integer((json_int_t)number));
		else if (strcmp(text, "none") == 0)
			json_object_set_new(all, name, json_null());
		else
			json_object_set(all, name, value);
	}
	return all;
}

/* For scripts, a single attribute is written as its value alone. Of several paths, behind the path.
 */
static void get_write(const struct request *request, const char *path, const json_t *values)
{
	bool bare = request->names[0] && !request->names[1] && json_object_size(values) == 1;
	const char *name;
	json_t *value;

	json_object_foreach ((json_t *)values, name, value) {
		if (request->n_paths > 1 || request->recursive)
			output_text(stdout, "%s: ", path);
		if (!bare)
			output_text(stdout, "%s=", name);
		value_write(json_string_value(value));
	}
}

static int get_place(const struct request *request, const struct place *place, const char *path)
{
	json_t *values = request->names[0] ? json_object() : attributes_get(place->path);
	int status = CLI_OK;

	if (request->names[0])
		status = attributes_get_named(request, place, values);
	else if (request->of_mount)
		params_get(place, NULL, values);
	if (status == CLI_OK && request->json)
		json_array_append_new(request->json,
				      json_pack("{s:o, s:o}", "path", output_json_text(path),
						"attributes", get_json(values)));
	else if (status == CLI_OK)
		get_write(request, path, values);
	json_decref(values);
	return status;
}

static int entry_get(const struct walk_entry *entry, void *request)
{
	return get_place(request, &entry->place, entry->place.path);
}

static int get_path(struct request *request, const char *path)
{
	AUTO_PLACE struct place place = {0};
	int status = place_find(path, &place);

	if (status)
		return status;
	if (request->recursive)
		return walk_tree(&place, entry_get, request);
	request->of_mount = place_is_mount(&place);
	return get_place(request, &place, path);
}

/* What is no attribute and no file is taken for a name, and refused as such. */
static bool word_is_path(const char *word)
{
	return !attribute_find(word) && (strchr(word, '/') || access(word, F_OK) == 0);
}

static int get_run(struct cli_args *args)
{
	struct request request = {.command = args->command, .n_paths = 1};
	int code, json = 0, status = CLI_OK, written = CLI_OK;

	while ((code = cli_option(args)) > 0) {
		json |= code == CLI_JSON_CODE;
		request.recursive |= code == 'r';
	}
	if (code < 0)
		return CLI_USAGE;
	request.paths = args->argv; /* without the options from here on */
	while (request.n_paths < args->argc && word_is_path(args->argv[request.n_paths]))
		request.n_paths++;
	request.names = args->argv + request.n_paths;
	for (char **name = request.names; request.recursive && *name; name++)
		if (!attribute_find(*name))
			return attribute_unknown(args->command, *name);
	request.json = json ? json_array() : NULL;
	for (int i = 0; i < request.n_paths; i++) {
		int path_status = get_path(&request, request.paths[i]);

		status = status ? status : path_status;
	}
	if ((request.n_paths > 1 || request.recursive) && json)
		written = output_json(json_pack("{s:O}", "paths", request.json));
	else if (json && !status)
		written = output_json(
		    json_incref(json_object_get(json_array_get(request.json, 0), "attributes")));
	json_decref(request.json);
	return status ? status : written;
}

static void get_offer(int count, char **words, const char *start)
{
	(void)words;
	for (const struct attribute *attribute = attributes; count && attribute->name; attribute++)
		cli_offer(start, attribute->name, attribute->help);
}

static const struct cli_option get_options[] = {
    {'r', "recursive", NULL, "show all files and directories below as well"}, CLI_JSON, {0}};

const struct command command_get = {
    .name = "get",
    .words = "PATH... [NAME...]",
    .summary = "Show attributes of files and directories, or parameters of a mount",
    .help = "Without NAME: all but extents, as lines NAME=VALUE. With one NAME: only the value.\n"
	    "Lines of several paths, and with -r, begin with the path.",
    .options = get_options,
    .min_words = 1,
    .max_words = -1,
    .run = get_run,
    .offer = get_offer,
};
