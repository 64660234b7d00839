/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
#include "client/core/beneath.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/openat2.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "common/cleanup.h"

#ifndef SYS_fchmodat2
#define SYS_fchmodat2 452 /* Linux 6.6, the same on every architecture */
#endif

/* Copies the first name of the path, without slashes: the rest of the path, or -errno. */
static const char *name_take(const char *path, char name[NAME_MAX + 1], int *error)
{
	size_t length = strcspn(path, "/");

	*error = length > NAME_MAX ? -ENAMETOOLONG : 0;
	if (!*error) {
		memcpy(name, path, length);
		name[length] = '\0';
		if (strcmp(name, "..") == 0)
			*error = -EXDEV;
	}
	return path + length + strspn(path + length, "/");
}

/* O_PATH opens a link at the end itself, which the caller may not have asked for. */
static int link_refuse(int fd, int flags)
{
	struct stat st;

	if (!(flags & O_PATH) || flags & O_NOFOLLOW || fstat(fd, &st) < 0 || !S_ISLNK(st.st_mode))
		return fd;
	close(fd);
	return -ELOOP;
}

/* Opens name after name: for kernels before 5.6, and filters of system calls without openat2. */
static int open_by_steps(int base, const char *path, int flags, mode_t mode)
{
	AUTO_CLOSE int parent = -1;
	char name[NAME_MAX + 1];

	for (;;) {
		int error = 0;

		path = name_take(path, name, &error);
		if (error)
			return error;
		int step = *path ? O_PATH | O_DIRECTORY | O_CLOEXEC : flags;
		int fd = openat(parent >= 0 ? parent : base, name, step | O_NOFOLLOW, mode);

		if (fd < 0)
			return -errno;
		if (!*path)
			return link_refuse(fd, flags);
		if (parent >= 0)
			close(parent);
		parent = fd;
	}
}

int beneath_open(int base, const char *path, int flags, mode_t mode)
{
	int wait = flags & O_PATH ? 0 : O_NONBLOCK;
	struct open_how how = {.flags = (uint64_t)(unsigned)(flags | O_CLOEXEC | wait),
			       .mode = flags & O_CREAT ? mode : 0,
			       .resolve = RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS};

	if (*path == '/')
		return -EXDEV;
	if (!*path)
		path = ".";
	long fd = syscall(SYS_openat2, base, path, &how, sizeof(how));

	if (fd >= 0)
		return (int)fd;
	return errno == ENOSYS || errno == EPERM ? open_by_steps(base, path, (int)how.flags, mode)
						 : -errno;
}

int beneath_open_real(const char *path, int flags)
{
	AUTO_CLOSE int root = open("/", O_PATH | O_DIRECTORY | O_CLOEXEC);

	return root < 0 ? -errno : beneath_open(root, path + strspn(path, "/"), flags, 0);
}

bool beneath_is_same(const struct stat *first, const struct stat *second)
{
	return first->st_dev == second->st_dev && first->st_ino == second->st_ino;
}

const char *beneath_through(int fd, char path[BENEATH_THROUGH_MAX])
{
	snprintf(path, BENEATH_THROUGH_MAX, "/proc/self/fd/%d", fd);
	return path;
}

int beneath_chown(int fd, uid_t uid, gid_t gid)
{
	return fchownat(fd, "", uid, gid, AT_EMPTY_PATH) < 0 ? -errno : 0;
}

/* Kernels before 6.6 change the mode of an O_PATH descriptor by its path in /proc alone. */
int beneath_chmod(int fd, mode_t mode)
{
	char path[BENEATH_THROUGH_MAX];

	if (fchmod(fd, mode) == 0)
		return 0;
	if (errno != EBADF)
		return -errno;
	if (syscall(SYS_fchmodat2, fd, "", mode, AT_EMPTY_PATH) == 0)
		return 0;
	if (errno != ENOSYS && errno != EPERM)
		return -errno;
	return chmod(beneath_through(fd, path), mode) < 0 ? -errno : 0;
}

int beneath_set_times(int fd, const struct timespec times[2])
{
	char path[BENEATH_THROUGH_MAX];

	if (futimens(fd, times) == 0 ||
	    (errno == EBADF && utimensat(fd, "", times, AT_EMPTY_PATH) == 0))
		return 0;
	if (errno != EINVAL) /* kernels before 5.8 */
		return -errno;
	return utimensat(AT_FDCWD, beneath_through(fd, path), times, 0) < 0 ? -errno : 0;
}

bool beneath_owner_is_trusted(int directory, const struct stat *st)
{
	struct stat parent;

	if (fstat(directory, &parent) < 0)
		return false;
	return !(parent.st_mode & S_ISVTX) || !(parent.st_mode & S_IWOTH) ||
	       st->st_uid == geteuid() || st->st_uid == parent.st_uid;
}
