/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
#include "backend/system/tmpfs.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/mount.h>
#include <sys/statfs.h>

#include "common/cleanup.h"

static int size_set(int context, uint64_t bytes)
{
	char size[24];

	snprintf(size, sizeof(size), "%llu", (unsigned long long)bytes);
	return fsconfig(context, FSCONFIG_SET_STRING, "size", size, 0) < 0 ? -errno : 0;
}

int tmpfs_new(uint64_t bytes, const char *huge)
{
	AUTO_CLOSE int context = fsopen("tmpfs", FSOPEN_CLOEXEC);
	int rc = context < 0 ? -errno : size_set(context, bytes);

	if (rc < 0)
		return rc;
	if (fsconfig(context, FSCONFIG_SET_STRING, "nr_inodes", "0", 0) < 0 ||
	    fsconfig(context, FSCONFIG_SET_STRING, "mode", "0700", 0) < 0)
		return -errno;
	/* Kernels without transparent huge pages do not know the option. */
	if (fsconfig(context, FSCONFIG_SET_STRING, "huge", huge, 0) < 0 && errno != EINVAL)
		return -errno;
	if (fsconfig(context, FSCONFIG_CMD_CREATE, NULL, NULL, 0) < 0)
		return -errno;

	int fd = fsmount(context, FSMOUNT_CLOEXEC,
			 MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV | MOUNT_ATTR_NOEXEC);

	return fd < 0 ? -errno : fd;
}

int tmpfs_object(int root)
{
	return openat(root, ".", O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
}

uint64_t tmpfs_used(int fd)
{
	struct statfs fs;

	if (fd < 0 || fstatfs(fd, &fs) < 0)
		return 0;
	return (uint64_t)(fs.f_blocks - fs.f_bfree) * (uint64_t)fs.f_bsize;
}

int tmpfs_resize(int root, uint64_t bytes)
{
	AUTO_CLOSE int context = fspick(root, "", FSPICK_CLOEXEC | FSPICK_EMPTY_PATH);
	int rc = context < 0 ? -errno : size_set(context, bytes);

	if (rc < 0)
		return rc;
	return fsconfig(context, FSCONFIG_CMD_RECONFIGURE, NULL, NULL, 0) < 0 ? -errno : 0;
}
