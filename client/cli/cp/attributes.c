/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* gpumem cp: copies owner, mode, times and extended attributes. */
#include <errno.h>
#include <fcntl.h>
#include <linux/limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/xattr.h>
#include <unistd.h>

#include "client/cli/cp/cp.h"
#include "common/cleanup.h"

#define OURS "user.gpumem."

int cp_attributes(int fd, const char *path, const struct stat *st, const struct stat *now)
{
	struct timespec times[2] = {st->st_atim, st->st_mtim};
	mode_t mode = st->st_mode & 07777;
	int dir = fd < 0 ? AT_FDCWD : fd;
	const char *name = fd < 0 ? path : "";
	int empty = fd < 0 ? 0 : AT_EMPTY_PATH;
	bool owned = now && now->st_uid == st->st_uid && now->st_gid == st->st_gid;

	/* If the owner cannot be given, a program must not run with the rights of another owner. */
	if (!owned && fchownat(dir, name, st->st_uid, st->st_gid, empty | AT_SYMLINK_NOFOLLOW) < 0)
		mode &= ~(mode_t)(S_ISUID | S_ISGID);
	/* A link has no mode. */
	if (!S_ISLNK(st->st_mode) && (fd < 0 ? chmod(path, mode) : fchmod(fd, mode)) < 0)
		return errno;
	if (fd < 0 ? utimensat(AT_FDCWD, path, times, AT_SYMLINK_NOFOLLOW) < 0
		   : futimens(fd, times) < 0)
		return errno;
	return 0;
}

static void xattr_copy(int from, int to, const char *name, char *value)
{
	ssize_t size = fgetxattr(from, name, value, XATTR_SIZE_MAX);

	/* The target may not support the attribute; cp -a ignores this too. */
	if (size >= 0 && fsetxattr(to, name, value, (size_t)size, 0) < 0)
		return;
}

void cp_xattrs(int from, int to, enum cp_xattrs which)
{
	AUTO_FREE char *names = malloc(XATTR_LIST_MAX), *value = malloc(XATTR_SIZE_MAX);
	ssize_t length = names && value ? flistxattr(from, names, XATTR_LIST_MAX) : 0;

	for (const char *name = names; length > 0;) {
		size_t size = strlen(name) + 1;
		bool ours = strncmp(name, OURS, strlen(OURS)) == 0;

		if (ours == (which == CP_XATTRS_OURS) && strcmp(name, CP_PARTIAL_NOTE) != 0)
			xattr_copy(from, to, name, value);
		name += size;
		length -= (ssize_t)size;
	}
}
