/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* Removes a tree that its owner may change meanwhile: by descriptors, following no link. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "client/cli/versions/versions.h"
#include "client/lib/versions/versions.h"
#include "common/cleanup.h"

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

/* Held by whoever removes a hidden version or makes a new one: without it, the process has ended.
 */
static int hidden_lock(int set, const char *name)
{
	int fd = openat(set, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);

	if (fd < 0 || flock(fd, LOCK_EX | LOCK_NB) == 0)
		return fd < 0 ? -errno : fd;
	close(fd);
	return -EBUSY;
}

/* The name goes first: a process that is killed leaves no half of a version under it. Then the
 * links are read again: another process may have published the version meanwhile. */
int version_remove(int set, const char *name)
{
	char hidden[32];
	uint64_t number;
	AUTO_CLOSE int lock = hidden_lock(set, name);

	if (lock < 0)
		return lock;
	if (getrandom(&number, sizeof(number), 0) != sizeof(number))
		return -EIO;
	snprintf(hidden, sizeof(hidden), VERSIONS_OLD "%016" PRIx64, number);
	if (renameat(set, name, set, hidden) < 0)
		return -errno;
	if (!versions_is_named(set, name))
		return entry_remove(set, hidden, 0);
	return renameat2(set, hidden, set, name, RENAME_NOREPLACE) < 0 ? -errno : -EBUSY;
}

static bool is_hidden(const char *name)
{
	return strncmp(name, VERSIONS_OLD, strlen(VERSIONS_OLD)) == 0 ||
	       strncmp(name, VERSIONS_NEW, strlen(VERSIONS_NEW)) == 0;
}

/* A link that its publisher has not renamed for a minute. */
static bool is_left_link(int set, const char *name)
{
	struct stat st;

	return strncmp(name, VERSIONS_LINK, strlen(VERSIONS_LINK)) == 0 &&
	       fstatat(set, name, &st, AT_SYMLINK_NOFOLLOW) == 0 && S_ISLNK(st.st_mode) &&
	       st.st_mtim.tv_sec < time(NULL) - 60;
}

void version_remove_left(int set)
{
	int fd = openat(set, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	DIR *names = fd < 0 ? NULL : fdopendir(fd);
	const struct dirent *entry;

	while (names && (entry = readdir(names))) {
		AUTO_CLOSE int lock =
		    is_hidden(entry->d_name) ? hidden_lock(set, entry->d_name) : -1;

		if (lock >= 0 || is_left_link(set, entry->d_name))
			entry_remove(set, entry->d_name, 0);
	}
	if (names)
		closedir(names);
	else if (fd >= 0)
		close(fd);
}
