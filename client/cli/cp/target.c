/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* gpumem cp: the target of the command line, and the directories below. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "client/cli/cp/cp.h"
#include "client/core/beneath.h"
#include "common/cleanup.h"
#include "common/system/descriptors.h"

int cp_base_keep(struct cp *cp, int fd)
{
	int *bases = fd < 0 ? NULL : reallocarray(cp->bases, cp->n_bases + 1, sizeof(*bases));

	if (fd < 0)
		return -errno;
	if (!bases) {
		close(fd);
		return -ENOMEM;
	}
	cp->bases = bases;
	return bases[cp->n_bases++] = fd;
}

/* Takes over path. */
static struct cp_dir *dir_add(struct cp *cp, const struct cp_dir *filled)
{
	struct cp_dir *dir = malloc(sizeof(*dir));

	if (!dir || !filled->path) {
		if (filled->held >= 0)
			close(filled->held);
		free(filled->path);
		free(dir);
		return NULL;
	}
	*dir = *filled;
	dir->previous = cp->dirs;
	return cp->dirs = dir;
}

/* A directory that is open keeps its inode number. Some file systems give a directory a new number
 * after the kernel has dropped the old inode: overlayfs over several file systems, and FUSE. */
static int dir_hold(struct cp *cp, int fd)
{
	int held = cp->n_held < descriptors_limit() / 2 ? fcntl(fd, F_DUPFD_CLOEXEC, 0) : -1;

	cp->n_held += held >= 0;
	return held;
}

struct cp_dir *cp_dir_new(struct cp *cp, const struct cp_dir *parent, const struct cp_target *to,
			  int fd)
{
	struct cp_dir dir = {.base = parent->base, .path = strdup(to->path)};
	bool is_first = !parent->path[parent->prefix];

	if (!dir.path || fstat(fd, &dir.identity) < 0) {
		free(dir.path);
		return NULL;
	}
	dir.prefix = is_first ? strlen(to->path) - strlen(to->name) : parent->prefix;
	dir.held = dir_hold(cp, fd);
	return dir_add(cp, &dir);
}

int cp_dir_open(const struct cp_dir *dir)
{
	int fd = beneath_open(dir->base, dir->path + dir->prefix, O_PATH | O_DIRECTORY, 0);
	struct stat identity;

	if (fd < 0)
		return fd;
	if (fstat(fd, &identity) == 0 && beneath_is_same(&identity, &dir->identity))
		return fd;
	close(fd);
	return -CLI_REPLACED;
}

/* A directory of the command line, open as fd, which this function takes over. */
static struct cp_dir *base_add(struct cp *cp, int fd, const char *path)
{
	struct cp_dir dir = {.path = strdup(path), .prefix = strlen(path), .held = -1};

	dir.base = cp_base_keep(cp, fd);
	if (dir.base >= 0 && dir.path && fstat(dir.base, &dir.identity) == 0)
		return dir_add(cp, &dir);
	free(dir.path);
	return NULL;
}

static void target_fail(struct cp *cp, const char *word, int error)
{
	if (error == BENEATH_DANGLING)
		cli_error("%s is a link that leads nowhere", word);
	else if (error == BENEATH_FOREIGN)
		cli_error("%s is a link of another user in a directory where all users may make "
			  "links: it is not followed",
			  word);
	else
		cli_fail(word, error);
	cp_failed(cp, (int)cli_status_of(error));
}

/* The number of the first inode of every FUSE file system. */
#define FUSE_ROOT_ID 1

static int is_shown_directory(const struct dirent *entry)
{
	return entry->d_type == DT_DIR && entry->d_name[0] != '.';
}

/* "gpu0, gpu1, host": the directories below the root of a mount, allocated; NULL: none. */
static char *root_directories(int root)
{
	struct dirent **names;
	int count = scandirat(root, ".", &names, is_shown_directory, alphasort);
	char *list = NULL;

	for (int i = 0; i < count; i++) {
		char *new_list = NULL;

		if (asprintf(&new_list, "%s%s%s", list ? list : "", list ? ", " : "",
			     names[i]->d_name) < 0)
			new_list = NULL;
		free(list);
		list = new_list;
		free(names[i]);
	}
	if (count >= 0)
		free(names);
	return list;
}

/* A user can make other directories with these names. */
static bool is_root(int folder)
{
	struct stat st;

	return fstat(folder, &st) == 0 && st.st_ino == FUSE_ROOT_ID &&
	       faccessat(folder, ".gpumem/params", F_OK, 0) == 0;
}

/* Only the daemon makes names at the root of a mount. Reports a target there. */
static bool target_is_root(struct cp *cp, const struct beneath_place *place, int kind,
			   const char *word)
{
	AUTO_FREE char *all = NULL;

	if (!is_root(place->folder) || !(all = root_directories(place->folder)))
		return false;
	if (kind != BENEATH_DIRECTORY && place->name && strncmp(place->name, "gpu", 3) == 0)
		cli_error("%s: there is no such GPU here: files go below %s", word, all);
	else
		cli_error("%s: files go below one of the directories of the mount: %s", word, all);
	cp_failed(cp, CLI_USAGE);
	return true;
}

struct cp_dir *cp_target_find(struct cp *cp, const char *word, char **name)
{
	struct beneath_place place;
	int kind = beneath_find(word, &place);
	int folder = place.folder;

	*name = NULL;
	if (kind < 0) {
		target_fail(cp, word, -kind);
		return NULL;
	}
	if (target_is_root(cp, &place, kind, word)) {
		beneath_place_free(&place);
		return NULL;
	}
	if (kind != BENEATH_DIRECTORY) {
		*name = place.name;
		place.name = NULL;
	}
	place.folder = -1;
	beneath_place_free(&place);
	struct cp_dir *dir = base_add(cp, folder, kind == BENEATH_DIRECTORY ? word : "");

	if (!dir)
		target_fail(cp, word, ENOMEM);
	return dir;
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
		cp->dirs = dir->previous;
		if (dir->held >= 0)
			close(dir->held);
		free(dir->path);
		free(dir);
	}
	while (cp->n_bases)
		close(cp->bases[--cp->n_bases]);
	free(cp->bases);
	cp->bases = NULL;
}
