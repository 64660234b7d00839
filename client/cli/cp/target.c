/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* gpumem cp: the target of the command line, and the directories below. */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "client/cli/cp/cp.h"
#include "client/core/beneath.h"
#include "common/cleanup.h"

#define LINKS_MAX 40 /* as the kernel follows */

int cp_base_keep(struct cp *cp, int fd)
{
	int *more = reallocarray(cp->bases, cp->n_bases + 1, sizeof(*more));

	if (!more) {
		close(fd);
		return -ENOMEM;
	}
	cp->bases = more;
	return more[cp->n_bases++] = fd;
}

/* Takes over path. */
static struct cp_dir *dir_add(struct cp *cp, const struct cp_dir *one)
{
	struct cp_dir *dir = malloc(sizeof(*dir));

	if (!dir || !one->path) {
		free(one->path);
		free(dir);
		return NULL;
	}
	*dir = *one;
	dir->before = cp->dirs;
	return cp->dirs = dir;
}

struct cp_dir *cp_dir_new(struct cp *cp, const struct cp_dir *above, const struct cp_target *to,
			  int fd)
{
	struct cp_dir dir = {.base = above->base, .path = strdup(to->path)};
	bool is_first = !above->path[above->below];

	if (!dir.path || fstat(fd, &dir.is) < 0) {
		free(dir.path);
		return NULL;
	}
	dir.below = is_first ? strlen(to->path) - strlen(to->name) : above->below;
	return dir_add(cp, &dir);
}

int cp_dir_open(const struct cp_dir *dir)
{
	int fd = beneath_open(dir->base, dir->path + dir->below, O_PATH | O_DIRECTORY, 0);
	struct stat is;

	if (fd < 0)
		return fd;
	if (fstat(fd, &is) == 0 && beneath_is_same(&is, &dir->is))
		return fd;
	close(fd);
	return -CLI_REPLACED;
}

/* A directory of the command line, open as fd, which this function takes over. */
static struct cp_dir *base_add(struct cp *cp, int fd, const char *path)
{
	struct cp_dir dir = {.path = strdup(path), .below = strlen(path)};

	dir.base = cp_base_keep(cp, fd);
	if (dir.base >= 0 && dir.path && fstat(dir.base, &dir.is) == 0)
		return dir_add(cp, &dir);
	free(dir.path);
	return NULL;
}

/* Opens the directory of the path, relative to the directory at, and allocates the last name: "" if
 * the path has none. */
static int path_split(int at, const char *path, char **name)
{
	AUTO_FREE char *copy = strdup(path);

	*name = NULL;
	if (!copy)
		return -ENOMEM;
	for (size_t length = strlen(copy); length > 1 && copy[length - 1] == '/'; length--)
		copy[length - 1] = '\0';
	char *slash = strrchr(copy, '/'), *last = slash ? slash + 1 : copy;
	bool is_name = *last && strcmp(last, ".") != 0 && strcmp(last, "..") != 0;

	*name = strdup(is_name ? last : "");
	if (is_name)
		*last = '\0';
	int fd = *name ? openat(at, *copy ? copy : ".", O_PATH | O_DIRECTORY | O_CLOEXEC) : -1;

	return fd < 0 ? -errno : fd;
}

/* The result of a step of the search. */
enum found { FOUND_DIRECTORY, FOUND_NAME, FOUND_NOTHING, FOUND_LINK, FOUND_FOREIGN, FOUND_ERROR };

/* Opens the name in the directory above: *fd; of a link, its text. */
static enum found name_look(int above, const char *name, int *fd, char text[PATH_MAX])
{
	struct stat st;

	*fd = openat(above, *name ? name : ".", O_PATH | O_NOFOLLOW | O_CLOEXEC);
	if (*fd < 0)
		return errno == ENOENT ? FOUND_NOTHING : FOUND_ERROR;
	if (fstat(*fd, &st) < 0)
		return FOUND_ERROR;
	if (!S_ISLNK(st.st_mode))
		return S_ISDIR(st.st_mode) ? FOUND_DIRECTORY : FOUND_NAME;
	if (!beneath_owner_is_trusted(above, &st))
		return FOUND_FOREIGN;
	ssize_t length = readlinkat(*fd, "", text, PATH_MAX - 1);

	text[length > 0 ? length : 0] = '\0';
	return length > 0 ? FOUND_LINK : FOUND_ERROR;
}

static struct cp_dir *target_fail(struct cp *cp, const char *word, enum found found, int error)
{
	if (found == FOUND_NOTHING)
		cli_error("%s is a link that leads nowhere", word);
	else if (found == FOUND_FOREIGN)
		cli_error("%s is a link of another user in a directory where all users may make "
			  "links: it is not followed",
			  word);
	else if (found == FOUND_LINK)
		error = ELOOP;
	cp_failed(cp, error ? cli_fail(word, error) : CLI_FAILED);
	return NULL;
}

/* The kernel follows links before the last name. The last name is opened step by step, so that the
 * link whose owner is checked is the link that is followed. */
struct cp_dir *cp_target_find(struct cp *cp, const char *word, char **name)
{
	char text[PATH_MAX];
	enum found found = FOUND_LINK;
	const char *path = word;
	AUTO_CLOSE int above = -1;

	*name = NULL;
	for (int links = 0; found == FOUND_LINK && links <= LINKS_MAX; links++) {
		free(*name);
		int next = path_split(above < 0 ? AT_FDCWD : above, path, name), fd = -1;

		if (next < 0)
			return target_fail(cp, word, FOUND_ERROR, -next);
		if (above >= 0)
			close(above);
		above = next;
		found = name_look(above, *name, &fd, text);
		if (found == FOUND_DIRECTORY) {
			free(*name);
			*name = NULL;
			return base_add(cp, fd, word);
		}
		int error = found == FOUND_ERROR ? errno : 0;

		if (fd >= 0)
			close(fd);
		if (error)
			return target_fail(cp, word, found, error);
		if (found == FOUND_NOTHING && !links)
			found = FOUND_NAME;
		path = text;
	}
	if (found != FOUND_NAME)
		return target_fail(cp, word, found, 0);
	int base = above;

	above = -1;
	return base_add(cp, base, "");
}

bool cp_target_copy(struct cp_target *copy, const struct cp_target *to)
{
	*copy = (struct cp_target){to->dir, strdup(to->name), strdup(to->path)};
	return copy->name && copy->path;
}

void cp_target_free(struct cp_target *to)
{
	free(to->name);
	free(to->path);
}

static int dir_set_attributes(const struct cp_dir *dir)
{
	AUTO_CLOSE int fd = cp_dir_open(dir);

	return fd < 0 ? -fd : cp_attributes(-1, fd, &dir->st, NULL);
}

void cp_dirs_end(struct cp *cp)
{
	while (cp->dirs) {
		struct cp_dir *dir = cp->dirs;
		int error = dir->is_copy ? dir_set_attributes(dir) : 0;

		if (error)
			cp_failed(cp, cli_fail(dir->path, error));
		cp->dirs = dir->before;
		free(dir->path);
		free(dir);
	}
	while (cp->n_bases)
		close(cp->bases[--cp->n_bases]);
	free(cp->bases);
	cp->bases = NULL;
}
