/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* Chunks of a simulated GPU: memfds. */
#include <errno.h>
#include <fcntl.h>
#include <linux/magic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include "backend/host/host.h"
#include "common/log.h"
#include "common/system/descriptors.h"

/* System memory is bounded by the pool alone. */
static int count_bytes(struct host_device *device, enum memory_place place, uint64_t bytes)
{
	uint64_t used = atomic_load(&device->used);

	if (place == PLACE_HOST)
		return 0;

	do {
		if (used > device->device.total || bytes > device->device.total - used)
			return -ENOSPC;
	} while (!atomic_compare_exchange_weak(&device->used, &used, used + bytes));
	return 0;
}

static void uncount_bytes(struct host_device *device, enum memory_place place, uint64_t bytes)
{
	if (place == PLACE_GPU)
		atomic_fetch_sub(&device->used, bytes);
}

static int map_memfd(struct host_chunk *chunk, uint64_t bytes)
{
	void *base = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, chunk->fd, 0);
	if (base == MAP_FAILED)
		return -errno;
	(void)madvise(base, bytes,
		      MADV_HUGEPAGE); /* optional: kernels without THP for shmem refuse */
	chunk->base = base;
	return 0;
}

/* Sealed: if a client cut the memfd short, this process would get SIGBUS. */
static int memfd_set_size(int fd, uint64_t bytes)
{
	const int seals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL;

	return ftruncate(fd, (off_t)bytes) < 0 || fcntl(fd, F_ADD_SEALS, seals) < 0 ? -errno : 0;
}

static int make_memfd(struct host_chunk *chunk, uint64_t bytes)
{
	int fd = memfd_create("gpumemfs-chunk", MFD_CLOEXEC | MFD_ALLOW_SEALING);

	chunk->fd = descriptor_unreserved(DESCRIPTOR_MEMORY, fd);
	if (chunk->fd < 0)
		return errno == EMFILE || errno == ENFILE ? -ENOSPC : -errno;

	int rc = memfd_set_size(chunk->fd, bytes);
	if (rc == 0)
		rc = map_memfd(chunk, bytes);
	if (rc < 0)
		close(chunk->fd);
	return rc;
}

/* Users may cause this error without end: logged once. */
static void log_no_memfd(struct host_device *simulated, uint64_t bytes, int error)
{
	if (!atomic_exchange(&simulated->said_no_memfd, true))
		log_error("%s: no memfd of %llu bytes: %s; the daemon's limit of open files "
			  "(ulimit -Hn, LimitNOFILE=) may be too low",
			  simulated->device.label, (unsigned long long)bytes, strerror(-error));
}

int host_chunk_new(struct device *device, enum memory_place place, uint64_t bytes,
		   struct chunk **chunk)
{
	struct host_device *simulated = host_device(device);
	struct host_chunk *new_chunk = calloc(1, sizeof(*new_chunk));

	if (!new_chunk)
		return -ENOMEM;
	int rc = count_bytes(simulated, place, bytes);
	if (rc < 0) {
		free(new_chunk);
		return rc;
	}
	rc = make_memfd(new_chunk, bytes);
	if (rc < 0) {
		log_no_memfd(simulated, bytes, rc);
		uncount_bytes(simulated, place, bytes);
		free(new_chunk);
		return rc;
	}
	new_chunk->chunk.device = device;
	new_chunk->chunk.bytes = bytes;
	new_chunk->chunk.place = place;
	*chunk = &new_chunk->chunk;
	return 0;
}

int host_chunk_import(struct device *device, enum memory_place place, uint64_t bytes, int fd,
		      struct chunk **chunk)
{
	struct host_chunk *new_chunk = calloc(1, sizeof(*new_chunk));
	struct stat st;

	if (!new_chunk)
		return -ENOMEM;
	new_chunk->fd = fd;
	/* A shorter memfd would kill this process at the first access past its end. */
	int rc = fstat(fd, &st) < 0 || (uint64_t)st.st_size != bytes ? -EINVAL
								     : map_memfd(new_chunk, bytes);

	if (rc < 0) {
		log_error("%s: not a memfd of %llu bytes: %s", device->label,
			  (unsigned long long)bytes, strerror(-rc));
		free(new_chunk);
		return rc;
	}
	/* The memory exists already, even if the limit is lower now. */
	if (place == PLACE_GPU)
		atomic_fetch_add(&host_device(device)->used, bytes);
	new_chunk->chunk.device = device;
	new_chunk->chunk.bytes = bytes;
	new_chunk->chunk.place = place;
	*chunk = &new_chunk->chunk;
	return 0;
}

/* The seal against shortening allows holes, and no access to a hole fails but in huge pages: when
 * the system has no more of them, the access would kill this process. */
static bool memfd_is_safe(int fd)
{
	int seals = fcntl(fd, F_GET_SEALS);
	struct statfs system;

	return seals >= 0 && seals & F_SEAL_SHRINK && fstatfs(fd, &system) == 0 &&
	       system.f_type == TMPFS_MAGIC;
}

int host_chunk_import_foreign(struct device *device, uint64_t bytes, int fd,
			      enum chunk_origin origin, struct chunk **chunk)
{
	struct stat st;

	(void)origin;
	if (!memfd_is_safe(fd) || fstat(fd, &st) < 0 || (uint64_t)st.st_size != bytes)
		return -EINVAL;
	return host_chunk_import(device, PLACE_GPU, bytes, fd, chunk);
}

void host_chunk_free(struct chunk *chunk)
{
	struct host_chunk *freed = host_chunk(chunk);

	munmap(freed->base, chunk->bytes);
	close(freed->fd);
	uncount_bytes(host_device(chunk->device), chunk->place, chunk->bytes);
	free(freed);
}

int host_chunk_export(struct chunk *chunk, int *fd)
{
	int copy = fcntl(host_chunk(chunk)->fd, F_DUPFD_CLOEXEC, 0);

	if (copy < 0)
		return -errno;
	*fd = copy;
	return 0;
}

int host_bar_map(struct chunk *chunk, void **address)
{
	if (host_device(chunk->device)->bar_off && chunk->place == PLACE_GPU)
		return -ENOTSUP;
	*address = host_chunk(chunk)->base;
	return 0;
}

void host_bar_unmap(struct chunk *chunk, void *address)
{
	(void)chunk;
	(void)address;
}
