/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
#include "client/cli/checkpoint/images.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <string.h>
#include <unistd.h>

#include "client/cli/core/cli.h"
#include "client/core/beneath.h"
#include "common/cleanup.h"
#include "common/number.h"

#define DIGITS_MAX 16
#define DANGER	   "read or change the process's memory"

int images_make(const char *path, struct private_dir *images)
{
	return private_dir_make(path, DANGER, images);
}

/* An owner or writer of an image could change the process that is started. */
static int image_check(const struct private_dir *images, const char *name)
{
	struct stat st;

	if (fstatat(images->fd, name, &st, AT_SYMLINK_NOFOLLOW) < 0)
		return cli_fail(name, errno);
	if (S_ISREG(st.st_mode) && st.st_uid == geteuid() && !(st.st_mode & PRIVATE_DIR_WRITERS))
		return CLI_OK;
	cli_error("%s/%s is %s", images->path, name,
		  !S_ISREG(st.st_mode)	   ? "no regular file"
		  : st.st_uid != geteuid() ? "a file of another user"
					   : "writable for other users");
	return CLI_DENIED;
}

static int images_check(const struct private_dir *images)
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

int images_open(const char *path, struct private_dir *images)
{
	int status = private_dir_open(path, DANGER, images);

	if (status)
		return status;
	unlinkat(images->fd, IMAGES_PID, 0); /* of an earlier restore */
	return images_check(images);
}

int images_read_pid(const struct private_dir *images, pid_t *pid)
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
