/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
#include "client/preload/access.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/vfs.h>
#include <sys/xattr.h>
#include <unistd.h>

#include "client/file.h"
#include "client/mount.h"
#include "client/process.h"
#include "common/defer.h"

#define FUSE_MAGIC 0x65735546

bool access_may_be(int fd)
{
	struct statfs fs;

	return fstatfs(fd, &fs) == 0 && fs.f_type == FUSE_MAGIC;
}

/* The mount's own words on itself. */
static FILE *open_params(int fd)
{
	AUTO_FREE char *line = NULL;
	struct client_mount_line parsed;
	char path[4200];
	size_t room = 0;
	struct stat st, there;

	if (fstat(fd, &st) < 0)
		return NULL;
	AUTO_FCLOSE FILE *mounts = fopen("/proc/self/mountinfo", "re");
	if (!mounts)
		return NULL;
	while (getline(&line, &room, mounts) > 0) {
		if (!client_mount_parse(line, &parsed) || parsed.major != major(st.st_dev) ||
		    parsed.minor != minor(st.st_dev) || strcmp(parsed.root, "/") != 0)
			continue;
		snprintf(path, sizeof(path), "%s/.gpumem/params", parsed.where);
		FILE *params = fopen(path, "re");
		if (params && fstat(fileno(params), &there) == 0 && there.st_dev == st.st_dev)
			return params;
		if (params)
			fclose(params);
	}
	return NULL;
}

enum access_kind access_kind(int fd, enum stats_left *why)
{
	char device[64] = "", line[256];
	bool direct = false, played = false;

	*why = LEFT_FAILED;
	if (fgetxattr(fd, "user.gpumem.device", device, sizeof(device) - 1) <= 0 ||
	    strcmp(device, "host") == 0)
		return ACCESS_NONE;
	AUTO_FCLOSE FILE *params = open_params(fd);
	while (params && fgets(line, sizeof(line), params)) {
		direct = direct || strcmp(line, "cache none\n") == 0;
		played = played || strcmp(line, "backend host\n") == 0;
	}
	if (params && !direct)
		*why = LEFT_CACHED;
	if (!direct)
		return ACCESS_NONE;
	return played ? ACCESS_PLAYED : ACCESS_GPU;
}

/* By a descriptor whose closing leaves the process's locks alone. */
static gpumem *lease_as(int fd, int flags)
{
	struct gpumem *file = NULL;
	char path[40];

	CLIENT_CALL();
	snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	int beside = open(path, O_PATH | O_CLOEXEC);
	if (beside < 0)
		return NULL;
	int rc = client_file_new(beside, CLIENT_FD_PATH, flags, fd, &file);
	errno = rc < 0 ? -rc : 0;
	return file;
}

static bool no_right(int error)
{
	return error == EACCES || error == EPERM || error == EROFS || error == ETXTBSY;
}

/* A reader is given a copy of what is not trusted to it. */
static bool trusted(int fd)
{
	char share[16] = "";

	return fgetxattr(fd, "user.gpumem.share", share, sizeof(share) - 1) > 0 &&
	       strcmp(share, "trusted") == 0;
}

static bool is_the_file(gpumem *file)
{
	struct gpumem_info info = {.bytes = sizeof(info)};

	return gpumem_get_info(file, &info) == 0 && info.kind != GPUMEM_FILE_HOST &&
	       !(info.flags & GPUMEM_INFO_PRIVATE);
}

gpumem *access_lease(int fd, bool *writable, enum stats_left *why)
{
	int mode = fcntl(fd, F_GETFL) & O_ACCMODE;
	gpumem *file = lease_as(fd, O_RDWR);

	*why = LEFT_FAILED;
	*writable = true;
	if (!file && no_right(errno)) {
		*why = LEFT_RIGHTS;
		*writable = false;
		if (mode == O_RDONLY && trusted(fd))
			file = lease_as(fd, O_RDONLY);
	}
	if (file && !is_the_file(file)) {
		gpumem_close(file);
		return NULL;
	}
	return file;
}
