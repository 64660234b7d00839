/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* The kernel tells of renames in a directory without the daemon: a watch goes on over the daemon's
 * replacement, and in every mount namespace. */
#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/inotify.h>
#include <unistd.h>

#include "client/core/beneath.h"
#include "client/core/error.h"
#include "client/core/process.h"
#include "client/lib/gpumem.h"
#include "client/lib/versions/versions.h"
#include "common/cleanup.h"

static int watch_open(const char *path)
{
	char through[BENEATH_THROUGH_MAX];
	AUTO_CLOSE int set = versions_open(path);

	if (set < 0)
		return set;
	int fd = inotify_init1(IN_CLOEXEC | IN_NONBLOCK);

	if (fd >= 0 && inotify_add_watch(fd, beneath_through(set, through),
					 IN_MOVED_TO | IN_CREATE | IN_MOVE_SELF | IN_DELETE_SELF |
					     IN_ONLYDIR) >= 0)
		return fd;
	int error = errno;

	if (fd >= 0)
		close(fd);
	return client_fail(error, "inotify(7): %s", strerror(error));
}

int gpumem_watch(const char *path)
{
	CLIENT_CALL();
	int fd = watch_open(path);

	return client_errno_return(fd) < 0 ? -1 : fd;
}

/* Whether current may be another version after the events. */
static bool events_tell(const char *events, size_t bytes)
{
	struct inotify_event head;

	for (size_t at = 0; at + sizeof(head) <= bytes; at += sizeof(head) + head.len) {
		memcpy(&head, events + at, sizeof(head));
		if (head.mask & (IN_Q_OVERFLOW | IN_MOVE_SELF | IN_DELETE_SELF | IN_IGNORED) ||
		    (head.len && strcmp(events + at + sizeof(head), VERSIONS_CURRENT) == 0))
			return true;
	}
	return false;
}

static int watch_read(int fd)
{
	char events[4096];
	ssize_t n;
	int changed = 0;

	while ((n = read(fd, events, sizeof(events))) > 0)
		changed |= events_tell(events, (size_t)n);
	return n < 0 && errno != EAGAIN ? client_fail(errno, "%s", strerror(errno)) : changed;
}

int gpumem_watch_read(int fd)
{
	CLIENT_CALL();
	int rc = watch_read(fd);

	return client_errno_return(rc) < 0 ? -1 : rc;
}
