/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
#include "client/cli/core/facts.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <linux/limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/xattr.h>

#include "client/cli/output/output.h"
#include "common/cleanup.h"
#include "common/number.h"
#include "common/system/mounts.h"

/* More than a daemon writes about all of its leases: the text of a lying mount could be endless. */
#define TEXT_MAX (64U << 20)
#define TRIES	 10

/* Reads to the end, as the files of .gpumem/ do not tell their size, and adds a NUL. */
static int text_read_all(int fd, char **text)
{
	size_t room = 4096, used = 0;
	char *all = malloc(room);
	ssize_t n = 0;

	while (all && (n = read(fd, all + used, room - used - 1)) > 0) {
		used += (size_t)n;
		if (used < room - 1)
			continue;
		char *new_text = room < TEXT_MAX ? realloc(all, room *= 2) : NULL;

		if (!new_text) {
			free(all);
			return room < TEXT_MAX ? -ENOMEM : -EFBIG;
		}
		all = new_text;
	}
	if (!all)
		return -ENOMEM;
	if (n < 0) {
		n = -errno;
		free(all);
		return (int)n;
	}
	all[used] = '\0';
	*text = all;
	return 0;
}

static int text_read_once(const char *path, char **text)
{
	AUTO_CLOSE int fd = open(path, O_RDONLY | O_CLOEXEC);

	return fd < 0 ? -errno : text_read_all(fd, text);
}

/* ESTALE: the daemon died while its text was read, and the next daemon has another text. */
static int text_read(const char *path, char **text)
{
	int error = -ESTALE;

	for (unsigned attempt = 0; error == -ESTALE && attempt < TRIES; attempt++)
		error = text_read_once(path, text);
	return error;
}

int facts_text(const char *mountpoint, const char *name, char **text)
{
	AUTO_FREE char *path = NULL;

	if (asprintf(&path, "%s/.gpumem/%s", mountpoint, name) < 0)
		return -ENOMEM;
	return text_read(path, text);
}

char *facts_first_line(const char *root, const char *path)
{
	AUTO_FREE char *full = NULL;
	char *line = NULL;
	size_t room = 0;

	if (asprintf(&full, "%s%s", root, path) < 0)
		return NULL;
	AUTO_FCLOSE FILE *file = fopen(full, "re");

	if (!file || getline(&line, &room, file) < 0) {
		free(line);
		return NULL;
	}
	line[strcspn(line, "\n")] = '\0';
	return line;
}

/* An object with a list. */
static json_t *facts_json(const char *mountpoint, const char *name, const char *list)
{
	AUTO_FREE char *text = NULL;
	int error = facts_text(mountpoint, name, &text);

	if (error) {
		errno = -error;
		return NULL;
	}
	json_t *json = json_loads(text, JSON_REJECT_DUPLICATES, NULL);

	if (json_is_object(json) && json_is_array(json_object_get(json, list)))
		return json;
	json_decref(json);
	errno = EPROTO;
	return NULL;
}

json_t *facts_stats(const char *mountpoint)
{
	return facts_json(mountpoint, "stats.json", "volumes");
}

json_t *facts_users(const char *mountpoint)
{
	return facts_json(mountpoint, "users", "users");
}

uint64_t facts_number(const json_t *object, const char *name)
{
	json_int_t value = json_integer_value(json_object_get(object, name));

	return value < 0 ? 0 : (uint64_t)value;
}

const char *facts_health(const json_t *volume)
{
	const char *health = json_string_value(json_object_get(volume, "health"));

	return health ? health : "ok"; /* host/ has no health */
}

char *facts_line(const char *text, const char *name)
{
	const char *end = text + strlen(text), *next;
	size_t length = strlen(name);

	for (const char *at = text; at < end; at = next + 1) {
		next = memchr(at, '\n', (size_t)(end - at));
		if (!next)
			next = end;
		if ((size_t)(next - at) > length && at[length] == ' ' &&
		    memcmp(at, name, length) == 0)
			return strndup(at + length + 1, (size_t)(next - at) - length - 1);
	}
	return NULL;
}

/* The least right stands for an access that this version does not know. */
static const char *access_known(const char *text)
{
	static const char *const accesses[] = {"rw", "copy", "own"};

	for (size_t i = 0; i < sizeof(accesses) / sizeof(accesses[0]); i++)
		if (strcmp(text, accesses[i]) == 0)
			return accesses[i];
	return "ro";
}

int facts_sharers(const char *mountpoint, void (*visit)(void *context, const struct sharer *sharer),
		  void *context)
{
	json_t *stats = facts_stats(mountpoint), *leases = json_object_get(stats, "leases"), *lease;
	int error = !stats ? -errno : json_is_array(leases) ? 0 : -EPROTO;
	size_t i;

	json_array_foreach (leases, i, lease) {
		char hidden[sizeof("inode 18446744073709551615")];
		const char *access = json_string_value(json_object_get(lease, "access"));
		const char *path = json_string_value(json_object_get(lease, "path"));
		AUTO_FREE char *unescaped = path ? strdup(path) : NULL;
		struct sharer sharer = {
		    .bytes = facts_number(lease, "bytes"),
		    .access = access_known(access ? access : ""),
		    .uid = (uid_t)facts_number(lease, "uid"),
		    .pid = (pid_t)facts_number(lease, "pid"),
		    .start = (int64_t)facts_number(lease, "since"),
		    .inode = facts_number(lease, "inode"),
		    .path = unescaped,
		};

		if (unescaped)
			octal_unescape(unescaped);
		if (!sharer.path) {
			snprintf(hidden, sizeof(hidden), "inode %" PRIu64, sharer.inode);
			sharer.path = hidden;
		}
		visit(context, &sharer);
	}
	json_decref(stats);
	return error;
}

bool facts_is_below(const char *path, const char *inside)
{
	if (strcmp(inside, "/") == 0)
		return true;
	size_t length = strlen(inside);

	return strncmp(path, inside, length) == 0 && (!path[length] || path[length] == '/');
}

char *facts_command(pid_t pid)
{
	char path[64], *text = NULL;

	snprintf(path, sizeof(path), "/proc/%d/cmdline", (int)pid);
	AUTO_FCLOSE FILE *file = fopen(path, "re");
	char words[1024];
	size_t length = file ? fread(words, 1, sizeof(words) - 1, file) : 0;

	while (length && !words[length - 1])
		length--;
	for (size_t i = 0; i < length; i++)
		if (!words[i])
			words[i] = ' ';
	words[length] = '\0';
	if (length)
		return strdup(words);
	snprintf(path, sizeof(path), "/proc/%d/comm", (int)pid);
	if (text_read(path, &text) < 0)
		return strdup("?");
	text[strcspn(text, "\n")] = '\0';
	return text;
}

int facts_attribute(const char *path, const char *name, char **text)
{
	AUTO_FREE char *full = NULL;

	if (asprintf(&full, "user.gpumem.%s", name) < 0)
		return -ENOMEM;
	char *value = malloc(XATTR_SIZE_MAX + 1);
	ssize_t size = value ? getxattr(path, full, value, XATTR_SIZE_MAX) : -1;

	if (size < 0) {
		int error = value ? -errno : -ENOMEM;

		free(value);
		return error;
	}
	value[size] = '\0';
	char *fit = realloc(value, (size_t)size + 1);

	*text = fit ? fit : value;
	return 0;
}

uint64_t facts_attribute_number(const char *path, const char *name)
{
	AUTO_FREE char *text = NULL;
	uint64_t number = 0;

	if (facts_attribute(path, name, &text) < 0 || parse_u64(text, 0, UINT64_MAX, &number) < 0)
		return 0;
	return number;
}
