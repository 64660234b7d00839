/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* gpumem get and set: the attributes of a file or directory. */
#include "client/cli/attributes.h"

#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>
#include <sys/xattr.h>

#include "client/cli/core/cli.h"
#include "client/cli/core/facts.h"
#include "client/cli/core/mounts.h"
#include "client/cli/core/output.h"
#include "client/cli/core/params.h"
#include "client/core/beneath.h"
#include "common/cleanup.h"
#include "common/closest.h"
#include "common/number.h"

#define DEFAULT "default"

const struct attribute *attribute_find(const char *name)
{
	if (strncmp(name, ATTRIBUTES_PREFIX, strlen(ATTRIBUTES_PREFIX)) == 0)
		name += strlen(ATTRIBUTES_PREFIX);
	for (const struct attribute *one = attributes; one->name; one++)
		if (strcmp(one->name, name) == 0)
			return one;
	return NULL;
}

static int attribute_unknown(const struct command *command, const char *name)
{
	struct closest closest = {.word = name};

	for (const struct attribute *one = attributes; one->name; one++)
		closest_try(&closest, one->name);
	if (closest.name)
		return cli_usage(command, "unknown attribute %s: did you mean %s?", name,
				 closest.name);
	return cli_usage(command, "unknown attribute %s (see gpumem(7))", name);
}

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

static bool place_is_root(const struct place *place)
{
	return strcmp(place->inside, "/") == 0;
}

static int attributes_get_named(const struct cli_args *args, const struct place *place,
				json_t *values)
{
	const char *path = place->path;

	for (int i = 1; i < args->argc; i++) {
		if (place_is_root(place) && params_get(place, args->argv[i], values) > 0)
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
	else if (place_is_root(&place))
		params_get(&place, NULL, values);
	if (status == CLI_OK && json)
		status = output_json(get_json(values));
	else if (status == CLI_OK)
		get_write(values, args->argc == 2 && json_object_size(values) == 1);
	json_decref(values);
	return status;
}

/* The reason why the mount cannot set the attribute. */
static const char *set_lacks(const struct place *place, const struct attribute *one,
			     const char *value)
{
	AUTO_FREE char *params = NULL, *spool = NULL, *recovery = NULL;

	if (strcmp(one->name, "force_pcie") == 0)
		return "the driver offers no forced PCIe mapping here";
	if (strcmp(one->name, "copy") == 0)
		return "the CPU has no mapping of this GPU's memory (gpumem doctor says why)";
	if (strcmp(one->name, "persist") != 0 ||
	    facts_text(place->mount->where, "params", &params) < 0)
		return "not supported on this mount";
	spool = facts_line(params, "spool");
	recovery = facts_line(params, "recovery");
	if (strcmp(value, "disk") == 0 && (!spool || strncmp(spool, "none", 4) == 0))
		return "this mount has no spool; mount with -o spool=DIR";
	if (strcmp(value, "restart") == 0 && (!recovery || strncmp(recovery, "on", 2) != 0))
		return "this mount ends with its daemon; mount with -o recovery=transparent";
	return "not supported on this mount";
}

static int set_failed(const struct place *place, const struct attribute *one, const char *value,
		      int error)
{
	const char *path = place->path;
	uint64_t bytes;

	if (error == EINVAL && one->kind == ATTRIBUTE_QUOTA && strcmp(value, "none") != 0 &&
	    parse_size(value, &bytes) < 0)
		cli_error("%s: %s=%s: not a size (5000, 10G, 10GiB, 10GB or none)", path, one->name,
			  value);
	else if (error == EINVAL)
		cli_error("%s: %s=%s: not possible here; values are: %s", path, one->name, value,
			  one->choices);
	else if (error == ENOTSUP)
		cli_error("%s: %s=%s: %s", path, one->name, value, set_lacks(place, one, value));
	else if (error == EBUSY)
		cli_error("%s: %s=%s: the file is in use (gpumem sharers)", path, one->name, value);
	else if (error == EPERM && one->kind == ATTRIBUTE_QUOTA)
		cli_error("%s: %s: root and the user of the daemon alone set quotas", path,
			  one->name);
	else
		return cli_fail(path, error);
	return error == EINVAL ? CLI_USAGE : (int)cli_status_of(error);
}

/* word is "name=value"; name=default removes the attribute. */
static int set_one(const struct command *command, const struct place *place, const char *word)
{
	const char *equals = strchr(word, '='), *path = place->path;
	AUTO_FREE char *name = NULL;

	if (!equals)
		return cli_usage(command, "%s: expected NAME=VALUE", word);
	if (asprintf(&name, "%.*s", (int)(equals - word), word) < 0)
		return cli_fail(path, ENOMEM);
	const struct attribute *one = attribute_find(name);
	const char *value = equals + 1;

	if (!one)
		return attribute_unknown(command, name);
	if (!*one->choices) {
		cli_error("%s can only be read", one->name);
		return CLI_DENIED;
	}
	AUTO_CLOSE int fd = beneath_open_real(path, O_PATH);
	char through[BENEATH_THROUGH_MAX];

	if (fd < 0)
		return cli_fail(path, -fd);
	beneath_through(fd, through);
	int bad = strcmp(value, DEFAULT) == 0
		      ? removexattr(through, one->full)
		      : setxattr(through, one->full, value, strlen(value), 0);

	if (bad && errno == ENODATA && strcmp(value, DEFAULT) == 0)
		return CLI_OK;
	return bad ? set_failed(place, one, value, errno) : CLI_OK;
}

static int set_run(struct cli_args *args)
{
	AUTO_PLACE struct place place = {0};

	if (cli_option(args) < 0)
		return CLI_USAGE;
	if (strchr(args->argv[0], '=') && access(args->argv[0], F_OK) < 0)
		return cli_usage(args->command, "%s: the path comes first", args->argv[0]);
	int status = place_find(args->argv[0], &place);

	if (status)
		return status;
	if (place_is_root(&place))
		return params_set(&place, args->argc - 1, args->argv + 1);
	for (int i = 1; i < args->argc && status == CLI_OK; i++)
		status = set_one(args->command, &place, args->argv[i]);
	return status;
}

static void get_offer(int count, char **words, const char *start)
{
	(void)words;
	for (const struct attribute *one = attributes; count && one->name; one++)
		cli_offer(start, one->name, one->help);
}

/* Offers "page_size=", and behind the = the values. */
static void set_offer(int count, char **words, const char *start)
{
	char word[96];

	(void)words;
	for (const struct attribute *one = attributes; count && one->name; one++) {
		if (!*one->choices)
			continue;
		snprintf(word, sizeof(word), "%s=", one->name);
		if (strncmp(start, word, strlen(word)) != 0) {
			cli_offer(start, word, one->help);
			continue;
		}
		const char *values = one->kind == ATTRIBUTE_QUOTA ? "none" : one->choices;

		for (size_t length; *values; values += length + (values[length] == ' ')) {
			length = strcspn(values, " ");
			snprintf(word, sizeof(word), "%s=%.*s", one->name, (int)length, values);
			cli_offer(start, word, one->help);
		}
		snprintf(word, sizeof(word), "%s=" DEFAULT, one->name);
		cli_offer(start, word, "remove the setting");
	}
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

const struct command command_set = {
    .name = "set",
    .words = "PATH NAME=VALUE...",
    .summary = "Set attributes of a file or directory, or parameters of a mount",
    .more = "NAME=default takes an attribute away again. gpumem(7) has the names and values.\n"
	    "Of a mount (PATH is its mountpoint): size, reserve, gpuN.size, gpuN.reserve,\n"
	    "log_level and trace, all of them or none.",
    .min_words = 2,
    .max_words = -1,
    .run = set_run,
    .offer = set_offer,
};
