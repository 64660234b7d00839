/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
#include "backend/disk.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/uio.h>
#include <unistd.h>

#include "backend/backend.h"
#include "common/io.h"
#include "common/log.h"
#include "common/system/descriptors.h"

struct disk_chunk {
	struct chunk chunk;
	int fd;
};

static struct disk_chunk *disk_chunk(const struct chunk *chunk)
{
	return (struct disk_chunk *)chunk;
}

static int disk_file_make(int dir)
{
	int fd = openat(dir, ".", O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);

	return fd < 0 ? -errno : fd;
}

int disk_dir_open(struct backend *backend, const char *path)
{
	int dir = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	int probe = dir < 0 ? -errno : disk_file_make(dir);

	if (probe < 0) {
		bool nameless = probe == -EOPNOTSUPP || probe == -EISDIR || probe == -EINVAL;

		log_error("spill=disk: %s: %s", path,
			  nameless ? "this file system has no files without names (O_TMPFILE); use "
				     "ext4, xfs, btrfs or tmpfs"
				   : strerror(-probe));
		if (dir >= 0)
			close(dir);
		return nameless ? -ENOTSUP : probe;
	}
	close(probe);
	backend->disk_dir = dir;
	return 0;
}

int disk_dir_memory(const struct backend *backend, struct device_memory *memory)
{
	struct statvfs fs;

	if (fstatvfs(backend->disk_dir, &fs) < 0)
		return -errno;
	*memory = (struct device_memory){
	    .total = fs.f_blocks * fs.f_frsize,
	    .free = fs.f_bavail * fs.f_frsize,
	};
	return 0;
}

static struct disk_chunk *disk_chunk_make(struct device *device, uint64_t bytes, int fd)
{
	struct disk_chunk *new_chunk = calloc(1, sizeof(*new_chunk));

	if (!new_chunk)
		return NULL;
	new_chunk->chunk.device = device;
	new_chunk->chunk.bytes = bytes;
	new_chunk->chunk.place = PLACE_DISK;
	new_chunk->fd = fd;
	return new_chunk;
}

/* -ENOSPC: no more files leave for the disk. All other errors are errors of the disk. */
static int disk_error(const struct device *device, const char *failure, int error)
{
	if (error == -ENOSPC || error == -EDQUOT || error == -EFBIG || error == -EMFILE ||
	    error == -ENFILE)
		return -ENOSPC;
	log_caller_error("%s: spill=disk: %s: %s", device->label, failure, strerror(-error));
	return error == -ENOMEM ? error : -EIO;
}

/* Some file systems cannot allocate ahead; then the writes themselves can be -ENOSPC. */
static int disk_file_allocate(int fd, uint64_t bytes)
{
	if (fallocate(fd, 0, 0, (off_t)bytes) == 0)
		return 0;
	return errno != EOPNOTSUPP || ftruncate(fd, (off_t)bytes) < 0 ? -errno : 0;
}

int disk_chunk_new(struct device *device, uint64_t bytes, struct chunk **chunk)
{
	int dir = device->backend->disk_dir, fd = dir < 0 ? -ENOSPC : disk_file_make(dir), rc;

	if (fd >= 0) {
		fd = descriptor_unreserved(DESCRIPTOR_MEMORY, fd);
		fd = fd < 0 ? -errno : fd;
	}
	if (fd < 0)
		return disk_error(device, "cannot create a file", fd);
	rc = disk_file_allocate(fd, bytes);
	if (rc < 0) {
		close(fd);
		return disk_error(device, "cannot allocate", rc);
	}
	struct disk_chunk *new_chunk = disk_chunk_make(device, bytes, fd);

	if (!new_chunk) {
		close(fd);
		return -ENOMEM;
	}
	*chunk = &new_chunk->chunk;
	return 0;
}

int disk_chunk_import(struct device *device, uint64_t bytes, int fd, struct chunk **chunk)
{
	struct stat st;

	if (fstat(fd, &st) < 0 || !S_ISREG(st.st_mode) || (uint64_t)st.st_size != bytes) {
		log_error("%s: not a file of %" PRIu64 " bytes", device->label, bytes);
		return -EINVAL;
	}
	struct disk_chunk *new_chunk = disk_chunk_make(device, bytes, fd);

	if (!new_chunk)
		return -ENOMEM;
	*chunk = &new_chunk->chunk;
	return 0;
}

int disk_chunk_export(struct chunk *chunk, int *fd)
{
	int copy = fcntl(disk_chunk(chunk)->fd, F_DUPFD_CLOEXEC, 0);

	if (copy < 0)
		return -errno;
	*fd = copy;
	return 0;
}

void disk_chunk_free(struct chunk *chunk)
{
	close(disk_chunk(chunk)->fd);
	free(disk_chunk(chunk));
}

/* The kernel reports an error of its write-back to nobody who could still keep the bytes, so each
 * write waits for the disk. */
static int disk_file_write(int fd, const char *from, size_t bytes, uint64_t offset)
{
	while (bytes) {
		struct iovec piece = {.iov_base = (char *)from, .iov_len = bytes};
		ssize_t n = pwritev2(fd, &piece, 1, (off_t)offset, RWF_DSYNC);

		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			return n < 0 ? -errno : -ENOSPC;
		from += n;
		offset += (uint64_t)n;
		bytes -= (size_t)n;
	}
	return 0;
}

int disk_write(const struct span *to, uint64_t offset, const void *from, size_t bytes)
{
	int rc = disk_file_write(disk_chunk(to->chunk)->fd, from, bytes, to->offset + offset);

	return rc < 0 ? disk_error(to->chunk->device, "write error", rc) : 0;
}

int disk_read(const struct span *from, uint64_t offset, void *to, size_t bytes)
{
	uint64_t bytes_done = 0;
	int rc =
	    io_read_at(disk_chunk(from->chunk)->fd, to, bytes, from->offset + offset, &bytes_done);

	if (rc == 0 && bytes_done < bytes)
		rc = -EIO;
	return rc < 0 ? disk_error(from->chunk->device, "read error", rc) : 0;
}

int disk_zero(const struct span *to, uint64_t offset, uint64_t bytes)
{
	static const char zeroes[64 << 10];
	uint64_t at = to->offset + offset, end = at + bytes;
	int fd = disk_chunk(to->chunk)->fd, rc = 0;

	if (fallocate(fd, FALLOC_FL_ZERO_RANGE, (off_t)at, (off_t)bytes) == 0)
		return 0;
	for (uint64_t step; rc == 0 && at < end; at += step) {
		step = end - at < sizeof(zeroes) ? end - at : sizeof(zeroes);
		rc = disk_file_write(fd, zeroes, step, at);
	}
	return rc < 0 ? disk_error(to->chunk->device, "write error", rc) : 0;
}
