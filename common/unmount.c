/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
#include "common/unmount.h"

#include <errno.h>
#include <fcntl.h>
#include <spawn.h>
#include <stddef.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/wait.h>
#include <unistd.h>

int unmount_device(const char *path, dev_t *device)
{
	struct statx st;

	if (statx(AT_FDCWD, path, AT_STATX_DONT_SYNC | AT_NO_AUTOMOUNT, STATX_TYPE, &st))
		return -errno;
	*device = makedev(st.stx_dev_major, st.stx_dev_minor);
	return 0;
}

/* Lazily, so that open files do not keep the name. */
void unmount_lazily(const char *mountpoint, dev_t device)
{
	char *const arguments[] = {"fusermount3", "-u", "-q", "-z", "--", (char *)mountpoint, NULL};
	extern char **environ;
	pid_t pid;
	dev_t there;

	/* Somebody may have unmounted it and mounted something else there. */
	if (device && unmount_device(mountpoint, &there) == 0 && there != device)
		return;
	if (umount2(mountpoint, MNT_DETACH | UMOUNT_NOFOLLOW) == 0 || geteuid() == 0)
		return;
	if (posix_spawnp(&pid, arguments[0], NULL, NULL, arguments, environ) == 0)
		waitpid(pid, NULL, 0);
}
