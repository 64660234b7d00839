/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* gpumem cp: copies owner, mode, times and extended attributes. */
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/xattr.h>
#include <unistd.h>

#include "client/cli/cp/cp.h"
#include "client/core/beneath.h"
#include "common/io.h"

#define OURS "user.gpumem."

static bool is_ours(const char *name)
{
	return strncmp(name, OURS, strlen(OURS)) == 0 && strcmp(name, CP_PARTIAL_NOTE) != 0;
}

static bool is_other(const char *name)
{
	return strncmp(name, OURS, strlen(OURS)) != 0 && strcmp(name, CP_PARTIAL_NOTE) != 0;
}

bool cp_is_on_mount(int fd)
{
	return fgetxattr(fd, "user.gpumem.device", NULL, 0) > 0;
}

void cp_xattrs(int from, int to, enum cp_xattrs kind)
{
	io_copy_xattrs(from, to, kind == CP_XATTRS_OURS ? is_ours : is_other);
}

/* In the order of cp(1): a new owner clears capabilities and the set-id bits, which extended
 * attributes and the mode bring back. */
int cp_attributes(int from, int fd, const struct stat *st, const struct stat *now)
{
	const struct timespec times[2] = {st->st_atim, st->st_mtim};
	mode_t mode = st->st_mode & 07777;
	bool owned = now && now->st_uid == st->st_uid && now->st_gid == st->st_gid;
	int error = beneath_set_times(fd, times);

	/* If the owner cannot be given, a program must not run with the rights of another owner. */
	if (!owned && beneath_chown(fd, st->st_uid, st->st_gid) < 0)
		mode &= ~(mode_t)(S_ISUID | S_ISGID);
	if (from >= 0)
		cp_xattrs(from, fd, CP_XATTRS_OTHERS);
	/* A link has no mode. */
	if (!error && !S_ISLNK(st->st_mode))
		error = beneath_chmod(fd, mode);
	return -error;
}
