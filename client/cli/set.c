/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* gpumem set: the attributes of a file or directory, or the parameters of a mount. */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/xattr.h>
#include <unistd.h>

#include "client/cli/attributes.h"
#include "client/cli/core/facts.h"
#include "client/cli/core/mounts.h"
#include "client/cli/core/output.h"
#include "client/cli/core/params.h"
#include "client/core/beneath.h"
#include "common/cleanup.h"
#include "common/number.h"

#define DEFAULT "default"

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
	if (place_is_mount(&place))
		return params_set(&place, args->argc - 1, args->argv + 1);
	for (int i = 1; i < args->argc && status == CLI_OK; i++)
		status = set_one(args->command, &place, args->argv[i]);
	return status;
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
