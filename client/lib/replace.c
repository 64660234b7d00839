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

#include "client/core/error.h"
#include "common/cleanup.h"
#include "common/io.h"

#define THROUGH_PROC_MAX 32
#define PERMISSIONS	 (S_IRWXU | S_IRWXG | S_IRWXO)

static int path_fail(const char *path)
{
	return client_fail(errno, "%s: %s", path, strerror(errno));
}

/* Looks at the file that is to be replaced, if there is one. */
static int target_inspect(const char *path, struct client_replace *replace)
{
	struct stat st;

	if (replace->kind == CLIENT_REPLACE_NOTHING && lstat(path, &st) == 0)
		return client_fail(EEXIST, "%s exists", path);
	replace->exists = stat(path, &st) == 0;
	if (!replace->exists)
		return errno == ENOENT ? 0 : path_fail(path);
	if (S_ISDIR(st.st_mode))
		return client_fail(EISDIR, "%s is a directory", path);
	if (!S_ISREG(st.st_mode))
		return client_fail(EINVAL, "%s is no regular file", path);
	replace->mode = st.st_mode & PERMISSIONS;
	return 0;
}

/* Splits the path at the last slash; a name without a slash is in the current folder. */
static int folder_open(const char *path, struct client_replace *replace)
{
	const char *slash = strrchr(path, '/');
	const char *name = slash ? slash + 1 : path;
	AUTO_FREE char *folder =
	    slash ? strndup(path, slash == path ? 1 : (size_t)(slash - path)) : strdup(".");

	if (!folder)
		return client_fail(ENOMEM, "%s: no memory", path);
	if (!*name)
		return client_fail(path == slash || !slash ? ENOENT : EISDIR,
				   "'%s' is no file's name", path);
	if (strlen(name) > NAME_MAX)
		return client_fail(ENAMETOOLONG, "%s: %s", path, strerror(ENAMETOOLONG));
	strcpy(replace->name, name);
	replace->folder = open(folder, O_PATH | O_DIRECTORY | O_CLOEXEC);
	return replace->folder < 0 ? path_fail(folder) : 0;
}

static int beside_choose_name(struct client_replace *replace)
{
	uint64_t number;

	if (getrandom(&number, sizeof(number), 0) != sizeof(number))
		return path_fail("getrandom");
	snprintf(replace->beside, sizeof(replace->beside), ".gpumem-%016" PRIx64, number);
	return 0;
}

static const char *proc_path(int fd, char path[THROUGH_PROC_MAX])
{
	snprintf(path, THROUGH_PROC_MAX, "/proc/self/fd/%d", fd);
	return path;
}

/* Creates the file without a name, so that a killed process leaves no file behind; only if the file
 * can get a name later. Gives whether the file was created. */
static bool file_create_unnamed(mode_t mode, struct client_replace *replace)
{
	char path[THROUGH_PROC_MAX];

	replace->fd = openat(replace->folder, ".", O_RDWR | O_TMPFILE | O_CLOEXEC, mode);
	if (replace->fd < 0)
		return false;
	if (access(proc_path(replace->fd, path), F_OK) == 0)
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
		replace->fd = openat(replace->folder, replace->beside,
				     O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, mode);
	} while (replace->fd < 0 && errno == EEXIST);
	return replace->fd < 0 ? path_fail(path) : 0;
}

static int file_create(const char *path, mode_t mode, struct client_replace *replace)
{
	return file_create_unnamed(mode, replace) ? 0 : file_create_beside(path, mode, replace);
}

int client_replace_begin(const char *path, mode_t mode, enum client_replace_kind kind,
			 struct client_replace *replace)
{
	struct client_replace made = {.fd = -1, .folder = -1, .kind = kind};
	int rc = target_inspect(path, &made);

	if (rc < 0)
		return rc;
	/* A link stays; the link's target is replaced. */
	AUTO_FREE char *resolved = made.exists ? realpath(path, NULL) : strdup(path);
	if (!resolved)
		return path_fail(path);
	rc = folder_open(resolved, &made);
	if (rc == 0)
		rc = file_create(path, made.exists ? S_IRUSR | S_IWUSR : mode & PERMISSIONS, &made);
	if (rc < 0 && made.folder >= 0)
		close(made.folder);
	if (rc < 0)
		return rc;
	made.path = strdup(path);
	if (!made.path) {
		client_replace_abandon(&made);
		return client_fail(ENOMEM, "%s: no memory", path);
	}
	*replace = made;
	return 0;
}

/* Gives an unnamed file its final name, or a name beside if the final name exists. */
static int file_link(const char *path, struct client_replace *replace)
{
	char from[THROUGH_PROC_MAX];
	const char *to = replace->name;
	int rc = 0;

	proc_path(replace->fd, from);
	if (replace->exists)
		rc = beside_choose_name(replace);
	while (rc == 0) {
		if (*replace->beside)
			to = replace->beside;
		if (linkat(AT_FDCWD, from, replace->folder, to, AT_SYMLINK_FOLLOW) == 0)
			return 0;
		*replace->beside = '\0'; /* the name belongs to another file */
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
	int other = fcntl(fd, F_DUPFD_CLOEXEC, 0);

	return other < 0 ? -1 : close(other);
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
	struct stat was, is;

	if (old >= 0 && fstat(old, &was) == 0 && fstat(replace->fd, &is) == 0 &&
	    S_ISREG(was.st_mode) && was.st_uid == is.st_uid)
		io_copy_xattrs(old, replace->fd, is_users);
}

static int file_put_in_place(struct client_replace *replace)
{
	const char *path = replace->path;
	int rc = 0;

	if (replace->exists && fchmod(replace->fd, replace->mode) < 0)
		return path_fail(path);
	if (replace->exists)
		attributes_keep(replace);
	if (file_flush(replace->fd) < 0 && errno != EINTR)
		return path_fail(path);
	if (!*replace->beside)
		rc = file_link(path, replace);
	if (rc < 0 || !*replace->beside)
		return rc;
	unsigned flags = replace->kind == CLIENT_REPLACE_NOTHING ? RENAME_NOREPLACE : 0;
	if (renameat2(replace->folder, replace->beside, replace->folder, replace->name, flags) < 0)
		return path_fail(path);
	*replace->beside = '\0';
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
	if (*replace->beside)
		unlinkat(replace->folder, replace->beside, 0);
	close(replace->folder);
	free(replace->path);
}

void client_replace_forget(struct client_replace *replace)
{
	*replace->beside = '\0';
	client_replace_abandon(replace);
}
