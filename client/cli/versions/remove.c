/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* Removes a tree that its owner may change meanwhile: by descriptors, following no link. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#include "client/cli/versions/versions.h"

/* Deeper trees are no versions, and each level takes a descriptor and stack. */
#define DEPTH_MAX 64

static int entry_remove(int folder, const char *name, unsigned depth);

static int entries_remove(DIR *names, unsigned depth)
{
	const struct dirent *entry;
	int error = 0;

	while (!error && (entry = readdir(names)))
		if (strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0)
			error = entry_remove(dirfd(names), entry->d_name, depth + 1);
	return error;
}

/* -ENOENT: another process has removed the entry. */
static int entry_remove(int folder, const char *name, unsigned depth)
{
	if (unlinkat(folder, name, 0) == 0)
		return 0;
	if (errno != EISDIR && errno != EPERM)
		return errno == ENOENT ? 0 : -errno;
	if (depth == DEPTH_MAX)
		return -ELOOP;
	int fd = openat(folder, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	DIR *names = fd < 0 ? NULL : fdopendir(fd);

	if (!names) {
		int error = -errno;

		if (fd >= 0)
			close(fd);
		return error;
	}
	int error = entries_remove(names, depth);

	closedir(names);
	if (!error && unlinkat(folder, name, AT_REMOVEDIR) < 0)
		error = -errno;
	return error;
}

int version_remove(int set, const char *name)
{
	return entry_remove(set, name, 0);
}
