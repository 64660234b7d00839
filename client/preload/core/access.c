/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
#include "client/preload/core/access.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/vfs.h>
#include <sys/xattr.h>
#include <unistd.h>

#include "client/core/beneath.h"
#include "client/core/mount.h"
#include "client/core/process.h"
#include "client/lib/file.h"
#include "common/cleanup.h"

#define FUSE_MAGIC 0x65735546

bool access_may_be(int fd)
{
	struct statfs fs;

	return fstatfs(fd, &fs) == 0 && fs.f_type == FUSE_MAGIC;
}

/* By path, because fgetxattr refuses O_PATH descriptors. */
static ssize_t attribute_get(int fd, const char *name, char *value, size_t bytes)
{
	char path[BENEATH_THROUGH_MAX];

	return getxattr(beneath_through(fd, path), name, value, bytes);
}

bool access_is_on_mount(int fd)
{
	char device[64];

	return attribute_get(fd, "user.gpumem.device", device, sizeof(device)) > 0;
}

enum access_kind access_kind(int fd, enum stats_left *reason)
{
	char device[64] = "";
	uint32_t flags;

	*reason = LEFT_FAILED;
	if (attribute_get(fd, "user.gpumem.device", device, sizeof(device) - 1) <= 0 ||
	    strcmp(device, "host") == 0 || client_mount_flags(fd, &flags) < 0)
		return ACCESS_NONE;
	if (flags & GPUMEM_MOUNT_CACHES) {
		*reason = LEFT_CACHED;
		return ACCESS_NONE;
	}
	return flags & GPUMEM_MOUNT_SIMULATES ? ACCESS_SIMULATED : ACCESS_GPU;
}

/* Takes a lease through an O_PATH descriptor, whose close leaves the process's locks alone. */
static gpumem *lease_with_flags(int fd, int flags)
{
	struct gpumem *file = NULL;
	char path[BENEATH_THROUGH_MAX];

	CLIENT_CALL();
	int path_fd = open(beneath_through(fd, path), O_PATH | O_CLOEXEC);
	if (path_fd < 0)
		return NULL;
	int rc = client_file_new(path_fd, CLIENT_FD_PATH, flags, fd, &file);

	/* The file's pages do not begin where pages of its memory do. */
	if (rc == 0 && file->layout.skip) {
		client_file_free(file);
		rc = -ENOTSUP;
	}
	errno = rc < 0 ? -rc : 0;
	return file;
}

static bool error_is_rights(int error)
{
	return error == EACCES || error == EPERM || error == EROFS || error == ETXTBSY;
}

/* A process that may only read gets a copy, unless the file is trusted. */
static bool file_is_trusted(int fd)
{
	char share[16] = "";

	return attribute_get(fd, "user.gpumem.share", share, sizeof(share) - 1) > 0 &&
	       strcmp(share, "trusted") == 0;
}

static bool lease_is_direct(gpumem *file)
{
	struct gpumem_info info = {.bytes = sizeof(info)};

	return gpumem_get_info(file, &info) == 0 && info.kind != GPUMEM_FILE_HOST &&
	       !(info.flags & GPUMEM_INFO_PRIVATE);
}

gpumem *access_lease(int fd, enum access_times times, bool *writable, enum stats_left *reason)
{
	int mode = fcntl(fd, F_GETFL) & O_ACCMODE;
	const int kinds[] = {[ACCESS_LOADS] = CLIENT_LEASE_LOADS,
			     [ACCESS_TIMED] = CLIENT_LEASE_TIMED,
			     [ACCESS_STORES] = 0};
	gpumem *file = lease_with_flags(fd, O_RDWR | kinds[times]);

	*reason = LEFT_FAILED;
	*writable = true;
	if (!file && error_is_rights(errno)) {
		*reason = LEFT_RIGHTS;
		*writable = false;
		if (mode == O_RDONLY && file_is_trusted(fd))
			file = lease_with_flags(fd, O_RDONLY | (kinds[times] & CLIENT_LEASE_LOADS));
	}
	if (file && !lease_is_direct(file)) {
		gpumem_close(file);
		return NULL;
	}
	return file;
}
