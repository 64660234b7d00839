/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
#include "common/io.h"

#include <errno.h>
#include <linux/limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/xattr.h>
#include <unistd.h>

#include "common/cleanup.h"

int io_read_at(int fd, void *to, uint64_t bytes, uint64_t offset, uint64_t *bytes_done)
{
	for (uint64_t at = 0; at < bytes;) {
		ssize_t n = pread(fd, (char *)to + at, bytes - at, (off_t)(offset + at));

		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			return n < 0 ? -errno : 0;
		at += (uint64_t)n;
		*bytes_done += (uint64_t)n;
	}
	return 0;
}

int io_write_at(int fd, const void *from, uint64_t bytes, uint64_t offset, uint64_t *bytes_done)
{
	for (uint64_t at = 0; at < bytes;) {
		ssize_t n = pwrite(fd, (const char *)from + at, bytes - at, (off_t)(offset + at));

		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			return n < 0 ? -errno : -ENOSPC;
		at += (uint64_t)n;
		if (bytes_done)
			*bytes_done += (uint64_t)n;
	}
	return 0;
}

int io_copy_at(int from, uint64_t from_offset, int to, uint64_t to_offset, uint64_t bytes,
	       uint64_t *bytes_done)
{
	off_t in = (off_t)from_offset, out = (off_t)to_offset;

	for (uint64_t at = 0; at < bytes;) {
		ssize_t n = copy_file_range(from, &in, to, &out, bytes - at, 0);

		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			return n < 0 ? -errno : 0;
		at += (uint64_t)n;
		*bytes_done += (uint64_t)n;
	}
	return 0;
}

static void xattr_copy(int from, int to, const char *name, char *value)
{
	ssize_t size = fgetxattr(from, name, value, XATTR_SIZE_MAX);

	/* The target may not support the attribute; cp -a ignores this too. */
	if (size >= 0 && fsetxattr(to, name, value, (size_t)size, 0) < 0)
		return;
}

void io_copy_xattrs(int from, int to, bool (*is_wanted)(const char *name))
{
	AUTO_FREE char *names = malloc(XATTR_LIST_MAX), *value = malloc(XATTR_SIZE_MAX);
	ssize_t length = names && value ? flistxattr(from, names, XATTR_LIST_MAX) : 0;

	for (const char *name = names; length > 0;) {
		size_t size = strlen(name) + 1;

		if (is_wanted(name))
			xattr_copy(from, to, name, value);
		name += size;
		length -= (ssize_t)size;
	}
}
