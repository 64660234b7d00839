/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
#include "client/cli/core/private_dir.h"

#include <errno.h>
#include <fcntl.h>
#include <libgen.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "client/cli/core/cli.h"
#include "client/core/beneath.h"
#include "common/cleanup.h"

struct place {
	const char *path, *danger;
};

static int untrusted_fail(const struct place *place, size_t length, const char *reason)
{
	cli_error("%.*s %s: other users could %s", (int)(length ? length : 1), place->path, reason,
		  place->danger);
	return CLI_DENIED;
}

/* Whether only root and this user can rename names in the directory. length: of its path. */
static int parent_check(int fd, const struct place *place, size_t length)
{
	struct stat st;

	if (fstat(fd, &st) < 0)
		return cli_fail(place->path, errno);
	if (st.st_uid != 0 && st.st_uid != geteuid())
		return untrusted_fail(place, length, "belongs to another user");
	if (st.st_mode & PRIVATE_DIR_WRITERS && !(st.st_mode & S_ISVTX))
		return untrusted_fail(place, length, "is writable for other users");
	return CLI_OK;
}

/* Opens the directory of an absolute path without links, and checks each directory from / on. */
static int parents_open(const struct place *place, int *parent)
{
	int fd = open("/", O_PATH | O_DIRECTORY | O_CLOEXEC);
	size_t length = 0;

	for (;;) {
		char name[NAME_MAX + 1];
		const char *rest = place->path + length + strspn(place->path + length, "/");
		size_t size = strcspn(rest, "/");
		int status = fd < 0 ? cli_fail(place->path, -fd) : parent_check(fd, place, length);

		if (status) {
			if (fd >= 0)
				close(fd);
			return status;
		}
		if (!rest[size] || size > NAME_MAX) {
			*parent = fd;
			return CLI_OK;
		}
		snprintf(name, sizeof(name), "%.*s", (int)size, rest);
		int next = beneath_open(fd, name, O_PATH | O_DIRECTORY, 0);

		close(fd);
		fd = next;
		length = (size_t)(rest - place->path) + size;
	}
}

/* Fills in all but fd. Takes over path, which is absolute, without links. */
static int dir_find(char *path, const char *word, const char *danger, struct private_dir *dir)
{
	*dir = (struct private_dir)PRIVATE_DIR_NONE;
	dir->path = path;
	if (!path)
		return cli_fail(word, errno);
	dir->name = strrchr(path, '/') + 1;
	return parents_open(&(struct place){path, danger}, &dir->parent);
}

/* The path of a new name, allocated: its directory has no links. */
static char *path_of_new(const char *word)
{
	AUTO_FREE char *folder_copy = strdup(word), *name_copy = strdup(word), *folder = NULL;
	char *path = NULL;

	if (folder_copy && name_copy)
		folder = realpath(dirname(folder_copy), NULL);
	if (!folder)
		return NULL;
	if (asprintf(&path, "%s/%s", strcmp(folder, "/") == 0 ? "" : folder, basename(name_copy)) <
	    0)
		return NULL;
	return path;
}

static int dir_open(const char *word, struct private_dir *dir)
{
	struct stat st;

	dir->fd = beneath_open(dir->parent, dir->name, O_RDONLY | O_DIRECTORY, 0);
	if (dir->fd < 0 || fstat(dir->fd, &st) < 0)
		return cli_fail(word, dir->fd < 0 ? -dir->fd : errno);
	if (st.st_uid != geteuid()) {
		cli_error("%s belongs to another user", word);
		return CLI_DENIED;
	}
	if (st.st_mode & PRIVATE_DIR_WRITERS) {
		cli_error("%s is writable for other users", word);
		return CLI_DENIED;
	}
	return CLI_OK;
}

int private_dir_make(const char *path, const char *danger, struct private_dir *dir)
{
	int status = dir_find(path_of_new(path), path, danger, dir);

	if (status)
		return status;
	if (mkdirat(dir->parent, dir->name, S_IRWXU) < 0)
		return cli_fail(path, errno);
	return dir_open(path, dir);
}

int private_dir_open(const char *path, const char *danger, struct private_dir *dir)
{
	int status = dir_find(realpath(path, NULL), path, danger, dir);

	return status ? status : dir_open(path, dir);
}

int private_dir_need(const char *path, const char *danger, struct private_dir *dir)
{
	char *found = realpath(path, NULL);
	int status =
	    dir_find(found || errno != ENOENT ? found : path_of_new(path), path, danger, dir);

	if (status)
		return status;
	/* Several processes may make the directory at the same time. */
	if (!found && mkdirat(dir->parent, dir->name, S_IRWXU) < 0 && errno != EEXIST)
		return cli_fail(path, errno);
	return dir_open(path, dir);
}

void private_dir_remove(const struct private_dir *dir)
{
	unlinkat(dir->parent, dir->name, AT_REMOVEDIR);
}

void private_dir_close(struct private_dir *dir)
{
	if (dir->fd >= 0)
		close(dir->fd);
	if (dir->parent >= 0)
		close(dir->parent);
	free(dir->path);
	*dir = (struct private_dir)PRIVATE_DIR_NONE;
}
