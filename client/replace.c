/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
#include "client/replace.h"

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

#include "client/error.h"
#include "common/defer.h"

#define PERMISSIONS (S_IRWXU | S_IRWXG | S_IRWXO)

static int failed(const char *path)
{
	return client_fail(errno, "%s: %s", path, strerror(errno));
}

/* Whether there is something to replace, and what. */
static int look(const char *path, struct client_replace *replace)
{
	struct stat st;

	replace->exists = stat(path, &st) == 0;
	if (!replace->exists)
		return errno == ENOENT ? 0 : failed(path);
	if (S_ISDIR(st.st_mode))
		return client_fail(EISDIR, "%s is a directory", path);
	if (!S_ISREG(st.st_mode))
		return client_fail(EINVAL, "%s is no regular file", path);
	replace->mode = st.st_mode & PERMISSIONS;
	return 0;
}

/* Paths are split at the last slash; a name with none is in the current folder. */
static int open_folder(const char *path, struct client_replace *replace)
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
	return replace->folder < 0 ? failed(folder) : 0;
}

static int create_beside(const char *path, mode_t mode, struct client_replace *replace)
{
	uint64_t number;

	do {
		if (getrandom(&number, sizeof(number), 0) != sizeof(number))
			return failed("getrandom");
		snprintf(replace->beside, sizeof(replace->beside), ".gpumem-%016" PRIx64, number);
		replace->fd = openat(replace->folder, replace->beside,
				     O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, mode);
	} while (replace->fd < 0 && errno == EEXIST);
	return replace->fd < 0 ? failed(path) : 0;
}

int client_replace_begin(const char *path, mode_t mode, struct client_replace *replace)
{
	struct client_replace made = {.fd = -1, .folder = -1};
	int rc = look(path, &made);

	if (rc < 0)
		return rc;
	/* The file that a link leads to is replaced, not the link. */
	AUTO_FREE char *resolved = made.exists ? realpath(path, NULL) : strdup(path);
	if (!resolved)
		return failed(path);
	rc = open_folder(resolved, &made);
	if (rc == 0)
		rc = create_beside(path, made.exists ? S_IRUSR | S_IWUSR : mode & PERMISSIONS,
				   &made);
	if (rc < 0 && made.folder >= 0)
		close(made.folder);
	if (rc == 0)
		*replace = made;
	return rc;
}

static int put_into_place(const char *path, struct client_replace *replace)
{
	int fd = replace->fd;

	if (replace->exists && fchmod(fd, replace->mode) < 0)
		return failed(path);
	/* A filesystem may keep an error of writing for this moment. */
	replace->fd = -1;
	if (close(fd) < 0 && errno != EINTR)
		return failed(path);
	if (renameat(replace->folder, replace->beside, replace->folder, replace->name) < 0)
		return failed(path);
	return 0;
}

int client_replace_finish(const char *path, struct client_replace *replace)
{
	int rc = put_into_place(path, replace);

	if (rc < 0)
		client_replace_abandon(replace);
	else
		close(replace->folder);
	return rc;
}

void client_replace_abandon(struct client_replace *replace)
{
	if (replace->fd >= 0)
		close(replace->fd);
	unlinkat(replace->folder, replace->beside, 0);
	close(replace->folder);
}
