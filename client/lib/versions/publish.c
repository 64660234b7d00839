/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <time.h>
#include <unistd.h>

#include "client/core/beneath.h"
#include "client/core/error.h"
#include "client/core/process.h"
#include "client/lib/gpumem.h"
#include "client/lib/versions/versions.h"
#include "common/cleanup.h"

int versions_open(const char *set)
{
	int fd = open(set, O_RDONLY | O_DIRECTORY | O_CLOEXEC);

	return fd >= 0 ? fd : client_fail(errno, "%s: %s", set, strerror(errno));
}

bool versions_name_is_valid(const char *name)
{
	return *name && *name != '.' && !strchr(name, '/') && strcmp(name, VERSIONS_CURRENT) != 0 &&
	       strcmp(name, VERSIONS_PREVIOUS) != 0;
}

int versions_read(int set, const char *link, char name[NAME_MAX + 1])
{
	ssize_t n = readlinkat(set, link, name, NAME_MAX + 1);

	if (n < 0)
		return client_fail(errno, "%s: %s", link, strerror(errno));
	if (n > NAME_MAX)
		return client_fail(ELOOP, "%s leads out of the set", link);
	name[n] = 0;
	return versions_name_is_valid(name) ? 0
					    : client_fail(ELOOP, "%s leads out of the set", link);
}

static int version_open(int set, const char *version)
{
	struct stat st;

	if (!versions_name_is_valid(version))
		return client_fail(EINVAL, "'%s' is no name of a version", version);
	int fd = beneath_open(set, version, O_RDONLY, 0);

	if (fd < 0)
		return client_fail(-fd, "%s: %s", version, strerror(-fd));
	if (fstat(fd, &st) == 0 && (S_ISDIR(st.st_mode) || S_ISREG(st.st_mode)))
		return fd;
	close(fd);
	return client_fail(EINVAL, "%s is no file or directory", version);
}

/* A file system without such attributes has no times: the order of versions is then unknown. */
static int time_set(int version)
{
	struct timespec now;
	char text[32];

	clock_gettime(CLOCK_REALTIME, &now);
	int n = snprintf(text, sizeof(text), "%" PRId64,
			 now.tv_sec * INT64_C(1000000000) + now.tv_nsec);

	if (fsetxattr(version, VERSIONS_TIME, text, (size_t)n, 0) == 0 || errno == ENOTSUP)
		return 0;
	return client_fail(errno, "%s: %s", VERSIONS_TIME, strerror(errno));
}

/* Every look-up finds the earlier version or the new version. A publisher that is killed between
 * the two renames leaves a hidden link. */
static int link_exchange(int set, const char *name)
{
	if (renameat2(set, name, set, VERSIONS_CURRENT, RENAME_NOREPLACE) == 0)
		return 0;
	if (errno != EEXIST || renameat2(set, name, set, VERSIONS_CURRENT, RENAME_EXCHANGE) < 0)
		return -errno;
	return renameat(set, name, set, VERSIONS_PREVIOUS) < 0 ? -errno : 0;
}

/* The names are replaced, so they must not be a user's files. */
static int link_check(int set, const char *name)
{
	struct stat st;

	if (fstatat(set, name, &st, AT_SYMLINK_NOFOLLOW) < 0 || S_ISLNK(st.st_mode))
		return 0;
	return client_fail(EEXIST, "%s is no link: the directory is no set of versions", name);
}

/* A program that removes a version hides it first, and then reads the links: one of both sees the
 * other. */
static int version_is_there(int set, const char *version)
{
	struct stat st;

	if (fstatat(set, version, &st, AT_SYMLINK_NOFOLLOW) == 0)
		return 0;
	int error = errno;

	renameat(set, VERSIONS_PREVIOUS, set, VERSIONS_CURRENT);
	return client_fail(error, "%s was removed meanwhile", version);
}

static int current_set(int set, const char *version)
{
	char name[32];
	uint64_t number;

	int rc = link_check(set, VERSIONS_CURRENT);
	if (rc == 0)
		rc = link_check(set, VERSIONS_PREVIOUS);
	if (rc < 0)
		return rc;
	if (getrandom(&number, sizeof(number), 0) != sizeof(number))
		return client_fail(EIO, "no random number");
	snprintf(name, sizeof(name), VERSIONS_LINK "%016" PRIx64, number);
	if (symlinkat(version, set, name) < 0)
		return client_fail(errno, "%s: %s", name, strerror(errno));
	int error = link_exchange(set, name);

	if (error) {
		unlinkat(set, name, 0);
		return client_fail(-error, "%s: %s", VERSIONS_CURRENT, strerror(-error));
	}
	return version_is_there(set, version);
}

bool versions_is_named(int set, const char *version)
{
	char current[NAME_MAX + 1];

	return versions_read(set, VERSIONS_CURRENT, current) == 0 && strcmp(current, version) == 0;
}

int versions_publish(int set, const char *version)
{
	AUTO_CLOSE int fd = version_open(set, version);
	int rc = fd < 0 ? fd : time_set(fd);

	/* Again: the version before stays the way back. */
	return rc < 0 || versions_is_named(set, version) ? rc : current_set(set, version);
}

int versions_rollback(int set, char version[NAME_MAX + 1])
{
	int rc = versions_read(set, VERSIONS_PREVIOUS, version);

	return rc < 0 ? rc : versions_publish(set, version);
}

int gpumem_version_publish(const char *path, const char *version)
{
	CLIENT_CALL();
	AUTO_CLOSE int set = versions_open(path);

	return client_errno_return(set < 0 ? set : versions_publish(set, version));
}

int gpumem_version_rollback(const char *path)
{
	char version[NAME_MAX + 1];

	CLIENT_CALL();
	AUTO_CLOSE int set = versions_open(path);

	return client_errno_return(set < 0 ? set : versions_rollback(set, version));
}
