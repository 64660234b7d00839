/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* gpumem set: the attributes of a file or directory, or the parameters of a mount. */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/xattr.h>
#include <unistd.h>

#include "client/cli/attributes/attributes.h"
#include "client/cli/core/facts.h"
#include "client/cli/core/mounts.h"
#include "client/cli/core/params.h"
#include "client/cli/core/walk.h"
#include "client/cli/output/output.h"
#include "client/core/beneath.h"
#include "common/cleanup.h"
#include "common/number.h"

#define DEFAULT	  "default"
#define NAME_ROOM 128

/* The reason why the mount cannot set the attribute. */
static const char *set_lacks(const struct place *place, const struct attribute *attribute,
			     const char *value)
{
	AUTO_FREE char *params = NULL, *spool = NULL, *recovery = NULL;

	if (strcmp(attribute->name, "force_pcie") == 0)
		return "the driver offers no forced PCIe mapping here";
	if (strcmp(attribute->name, "copy") == 0)
		return "the CPU has no mapping of this GPU's memory (gpumem doctor says why)";
	if (strcmp(attribute->name, "persist") != 0 ||
	    facts_text(place->mount->mountpoint, "params", &params) < 0)
		return "not supported on this mount";
	spool = facts_line(params, "spool");
	recovery = facts_line(params, "recovery");
	if (strcmp(value, "disk") == 0 && (!spool || strncmp(spool, "none", 4) == 0))
		return "this mount has no spool; mount with -o spool=DIR";
	if (strcmp(value, "restart") == 0 && (!recovery || strncmp(recovery, "on", 2) != 0))
		return "this mount ends with its daemon; mount with -o recovery=transparent";
	return "not supported on this mount";
}

static int set_failed(const struct place *place, const struct attribute *attribute,
		      const char *value, int error)
{
	const char *path = place->path;
	uint64_t bytes;

	if (error == EINVAL && attribute->kind == ATTRIBUTE_QUOTA && strcmp(value, "none") != 0 &&
	    parse_size(value, &bytes) < 0)
		cli_error("%s: %s=%s: not a size (5000, 10G, 10GiB, 10GB or none)", path,
			  attribute->name, value);
	else if (error == EINVAL)
		cli_error("%s: %s=%s: not possible here; values are: %s", path, attribute->name,
			  value, attribute->choices);
	else if (error == ENOTSUP)
		cli_error("%s: %s=%s: %s", path, attribute->name, value,
			  set_lacks(place, attribute, value));
	else if (error == EBUSY)
		cli_error("%s: %s=%s: the file is in use (gpumem sharers)", path, attribute->name,
			  value);
	else if (error == EPERM && attribute->kind == ATTRIBUTE_QUOTA)
		cli_error("%s: %s: root and the user of the daemon alone set quotas", path,
			  attribute->name);
	else
		return cli_fail(path, error);
	return error == EINVAL ? CLI_USAGE : (int)cli_status_of(error);
}

/* Of a word "name=value"; NULL: there is none. */
static const struct attribute *word_attribute(const char *word, char name[NAME_ROOM])
{
	snprintf(name, NAME_ROOM, "%.*s", (int)strcspn(word, "="), word);
	return attribute_find(name);
}

/* word is "name=value"; name=default removes the attribute. */
static int set_one(const struct command *command, const struct place *place, const char *word)
{
	const char *value = strchr(word, '=') + 1, *path = place->path;
	char name[NAME_ROOM];
	const struct attribute *attribute = word_attribute(word, name);

	if (!attribute)
		return attribute_unknown(command, name);
	if (!*attribute->choices) {
		cli_error("%s can only be read", attribute->name);
		return CLI_DENIED;
	}
	AUTO_CLOSE int fd = beneath_open_real(path, O_PATH);
	char fd_path[BENEATH_THROUGH_MAX];

	if (fd < 0)
		return cli_fail(path, -fd);
	beneath_through(fd, fd_path);
	int bad = strcmp(value, DEFAULT) == 0
		      ? removexattr(fd_path, attribute->full)
		      : setxattr(fd_path, attribute->full, value, strlen(value), 0);

	if (bad && errno == ENODATA && strcmp(value, DEFAULT) == 0)
		return CLI_OK;
	return bad ? set_failed(place, attribute, value, errno) : CLI_OK;
}

struct setting {
	const struct command *command;
	char **words; /* NAME=VALUE */
	int n_words;
	bool recursive;
};

/* The rest is set after a failure, as by chmod -R. */
static int place_set(const struct setting *setting, const struct place *place, bool is_directory)
{
	int status = CLI_OK;

	for (int i = 0; i < setting->n_words; i++) {
		char name[NAME_ROOM];
		const struct attribute *attribute = word_attribute(setting->words[i], name);
		bool is_quota = attribute && attribute->kind == ATTRIBUTE_QUOTA;

		/* Below a directory, quotas are the directories'. */
		if (!setting->recursive || !is_quota || is_directory) {
			int word_status = set_one(setting->command, place, setting->words[i]);

			status = status ? status : word_status;
		}
	}
	return status;
}

static int entry_set(const struct walk_entry *entry, void *setting)
{
	return place_set(setting, &entry->place, entry->is_directory);
}

static int path_set(struct setting *setting, const char *path)
{
	AUTO_PLACE struct place place = {0};
	int status = place_find(path, &place);

	if (status)
		return status;
	if (setting->recursive)
		return walk_tree(&place, entry_set, setting);
	return place_is_mount(&place) ? params_set(&place, setting->n_words, setting->words)
				      : place_set(setting, &place, true);
}

/* A path with = has a slash before it, such as ./a=b. */
static bool word_is_setting(const char *word)
{
	return strcspn(word, "=") < strcspn(word, "/");
}

static int words_check(const struct cli_args *args, int n_paths, bool recursive)
{
	char name[NAME_ROOM];

	if (n_paths == 0)
		return cli_usage(args->command, "%s: the paths come first", args->argv[0]);
	if (n_paths == args->argc)
		return cli_usage(args->command, "%s: expected NAME=VALUE", args->argv[n_paths - 1]);
	for (int i = n_paths; i < args->argc; i++) {
		if (!word_is_setting(args->argv[i]))
			return cli_usage(args->command, "%s: expected NAME=VALUE", args->argv[i]);
		if (recursive && !word_attribute(args->argv[i], name))
			return attribute_unknown(args->command, name);
	}
	return CLI_OK;
}

static int set_run(struct cli_args *args)
{
	struct setting setting = {.command = args->command};
	int code, n_paths = 0, status;

	while ((code = cli_option(args)) > 0)
		setting.recursive |= code == 'r';
	if (code < 0)
		return CLI_USAGE;
	while (n_paths < args->argc && !word_is_setting(args->argv[n_paths]))
		n_paths++;
	status = words_check(args, n_paths, setting.recursive);
	if (status)
		return status;
	setting.words = args->argv + n_paths;
	setting.n_words = args->argc - n_paths;
	for (int i = 0; i < n_paths; i++) {
		int path_status = path_set(&setting, args->argv[i]);

		status = status ? status : path_status;
	}
	return status;
}

/* Offers "page_size=", and behind the = the values. */
static void set_offer(int count, char **words, const char *start)
{
	char word[96];

	(void)words;
	for (const struct attribute *attribute = attributes; count && attribute->name;
	     attribute++) {
		if (!*attribute->choices)
			continue;
		snprintf(word, sizeof(word), "%s=", attribute->name);
		if (strncmp(start, word, strlen(word)) != 0) {
			cli_offer(start, word, attribute->help);
			continue;
		}
		const char *values =
		    attribute->kind == ATTRIBUTE_QUOTA ? "none" : attribute->choices;

		for (size_t length; *values; values += length + (values[length] == ' ')) {
			length = strcspn(values, " ");
			snprintf(word, sizeof(word), "%s=%.*s", attribute->name, (int)length,
				 values);
			cli_offer(start, word, attribute->help);
		}
		snprintf(word, sizeof(word), "%s=" DEFAULT, attribute->name);
		cli_offer(start, word, "remove the setting");
	}
}

static const struct cli_option set_options[] = {
    {'r', "recursive", NULL, "set all files and directories below as well"}, {0}};

const struct command command_set = {
    .name = "set",
    .words = "PATH... NAME=VALUE...",
    .summary = "Set attributes of files and directories, or parameters of a mount",
    .help = "NAME=default takes an attribute away again. gpumem(7) has the names and values.\n"
	    "Of a mount (PATH is its mountpoint): size, reserve, gpuN.size, gpuN.reserve,\n"
	    "log_level and trace, all of them or none.",
    .options = set_options,
    .min_words = 2,
    .max_words = -1,
    .run = set_run,
    .offer = set_offer,
};
