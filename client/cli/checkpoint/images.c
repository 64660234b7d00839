/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
#include "client/cli/checkpoint/images.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <libgen.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "client/cli/core/cli.h"
#include "client/core/beneath.h"
#include "common/cleanup.h"
#include "common/number.h"

#define OTHERS_WRITE (S_IWGRP | S_IWOTH)
#define DIGITS_MAX   16

static int untrusted_fail(const char *path, size_t length, const char *reason)
{
	cli_error("%.*s %s: other users could read or change the process's memory",
		  (int)(length ? length : 1), path, reason);
	return CLI_DENIED;
}

/* Whether only root and this user can rename names in the directory. length: of its path. */
static int parent_check(int fd, const char *path, size_t length)
{
	struct stat st;

	if (fstat(fd, &st) < 0)
		return cli_fail(path, errno);
	if (st.st_uid != 0 && st.st_uid != geteuid())
		return untrusted_fail(path, length, "belongs to another user");
	if (st.st_mode & OTHERS_WRITE && !(st.st_mode & S_ISVTX))
		return untrusted_fail(path, length, "is writable for other users");
	return CLI_OK;
}

/* Opens the directory of an absolute path without links, and checks each directory from / on. */
static int parents_open(const char *path, int *parent)
{
	int fd = open("/", O_PATH | O_DIRECTORY | O_CLOEXEC);
	size_t length = 0;

	for (;;) {
		char name[NAME_MAX + 1];
		const char *rest = path + length + strspn(path + length, "/");
		size_t size = strcspn(rest, "/");
		int status = fd < 0 ? cli_fail(path, -fd) : parent_check(fd, path, length);

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
		length = (size_t)(rest - path) + size;
	}
}

/* Fills in all but fd. Takes over path, which is absolute, without links. */
static int images_find(char *path, const char *word, struct images *images)
{
	*images = (struct images)IMAGES_NONE;
	images->path = path;
	if (!path)
		return cli_fail(word, errno);
	images->name = strrchr(path, '/') + 1;
	return parents_open(path, &images->parent);
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

int images_make(const char *path, struct images *images)
{
	int status = images_find(path_of_new(path), path, images);
	struct stat st;

	if (status)
		return status;
	if (mkdirat(images->parent, images->name, S_IRWXU) < 0)
		return cli_fail(path, errno);
	images->fd = beneath_open(images->parent, images->name, O_RDONLY | O_DIRECTORY, 0);
	if (images->fd < 0 || fstat(images->fd, &st) < 0)
		return cli_fail(path, images->fd < 0 ? -images->fd : errno);
	return st.st_uid == geteuid() ? CLI_OK : cli_fail(path, CLI_REPLACED);
}

void images_remove(const struct images *images)
{
	unlinkat(images->parent, images->name, AT_REMOVEDIR);
}

/* An owner or writer of an image could change the process that is started. */
static int image_check(const struct images *images, const char *name)
{
	struct stat st;

	if (fstatat(images->fd, name, &st, AT_SYMLINK_NOFOLLOW) < 0)
		return cli_fail(name, errno);
	if (S_ISREG(st.st_mode) && st.st_uid == geteuid() && !(st.st_mode & OTHERS_WRITE))
		return CLI_OK;
	cli_error("%s/%s is %s", images->path, name,
		  !S_ISREG(st.st_mode)	   ? "no regular file"
		  : st.st_uid != geteuid() ? "a file of another user"
					   : "writable for other users");
	return CLI_DENIED;
}

static int images_check(const struct images *images)
{
	int status = CLI_OK, fd = fcntl(images->fd, F_DUPFD_CLOEXEC, 0);
	DIR *directory = fd < 0 ? NULL : fdopendir(fd);

	if (!directory)
		return cli_fail(images->path, errno);
	for (const struct dirent *entry; !status && (entry = readdir(directory));)
		if (strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0)
			status = image_check(images, entry->d_name);
	closedir(directory);
	return status;
}

int images_open(const char *path, struct images *images)
{
	int status = images_find(realpath(path, NULL), path, images);
	struct stat st;

	if (status)
		return status;
	images->fd = beneath_open(images->parent, images->name, O_RDONLY | O_DIRECTORY, 0);
	if (images->fd < 0 || fstat(images->fd, &st) < 0)
		return cli_fail(path, images->fd < 0 ? -images->fd : errno);
	if (st.st_uid != geteuid()) {
		cli_error("%s belongs to another user", path);
		return CLI_DENIED;
	}
	if (st.st_mode & OTHERS_WRITE) {
		cli_error("%s is writable for other users", path);
		return CLI_DENIED;
	}
	unlinkat(images->fd, IMAGES_PID, 0); /* of an earlier restore */
	return images_check(images);
}

int images_read_pid(const struct images *images, pid_t *pid)
{
	AUTO_CLOSE int fd = beneath_open(images->fd, IMAGES_PID, O_RDONLY, 0);
	char text[DIGITS_MAX] = "";
	ssize_t length = fd < 0 ? -1 : read(fd, text, sizeof(text) - 1);
	uint64_t number;

	if (length <= 0)
		return cli_fail(IMAGES_PID, fd < 0 ? -fd : EIO);
	text[strcspn(text, "\n")] = '\0';
	if (parse_u64(text, 1, INT_MAX, &number) < 0)
		return cli_fail(IMAGES_PID, EPROTO);
	*pid = (pid_t)number;
	return CLI_OK;
}

void images_close(struct images *images)
{
	if (images->fd >= 0)
		close(images->fd);
	if (images->parent >= 0)
		close(images->parent);
	free(images->path);
	*images = (struct images)IMAGES_NONE;
}
