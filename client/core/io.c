/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
#include "client/core/io.h"

#include <errno.h>
#include <unistd.h>

ssize_t client_io_read_at(int fd, void *to, size_t bytes, uint64_t offset)
{
	size_t done = 0;

	while (done < bytes) {
		ssize_t n = pread(fd, (char *)to + done, bytes - done, (off_t)(offset + done));

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return -errno;
		if (n == 0)
			break;
		done += (size_t)n;
	}
	return (ssize_t)done;
}

int client_io_write_at(int fd, const void *from, size_t bytes, uint64_t offset)
{
	size_t done = 0;

	while (done < bytes) {
		ssize_t n =
		    pwrite(fd, (const char *)from + done, bytes - done, (off_t)(offset + done));

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return -errno;
		if (n == 0)
			return -ENOSPC;
		done += (size_t)n;
	}
	return 0;
}

ssize_t client_io_copy_range(int from, uint64_t from_offset, int to, uint64_t to_offset,
			     uint64_t bytes)
{
	off_t in = (off_t)from_offset, out = (off_t)to_offset;
	uint64_t done = 0;

	while (done < bytes) {
		ssize_t n = copy_file_range(from, &in, to, &out, bytes - done, 0);

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return done ? (ssize_t)done : -errno;
		if (n == 0)
			break;
		done += (uint64_t)n;
	}
	return (ssize_t)done;
}
