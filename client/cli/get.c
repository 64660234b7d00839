/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* gpumem get: the attributes of a file or directory, or the parameters of a mount. */
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "client/cli/attributes.h"
#include "client/cli/core/facts.h"
#include "client/cli/core/mounts.h"
#include "client/cli/core/output.h"
#include "client/cli/core/params.h"
#include "common/cleanup.h"
#include "common/number.h"

/* All attributes that the file has, in the order of the table. */
static json_t *attributes_get(const char *path)
{
	json_t *values = json_object();

	for (const struct attribute *one = attributes; one->name; one++) {
		AUTO_FREE char *text = NULL;

		if (one->kind != ATTRIBUTE_READ_ONLY_LINES &&
		    facts_attribute(path, one->name, &text) == 0)
			json_object_set_new(values, one->name, json_string(text));
	}
	return values;
}

static int attributes_get_named(const struct cli_args *args, const struct place *place,
				json_t *values)
{
	const char *path = place->path;

	for (int i = 1; i < args->argc; i++) {
		if (place_is_mount(place) && params_get(place, args->argv[i], values) > 0)
			continue;
		const struct attribute *one = attribute_find(args->argv[i]);
		AUTO_FREE char *text = NULL;

		if (!one)
			return attribute_unknown(args->command, args->argv[i]);
		int error = facts_attribute(path, one->name, &text);

		if (error == -ENODATA) {
			cli_error("%s has no %s", path, one->name);
			return CLI_FAILED;
		}
		if (error)
			return cli_fail(path, -error);
		json_object_set_new(values, one->name, json_string(text));
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

/* For scripts, a single attribute is written as its value alone. */
static void get_write(const json_t *values, bool bare)
{
	const char *name;
	json_t *value;

	json_object_foreach ((json_t *)values, name, value) {
		if (!bare)
			output_text(stdout, "%s=", name);
		value_write(json_string_value(value));
	}
}

static int get_run(struct cli_args *args)
{
	AUTO_PLACE struct place place = {0};
	int json;

	if (cli_only_json(args, &json) < 0)
		return CLI_USAGE;
	int status = place_find(args->argv[0], &place);

	if (status)
		return status;
	json_t *values = args->argc > 1 ? json_object() : attributes_get(place.path);

	if (args->argc > 1)
		status = attributes_get_named(args, &place, values);
	else if (place_is_mount(&place))
		params_get(&place, NULL, values);
	if (status == CLI_OK && json)
		status = output_json(get_json(values));
	else if (status == CLI_OK)
		get_write(values, args->argc == 2 && json_object_size(values) == 1);
	json_decref(values);
	return status;
}

static void get_offer(int count, char **words, const char *start)
{
	(void)words;
	for (const struct attribute *one = attributes; count && one->name; one++)
		cli_offer(start, one->name, one->help);
}

static const struct cli_option get_options[] = {CLI_JSON, {0}};

const struct command command_get = {
    .name = "get",
    .words = "PATH [NAME...]",
    .summary = "Show attributes of a file or directory, or parameters of a mount",
    .more = "Without NAME: all but extents, as lines NAME=VALUE. With one NAME: only the value.",
    .options = get_options,
    .min_words = 1,
    .max_words = -1,
    .run = get_run,
    .offer = get_offer,
};
