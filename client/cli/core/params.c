/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
#include "client/cli/core/params.h"

#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "client/cli/core/cli.h"
#include "client/cli/core/facts.h"
#include "common/cleanup.h"
#include "common/number.h"
#include "common/text/closest.h"

static const char *size_is_wrong(const char *value, bool allows_none, uint64_t min_bytes)
{
	size_t length = strlen(value);
	uint64_t bytes;

	if (allows_none && strcmp(value, "none") == 0)
		return NULL;
	int error = parse_size_or_percent(value, 100, &bytes);

	if (error == -ERANGE && length && value[length - 1] == '%')
		return "more than 100%";
	if (error)
		return "not a size (8G, 8GiB, 8GB or 50%)";
	return bytes < min_bytes ? "must be more than nothing (none: no limit)" : NULL;
}

static const char *limit_is_wrong(const char *value)
{
	return size_is_wrong(value, true, 1);
}

static const char *evict_is_wrong(const char *value)
{
	return size_is_wrong(value, false, 1);
}

static const char *reserve_is_wrong(const char *value)
{
	return size_is_wrong(value, false, 0);
}

static const char *level_is_wrong(const char *value)
{
	static const char *const levels[] = {"error", "warn", "info", "debug"};

	for (unsigned i = 0; i < sizeof(levels) / sizeof(levels[0]); i++)
		if (strcmp(value, levels[i]) == 0)
			return NULL;
	return "not one of error, warn, info, debug";
}

static const char *switch_is_wrong(const char *value)
{
	return strcmp(value, "on") == 0 || strcmp(value, "off") == 0 ? NULL : "not one of on, off";
}

static const struct {
	const char *name;
	bool per_gpu;
	const char *(*is_wrong)(const char *value); /* gives the reason; NULL: the value is right */
	const char *usual;			    /* without an option of the mount; NULL: none */
} param_table[] = {
    {"size", true, limit_is_wrong, "none"},   {"reserve", true, reserve_is_wrong, "0"},
    {"evict", true, evict_is_wrong, NULL},    {"log_level", false, level_is_wrong, "info"},
    {"trace", false, switch_is_wrong, "off"},
};

#define PARAMS (sizeof(param_table) / sizeof(param_table[0]))

/* Whether the mount has the GPU that a name such as "gpu1.size" begins with. */
static bool has_gpu(const char *now, const char *name, const char *dot)
{
	AUTO_FREE char *line = NULL, *size = NULL;

	if (asprintf(&line, "%.*s.size", (int)(dot - name), name) < 0)
		line = NULL;
	size = line ? facts_line(now, line) : NULL;
	return size;
}

/* The parameter's place in the table, or -1 after a message. */
static int param_find(const char *now, const char *name)
{
	struct closest closest = {.word = name};
	/* The name of a GPU may have a dot itself: gpu0.mig1.size. */
	const char *dot = strncmp(name, "gpu", 3) == 0 ? strrchr(name, '.') : NULL;
	AUTO_FREE char *value = facts_line(now, name);

	for (unsigned i = 0; i < PARAMS; i++) {
		if (strcmp(name, param_table[i].name) == 0)
			return (int)i;
		if (dot && param_table[i].per_gpu && strcmp(dot + 1, param_table[i].name) == 0 &&
		    has_gpu(now, name, dot))
			return (int)i;
		closest_try(&closest, param_table[i].name);
	}
	if (value)
		cli_error(
		    "%s cannot be set while the mount is in use: it is an option of mounting, "
		    "or a fact",
		    name);
	else if (dot)
		cli_error("%s: this mount has no such GPU, or its GPUs no such parameter", name);
	else if (closest.name)
		cli_error("a mount has no parameter %s: did you mean %s?", name, closest.name);
	else
		cli_error("a mount has no parameter %s (size, reserve, evict, log_level, trace)",
			  name);
	return -1;
}

/* The line of params for a word, or NULL after a message. */
static char *param_line(const char *now, const char *word)
{
	const char *equals = strchr(word, '=');
	char *line = NULL;

	if (!equals) {
		cli_error("%s: expected NAME=VALUE", word);
		return NULL;
	}
	AUTO_FREE char *name = strndup(word, (size_t)(equals - word));
	int index = name ? param_find(now, name) : -1;
	const char *value = equals + 1;

	if (index >= 0 && param_table[index].usual && strcmp(value, "default") == 0)
		value = param_table[index].usual;
	const char *reason = index < 0 ? NULL : param_table[index].is_wrong(value);

	if (reason)
		cli_error("%s: %s; nothing was changed", word, reason);
	if (index < 0 || reason || asprintf(&line, "%s %s\n", name, value) < 0)
		return NULL;
	return line;
}

static int params_write(const char *mountpoint, const char *lines)
{
	AUTO_FREE char *path = NULL;

	if (asprintf(&path, "%s/.gpumem/params", mountpoint) < 0)
		return cli_fail(mountpoint, ENOMEM);
	AUTO_CLOSE int fd = open(path, O_WRONLY | O_CLOEXEC);

	if (fd < 0 && errno == EACCES) {
		cli_error("%s: root and the user of the daemon alone set parameters", mountpoint);
		return CLI_DENIED;
	}
	if (fd >= 0 && write(fd, lines, strlen(lines)) >= 0)
		return CLI_OK;
	if (fd >= 0 && errno == ERANGE) {
		cli_error(
		    "%s: size: no GPU of these has so much (none: no limit); nothing was changed",
		    mountpoint);
		return CLI_USAGE;
	}
	/* Both are answers to evict alone. */
	if (fd >= 0 && errno == ENOSPC) {
		cli_error("%s: no more files can leave: the rest is mapped by processes, or spill= "
			  "is full",
			  mountpoint);
		return CLI_FULL;
	}
	if (fd >= 0 && errno == EOPNOTSUPP) {
		cli_error("%s: the mount has no place for files that leave a GPU "
			  "(gpumemfs -o spill=host:SIZE)",
			  mountpoint);
		return CLI_FAILED;
	}
	return cli_fail(path, errno);
}

int params_set(const struct place *place, int count, char **words)
{
	AUTO_FREE char *now = NULL, *lines = strdup("");
	int error = -facts_text(place->mount->mountpoint, "params", &now);

	if (error)
		return cli_fail(place->mount->mountpoint, error);
	for (int i = 0; i < count; i++) {
		AUTO_FREE char *line = param_line(now, words[i]), *previous = lines;

		lines = NULL;
		if (!line)
			return CLI_USAGE;
		if (!previous || asprintf(&lines, "%s%s", previous, line) < 0) {
			lines = NULL;
			return cli_fail(place->mount->mountpoint, ENOMEM);
		}
	}
	return params_write(place->mount->mountpoint, lines);
}

static bool param_matches(const char *name, const char *filter)
{
	const char *dot = strncmp(name, "gpu", 3) == 0 ? strrchr(name, '.') : NULL;
	const char *leaf = dot ? dot + 1 : name;
	bool settable = false;

	for (unsigned i = 0; i < PARAMS; i++)
		settable =
		    settable || (param_table[i].usual && strcmp(leaf, param_table[i].name) == 0 &&
				 param_table[i].per_gpu == (dot != NULL));
	return settable && (!filter || strcmp(filter, name) == 0 || strcmp(filter, leaf) == 0);
}

int params_get(const struct place *place, const char *filter, json_t *values)
{
	AUTO_FREE char *now = NULL;
	int error = facts_text(place->mount->mountpoint, "params", &now), found = 0;
	char *rest = now, *line;

	while (!error && (line = strsep(&rest, "\n"))) {
		char *value = strchr(line, ' ');
		if (!value)
			continue;
		*value++ = '\0';
		if (param_matches(line, filter)) {
			json_object_set_new(values, line, json_string(value));
			found++;
		}
	}
	return error ? error : found;
}
