/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* Where the socket is: in the mount itself, so that whoever sees the mount can share. Bound on the
 * path of the mount it would pin it, and umount would say busy; bound through a detached clone it
 * pins only the clone, which is dropped when the mount is gone. The kernel finds the socket by its
 * inode, so connecting works through the mount and through bind mounts of it all the same. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <sys/un.h>
#include <unistd.h>

#include "common/defer.h"
#include "common/log.h"
#include "fs/share_state.h"

#define BACKLOG 1024

int share_socket_bind(struct share *share, const char *mountpoint)
{
	struct sockaddr_un address = {.sun_family = AF_UNIX};
	struct stat st;

	share->tree_fd =
	    (int)syscall(SYS_open_tree, AT_FDCWD, mountpoint, OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC);
	if (share->tree_fd < 0 || fstat(share->tree_fd, &st))
		return -errno;
	snprintf(share->mount_device, sizeof(share->mount_device), " %u:%u ", major(st.st_dev),
		 minor(st.st_dev));
	share->listen_fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (share->listen_fd < 0)
		return -errno;
	snprintf(address.sun_path, sizeof(address.sun_path), "/proc/self/fd/%d/%s", share->tree_fd,
		 GPUMEM_SOCKET_NAME);
	if (bind(share->listen_fd, (struct sockaddr *)&address, sizeof(address)) ||
	    listen(share->listen_fd, BACKLOG))
		return -errno;
	share->mounts_fd = open("/proc/self/mountinfo", O_RDONLY | O_CLOEXEC);
	return share->mounts_fd < 0 ? -errno : 0;
}

static void close_fd(int *fd)
{
	if (*fd >= 0)
		close(*fd);
	*fd = -1;
}

void share_socket_close(struct share *share)
{
	close_fd(&share->listen_fd);
	close_fd(&share->tree_fd);
	close_fd(&share->mounts_fd);
}

bool share_socket_mounted(const struct share *share)
{
	FILE *table AUTO_FCLOSE = fopen("/proc/self/mountinfo", "re");
	char *line AUTO_FREE = NULL;
	size_t size = 0;

	/* "ID PARENT MAJOR:MINOR ...": in the third field a blank on both sides is enough. */
	while (table && getline(&line, &size, table) > 0) {
		char *found = strstr(line, share->mount_device);
		char *parent = strchr(line, ' ');

		if (found && parent && found == strchr(parent + 1, ' '))
			return true;
	}
	return !table;
}
