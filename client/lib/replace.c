/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
#include "client/lib/replace.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include "client/core/beneath.h"
#include "client/core/error.h"
#include "common/cleanup.h"
#include "common/io.h"

#define PERMISSIONS (S_IRWXU | S_IRWXG | S_IRWXO)

static int path_fail(const char *path)
{
	return client_fail(errno, "%s: %s", path, strerror(errno));
}

static int kind_fail(const char *path, int kind)
{
	switch (kind) {
	case BENEATH_DIRECTORY:
		return client_fail(EISDIR, "%s is a directory", path);
	case -BENEATH_FOREIGN:
		return client_fail(EACCES,
				   "%s is a link of another user in a directory where all users "
				   "may make links",
				   path);
	default:
		return client_fail(-kind, "%s: %s", path, strerror(-kind));
	}
}

/* A link that leads nowhere is replaced itself. */
static int dangling_find(const char *path, struct beneath_place *place)
{
	const char *slash = strrchr(path, '/');
	AUTO_FREE char *folder =
	    slash ? strndup(path, slash == path ? 1 : (size_t)(slash - path)) : strdup(".");

	place->name = strdup(slash ? slash + 1 : path);
	place->folder = folder && place->name ? open(folder, O_PATH | O_DIRECTORY | O_CLOEXEC) : -1;
	if (place->folder < 0)
		return -errno;
	return *place->name ? BENEATH_NEW : -EISDIR;
}

/* Finds the folder and the name, and looks at the file that is to be replaced. */
static int target_find(const char *path, struct client_replace *replace,
		       struct beneath_place *place)
{
	int kind = *path ? beneath_find(path, place) : -ENOENT;
	bool is_new = kind == BENEATH_NEW;

	if (kind == -ENOENT && !*path)
		return client_fail(ENOENT, "'' is no file's name");
	if (replace->kind == CLIENT_REPLACE_NOTHING &&
	    (kind >= 0 ? !is_new : kind == -BENEATH_FOREIGN || kind == -BENEATH_DANGLING))
		return client_fail(EEXIST, "%s exists", path);
	if (kind == -BENEATH_DANGLING)
		kind = dangling_find(path, place);
	if (kind < 0 || kind == BENEATH_DIRECTORY)
		return kind_fail(path, kind);
	if (is_new && path[strlen(path) - 1] == '/')
		return client_fail(EISDIR, "'%s' is no file's name", path);
	if (kind == BENEATH_FILE && !S_ISREG(place->st.st_mode))
		return client_fail(EINVAL, "%s is no regular file", path);
	return kind;
}

/* Takes the folder over. A user who has made the old file ahead must not choose the readers of the
 * new file. */
static void target_take(struct client_replace *replace, struct beneath_place *place, int kind,
			const struct stat *content)
{
	replace->exists = kind == BENEATH_FILE;
	replace->old = place->st;
	replace->keeps_owner =
	    replace->exists && content && beneath_is_same(content, &replace->old);
	replace->keeps_mode =
	    replace->keeps_owner ||
	    (replace->exists && beneath_owner_is_trusted(place->folder, &replace->old));
	strcpy(replace->name, place->name);
	replace->folder = place->folder;
	place->folder = -1;
}

static int beside_choose_name(struct client_replace *replace)
{
	uint64_t number;

	if (getrandom(&number, sizeof(number), 0) != sizeof(number))
		return path_fail("getrandom");
	snprintf(replace->temporary_name, sizeof(replace->temporary_name), ".gpumem-%016" PRIx64,
		 number);
	return 0;
}

/* Creates the file without a name, so that a killed process leaves no file behind; only if the file
 * can get a name later. Gives whether the file was created. */
static bool file_create_unnamed(mode_t mode, struct client_replace *replace)
{
	char path[BENEATH_THROUGH_MAX];

	replace->fd = openat(replace->folder, ".", O_RDWR | O_TMPFILE | O_CLOEXEC, mode);
	if (replace->fd < 0)
		return false;
	if (access(beneath_through(replace->fd, path), F_OK) == 0)
		return true;
	close(replace->fd);
	return false;
}

static int file_create_beside(const char *path, mode_t mode, struct client_replace *replace)
{
	int rc;

	do {
		rc = beside_choose_name(replace);
		if (rc < 0)
			return rc;
		replace->fd = openat(replace->folder, replace->temporary_name,
				     O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, mode);
	} while (replace->fd < 0 && errno == EEXIST);
	return replace->fd < 0 ? path_fail(path) : 0;
}

static int file_create(const char *path, mode_t mode, struct client_replace *replace)
{
	return file_create_unnamed(mode, replace) ? 0 : file_create_beside(path, mode, replace);
}

int client_replace_begin(const char *path, mode_t mode, enum client_replace_kind kind,
			 const struct stat *content, struct client_replace *replace)
{
	struct client_replace replacement = {.fd = -1, .folder = -1, .kind = kind};
	struct beneath_place place = {.folder = -1};
	int found = target_find(path, &replacement, &place);

	if (found >= 0)
		target_take(&replacement, &place, found, content);
	beneath_place_free(&place);
	if (found < 0)
		return found;
	int rc = file_create(path, replacement.keeps_mode ? S_IRUSR | S_IWUSR : mode & PERMISSIONS,
			     &replacement);

	if (rc < 0)
		close(replacement.folder);
	if (rc < 0)
		return rc;
	replacement.path = strdup(path);
	if (!replacement.path) {
		client_replace_abandon(&replacement);
		return client_fail(ENOMEM, "%s: no memory", path);
	}
	*replace = replacement;
	return 0;
}

/* Gives an unnamed file its final name, or a name beside if the final name exists. */
static int file_link(const char *path, struct client_replace *replace)
{
	char from[BENEATH_THROUGH_MAX];
	const char *to = replace->name;
	int rc = 0;

	beneath_through(replace->fd, from);
	if (replace->exists)
		rc = beside_choose_name(replace);
	while (rc == 0) {
		if (*replace->temporary_name)
			to = replace->temporary_name;
		if (linkat(AT_FDCWD, from, replace->folder, to, AT_SYMLINK_FOLLOW) == 0)
			return 0;
		*replace->temporary_name = '\0'; /* the name belongs to another file */
		rc = errno == EEXIST && replace->kind == CLIENT_REPLACE_FILE
			 ? beside_choose_name(replace)
			 : path_fail(path);
	}
	return rc;
}

/* A filesystem may report a write error only when a descriptor is closed; after the rename that is
 * too late. */
static int file_flush(int fd)
{
	int duplicate = fcntl(fd, F_DUPFD_CLOEXEC, 0);

	return duplicate < 0 ? -1 : close(duplicate);
}

static bool is_users(const char *name)
{
	return strncmp(name, "user.", strlen("user.")) == 0;
}

/* Copies the old file's attributes of user, such as user.gpumem.share, to a new file of the same
 * owner: the old file's owner has chosen them. */
static void attributes_keep(const struct client_replace *replace)
{
	AUTO_CLOSE int old =
	    openat(replace->folder, replace->name, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOFOLLOW);
	struct stat old_stat, new_stat;

	if (old >= 0 && fstat(old, &old_stat) == 0 && fstat(replace->fd, &new_stat) == 0 &&
	    S_ISREG(old_stat.st_mode) && old_stat.st_uid == new_stat.st_uid)
		io_copy_xattrs(old, replace->fd, is_users);
}

/* Root alone may give the owner. */
static int metadata_keep(const struct client_replace *replace)
{
	const struct stat *old = &replace->old;

	if (replace->keeps_owner && fchown(replace->fd, old->st_uid, old->st_gid) < 0 &&
	    errno != EPERM)
		return -1;
	if (replace->exists)
		attributes_keep(replace);
	return replace->keeps_mode ? fchmod(replace->fd, old->st_mode & PERMISSIONS) : 0;
}

static int file_put_in_place(struct client_replace *replace)
{
	const char *path = replace->path;
	int rc = 0;

	if (metadata_keep(replace) < 0)
		return path_fail(path);
	if (file_flush(replace->fd) < 0 && errno != EINTR)
		return path_fail(path);
	if (!*replace->temporary_name)
		rc = file_link(path, replace);
	if (rc < 0 || !*replace->temporary_name)
		return rc;
	unsigned flags = replace->kind == CLIENT_REPLACE_NOTHING ? RENAME_NOREPLACE : 0;
	if (renameat2(replace->folder, replace->temporary_name, replace->folder, replace->name,
		      flags) < 0)
		return path_fail(path);
	*replace->temporary_name = '\0';
	return 0;
}

int client_replace_finish(struct client_replace *replace)
{
	int rc = file_put_in_place(replace);

	client_replace_abandon(replace);
	return rc;
}

void client_replace_abandon(struct client_replace *replace)
{
	close(replace->fd);
	if (*replace->temporary_name)
		unlinkat(replace->folder, replace->temporary_name, 0);
	close(replace->folder);
	free(replace->path);
}

void client_replace_forget(struct client_replace *replace)
{
	*replace->temporary_name = '\0';
	client_replace_abandon(replace);
}
