/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
#include "client/lib/staging.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "client/core/mount.h"
#include "client/lib/file.h"
#include "common/io.h"

static int unnamed_open(int root, void *unused)
{
	int fd = openat(root, "host", O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);

	(void)unused;
	return fd < 0 ? -errno : fd;
}

/* Huge pages are cheaper to allocate and to map; without them the pages are small. Pages are
 * allocated by the first store: allocating them beforehand, in threads that each take the lock on
 * this process's mappings, kept 24 threads from starting for 25 ms. */
static int staging_prepare(struct client_staging *staging, size_t bytes)
{
	void *base;

	if (ftruncate(staging->fd, (off_t)bytes) < 0)
		return -errno;
	staging->file = gpumem_open_fd(staging->fd);
	if (!staging->file || gpumem_map_host(staging->file, &base, NULL) < 0)
		return -errno;
	const struct client_layout *layout = &staging->file->layout;

	staging->object = layout->n_chunks == 1 ? layout->chunks[0].fd : staging->fd;
	staging->base = base;
	staging->bytes = bytes;
	(void)madvise(base, bytes, MADV_HUGEPAGE);
	return 0;
}

/* A store into a page would end the process if the mount has no room for the page. */
int client_staging_touch(const struct client_staging *staging, size_t at, size_t bytes)
{
	if (madvise(staging->base + at, bytes, MADV_POPULATE_WRITE) == 0)
		return 0;
	if (errno != EINVAL) /* EINVAL: a kernel before 5.14 */
		return -errno;
	if (fallocate(staging->fd, 0, (off_t)at, (off_t)bytes) < 0)
		return -errno;
	memset(staging->base + at, 0, bytes);
	return 0;
}

int client_staging_open(int fd, size_t bytes, struct client_staging *staging)
{
	struct client_staging new_staging = CLIENT_STAGING_NONE;

	new_staging.fd = client_mount_each(fd, CLIENT_MOUNTS_WHOLE, unnamed_open, NULL);
	int rc = new_staging.fd < 0 ? new_staging.fd : staging_prepare(&new_staging, bytes);
	if (rc < 0)
		client_staging_close(&new_staging);
	else
		*staging = new_staging;
	return rc;
}

void client_staging_close(struct client_staging *staging)
{
	if (staging->file)
		gpumem_close(staging->file);
	if (staging->fd >= 0)
		close(staging->fd);
	*staging = CLIENT_STAGING_NONE;
}

ssize_t client_staging_put(const struct client_staging *staging, size_t at, int to, uint64_t offset,
			   size_t bytes)
{
	uint64_t bytes_copied = 0;
	int rc = io_copy_at(staging->fd, at, to, offset, bytes, &bytes_copied);

	return io_count(rc, bytes_copied);
}

ssize_t client_staging_get(const struct client_staging *staging, size_t at, int from,
			   uint64_t offset, size_t bytes)
{
	uint64_t bytes_copied = 0;
	int rc = io_copy_at(from, offset, staging->fd, at, bytes, &bytes_copied);

	return io_count(rc, bytes_copied);
}

ssize_t client_staging_place(const struct client_staging *staging, size_t at, int to,
			     uint64_t offset, size_t bytes)
{
	const struct gpumem *file = staging->file;
	uint64_t bytes_copied = 0;
	ssize_t n = 1;

	while (file->connection && bytes_copied < bytes && n > 0) {
		n = client_connection_copy(file->connection, file->layout.lease, at + bytes_copied,
					   to, offset + bytes_copied, bytes - bytes_copied);
		bytes_copied += n > 0 ? (size_t)n : 0;
	}
	if (bytes_copied == bytes)
		return (ssize_t)bytes_copied;
	/* The copy through the kernel also reports the error that stopped the daemon's copy, unless
	 * the daemon's copy is just not available. */
	int rc = io_copy_at(staging->fd, at + bytes_copied, to, offset + bytes_copied,
			    bytes - bytes_copied, &bytes_copied);

	return io_count(rc, bytes_copied);
}
