/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/xattr.h>
#include <unistd.h>

#include "client/cli/core/cli.h"
#include "client/cli/core/facts.h"
#include "client/cli/core/walk.h"
#include "client/cli/versions/versions.h"
#include "client/core/beneath.h"
#include "client/lib/versions/versions.h"
#include "common/cleanup.h"
#include "common/number.h"
#include "common/vector.h"

int version_set_open(const char *word, struct place *place)
{
	int status = place_find(word, place);

	if (status)
		return -status;
	int fd = beneath_open_real(place->path, O_RDONLY | O_DIRECTORY);

	return fd >= 0 ? fd : -cli_fail(word, -fd);
}

void version_list_free(struct version_list *list)
{
	for (size_t i = 0; i < list->n; i++)
		free(list->versions[i].users);
	free(list->versions);
	*list = (struct version_list){0};
}

static int file_add(const struct walk_entry *entry, void *context)
{
	struct version *version = context;
	struct stat st;

	if (entry->is_directory || lstat(entry->place.path, &st) < 0)
		return CLI_OK;
	version->bytes += (uint64_t)st.st_size;
	version->leases += facts_attribute_number(entry->place.path, "leases");
	return CLI_OK;
}

static uint64_t time_of(int set, const char *name)
{
	AUTO_CLOSE int fd = beneath_open(set, name, O_RDONLY, 0);
	char text[32] = "";
	uint64_t time;

	if (fd < 0 || fgetxattr(fd, VERSIONS_TIME, text, sizeof(text) - 1) < 0)
		return 0;
	return parse_u64(text, 0, UINT64_MAX, &time) < 0 ? 0 : time;
}

static bool is_named_by(int set, const char *link, const char *name)
{
	char target[NAME_MAX + 1];

	return versions_read(set, link, target) == 0 && strcmp(target, name) == 0;
}

static int version_add(const struct place *place, int set, const char *name,
		       struct version_list *list)
{
	struct version *grown = vector_grow(list->versions, list->n, sizeof(*grown));
	AUTO_FREE char *path = NULL, *inside = NULL;

	if (!grown)
		return cli_fail(place->path, ENOMEM);
	list->versions = grown;
	struct version *version = &grown[list->n];

	*version = (struct version){
	    .published = time_of(set, name),
	    .is_current = is_named_by(set, VERSIONS_CURRENT, name),
	    .is_previous = is_named_by(set, VERSIONS_PREVIOUS, name),
	};
	snprintf(version->name, sizeof(version->name), "%s", name);
	list->n++;
	if (asprintf(&path, "%s/%s", place->path, name) < 0 ||
	    asprintf(&inside, "%s/%s", place->inside, name) < 0)
		return cli_fail(place->path, ENOMEM);
	/* Another user's directory, which is no reason to leave the other versions out. */
	version->is_unreadable =
	    walk_tree(&(struct place){.mount = place->mount, .path = path, .inside = inside},
		      file_add, version);
	return CLI_OK;
}

static bool is_version(int set, const struct dirent *entry)
{
	struct stat st;

	return versions_name_is_valid(entry->d_name) &&
	       fstatat(set, entry->d_name, &st, AT_SYMLINK_NOFOLLOW) == 0 &&
	       (S_ISDIR(st.st_mode) || S_ISREG(st.st_mode));
}

/* The version that a path within the file system is in, or NULL. */
static struct version *version_of(const struct version_list *list, const char *set,
				  const char *path)
{
	size_t length = strlen(set);

	if (!facts_is_below(path, set) || path[length] != '/')
		return NULL;
	const char *name = path + length + 1;
	size_t n = strcspn(name, "/");

	for (size_t i = 0; i < list->n; i++)
		if (strlen(list->versions[i].name) == n &&
		    strncmp(list->versions[i].name, name, n) == 0)
			return &list->versions[i];
	return NULL;
}

struct users {
	const char *inside; /* the set, within the file system */
	struct version_list *list;
};

static void user_add(void *context, const struct sharer *sharer)
{
	const struct users *users = context;
	struct version *version = version_of(users->list, users->inside, sharer->path);

	if (!version)
		return;
	for (size_t i = 0; i < version->n_users; i++)
		if (version->users[i] == sharer->pid)
			return;
	pid_t *grown = vector_grow(version->users, version->n_users, sizeof(*grown));

	if (!grown)
		return;
	version->users = grown;
	version->users[version->n_users++] = sharer->pid;
}

static int by_time(const void *left, const void *right)
{
	const struct version *a = left, *b = right;

	if (a->published != b->published)
		return a->published < b->published ? 1 : -1;
	return strcmp(a->name, b->name);
}

int version_list_read(const struct place *place, int set, struct version_list *list)
{
	struct users users = {place->inside, list};
	int status = CLI_OK, fd = openat(set, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	DIR *names = fd < 0 ? NULL : fdopendir(fd);
	const struct dirent *entry;

	if (!names) {
		int error = errno;

		if (fd >= 0)
			close(fd);
		return cli_fail(place->path, error);
	}
	while (!status && (entry = readdir(names)))
		if (is_version(set, entry))
			status = version_add(place, set, entry->d_name, list);
	closedir(names);
	if (status)
		return status;
	int error = facts_sharers(place->mount->mountpoint, user_add, &users);

	qsort(list->versions, list->n, sizeof(*list->versions), by_time);
	return error ? cli_fail(place->path, -error) : CLI_OK;
}
