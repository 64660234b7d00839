/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
#include "client/cli/mountpoint.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "client/cli/core/cli.h"
#include "client/core/beneath.h"
#include "common/cleanup.h"
#include "common/number.h"

/* The path where the kernel finds the word: a link at its end or before is followed as
 * fs.protected_symlinks allows. No daemon is asked for the root of its mount. */
static int path_resolve(const char *word, char path[PATH_MAX])
{
	AUTO_CLOSE int fd = open(word, O_PATH | O_CLOEXEC);
	char fd_path[BENEATH_THROUGH_MAX];

	if (fd < 0)
		return -errno;
	ssize_t length = readlink(beneath_through(fd, fd_path), path, PATH_MAX - 1);

	if (length < 0)
		return -errno;
	path[length] = '\0';
	return *path == '/' ? 0 : -EINVAL;
}

static int mountpoint_open(const char *word, struct mountpoint *point)
{
	char path[PATH_MAX];
	int error = path_resolve(word, path);

	if (error)
		return error;
	point->path = strdup(path);
	if (!point->path)
		return -ENOMEM;
	size_t length = (size_t)(strrchr(path, '/') - path);

	point->name = point->path + length + 1;
	path[length ? length : 1] = '\0';
	point->folder = beneath_open_real(path, O_PATH | O_DIRECTORY);
	return point->folder < 0 ? point->folder : 0;
}

/* The line of /proc/PID/fdinfo/FD with the number of the mount. */
#define ID_LINE "mnt_id:\t"

static int mount_id_parse(char *number, uint64_t *id)
{
	number[strcspn(number, "\n")] = '\0';
	return parse_u64(number, 0, UINT64_MAX, id);
}

/* The number of the mount whose root or file is there, without a request to a daemon. The
 * descriptor is closed again, because an open descriptor keeps a mount busy. */
static int mountpoint_read_id(const struct mountpoint *point, uint64_t *id)
{
	AUTO_CLOSE int fd = openat(point->folder, *point->name ? point->name : ".",
				   O_PATH | O_NOFOLLOW | O_CLOEXEC);
	AUTO_FREE char *line = NULL;
	char path[64];
	size_t room = 0;

	if (fd < 0)
		return -errno;
	snprintf(path, sizeof(path), "/proc/self/fdinfo/%d", fd);
	AUTO_FCLOSE FILE *info = fopen(path, "re");
	if (!info)
		return -errno;
	while (getline(&line, &room, info) > 0)
		if (strncmp(line, ID_LINE, strlen(ID_LINE)) == 0)
			return mount_id_parse(line + strlen(ID_LINE), id);
	return -EPROTO;
}

static int inside_fail(const char *path, const struct mount_at *mount)
{
	cli_error("%s: not a mountpoint: gpumem umount %s", path, mount->mountpoint);
	return CLI_NOT_MOUNTED;
}

/* Finds the mount whose root is there: the exit status. */
static int mountpoint_check(struct mountpoint *point)
{
	AUTO_FREE char *inside = NULL;
	const struct mount_at *enclosing = mounts_of(&point->mounts, point->path, &inside);
	uint64_t id = 0;
	int error = mountpoint_read_id(point, &id);

	if (error)
		return cli_fail(point->path, -error);
	point->mount = mounts_at(&point->mounts, point->path, id);
	if (point->mount)
		return CLI_OK;
	if (enclosing && enclosing->id == id)
		return inside_fail(point->path, enclosing);
	cli_error("%s: no gpumemfs is mounted there (umount(8) unmounts other file systems)",
		  point->path);
	return CLI_NOT_MOUNTED;
}

int mountpoint_find(const char *word, struct mountpoint *point)
{
	AUTO_FREE char *inside = NULL;

	*point = (struct mountpoint){.folder = -1};
	int error = mounts_find(&point->mounts);

	if (error)
		return cli_fail("/proc/self/mountinfo", -error);
	error = mountpoint_open(word, point);
	if (!error)
		return mountpoint_check(point);
	/* A daemon that has ended gives no path of a file inside of its mount. */
	const struct mount_at *enclosing =
	    error == -ENOTCONN ? mounts_of(&point->mounts, word, &inside) : NULL;

	return enclosing ? inside_fail(word, enclosing) : cli_fail(word, -error);
}

void mountpoint_free(struct mountpoint *point)
{
	mounts_free(&point->mounts);
	if (point->folder >= 0)
		close(point->folder);
	free(point->path);
}
