/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* gpumem cp: copies owner, mode, times and extended attributes. */
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#include "client/cli/cp/cp.h"
#include "common/io.h"

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

static bool is_ours(const char *name)
{
	return strncmp(name, OURS, strlen(OURS)) == 0 && strcmp(name, CP_PARTIAL_NOTE) != 0;
}

static bool is_other(const char *name)
{
	return strncmp(name, OURS, strlen(OURS)) != 0 && strcmp(name, CP_PARTIAL_NOTE) != 0;
}

void cp_xattrs(int from, int to, enum cp_xattrs which)
{
	io_copy_xattrs(from, to, which == CP_XATTRS_OURS ? is_ours : is_other);
}
