/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* The public functions for files. */
#include "client/lib/gpumem.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "backend/stream/stream.h"
#include "client/core/beneath.h"
#include "client/core/error.h"
#include "client/core/mount.h"
#include "client/core/process.h"
#include "client/lib/create.h"
#include "client/lib/drop.h"
#include "client/lib/file.h"
#include "client/lib/listener.h"
#include "client/lib/park.h"
#include "client/lib/safe_point.h"
#include "common/cleanup.h"

#define INFO_BYTES_MIN (offsetof(struct gpumem_info, bytes) + sizeof(size_t))

_Static_assert((int)GPUMEM_FILE_DEVICE == (int)GPUMEM_KIND_DEVICE &&
		   (int)GPUMEM_FILE_HOST == (int)GPUMEM_KIND_HOST &&
		   (int)GPUMEM_FILE_SIMULATED == (int)GPUMEM_KIND_MEMFD &&
		   (int)GPUMEM_FILE_VULKAN == (int)GPUMEM_KIND_VULKAN,
	       "kinds are those of the protocol");

/* What the functions that open files return. */
static gpumem *file_opened(int rc, struct gpumem *file)
{
	if (client_errno_return(rc) < 0)
		return NULL;
	client_listen_file(file);
	return file;
}

gpumem *gpumem_open(const char *path, int flags)
{
	struct gpumem *file = NULL;

	CLIENT_CALL();
	int rc = client_file_open(path, flags, &file);

	return file_opened(rc, file);
}

gpumem *gpumem_create(const char *path, size_t bytes, size_t alignment, mode_t mode, int flags)
{
	struct gpumem *file = NULL;

	CLIENT_CALL();
	int rc = client_create(path, bytes, alignment, mode, flags, &file);

	return file_opened(rc, file);
}

int gpumem_publish(gpumem *file)
{
	CLIENT_CALL();
	scoped_lock(&file->lock);
	return client_errno_return(client_publish(file));
}

static int file_drop_leases(const char *path, uint64_t *leases)
{
	AUTO_CLOSE int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK);

	if (fd < 0)
		return client_fail(errno, "%s: %s", path, strerror(errno));
	int rc = client_file_check(fd);

	return rc < 0 ? rc : client_drop_leases(fd, leases);
}

int gpumem_drop_leases(const char *path, uint64_t *leases)
{
	uint64_t dropped = 0;

	CLIENT_CALL();
	int rc = file_drop_leases(path, &dropped);

	if (rc == 0 && leases)
		*leases = dropped;
	return client_errno_return(rc);
}

/* An O_PATH descriptor of the same file. */
static int path_descriptor_open(int fd)
{
	char path[BENEATH_THROUGH_MAX];
	int path_fd = open(beneath_through(fd, path), O_PATH | O_CLOEXEC);
	return path_fd >= 0 ? path_fd : client_fail(errno, "%s: %s", path, strerror(errno));
}

static int file_open_descriptor(int fd, struct gpumem **file)
{
	int flags = fcntl(fd, F_GETFL);
	if (flags < 0)
		return client_fail(errno, "%s", strerror(errno));
	if (flags & O_PATH || (flags & O_ACCMODE) == O_WRONLY)
		return client_fail(EBADF, "the descriptor is not open for reading");
	int rc = client_file_check(fd);
	if (rc < 0)
		return rc;
	int path_fd = path_descriptor_open(fd);
	if (path_fd < 0)
		return path_fd;
	return client_file_new(path_fd, CLIENT_FD_PATH, flags & O_ACCMODE, fd, file);
}

gpumem *gpumem_open_fd(int fd)
{
	struct gpumem *file = NULL;

	CLIENT_CALL();
	int rc = file_open_descriptor(fd, &file);

	return file_opened(rc, file);
}

int gpumem_close(gpumem *file)
{
	if (!file)
		return 0;
	client_end_forget(file);
	CLIENT_CALL();
	return client_errno_return(client_file_free(file));
}

static void info_fill(const struct gpumem *file, struct gpumem_info *info)
{
	const struct client_layout *layout = &file->layout;

	info->size = layout->size;
	info->mappable = layout->bytes - layout->skip;
	info->mapped = file->device.mapped ? file->device.mapped - layout->skip : 0;
	info->host_mapped = file->host.range.mapped ? file->host.range.mapped - layout->skip : 0;
	info->n_chunks = layout->n_chunks;
	info->kind = layout->kind;
	info->flags = (layout->flags & GPUMEM_LAYOUT_PRIVATE ? GPUMEM_INFO_PRIVATE : 0) |
		      (layout->flags & GPUMEM_LAYOUT_READ_ONLY ? GPUMEM_INFO_READ_ONLY : 0) |
		      (layout->kind == GPUMEM_KIND_HOST ? GPUMEM_INFO_HOST : 0);
	info->device = layout->device;
	memcpy(info->uuid, layout->uuid, sizeof(info->uuid));
	if (file->host.range.base)
		strncpy(info->provider, client_file_ops(file)->host_provider(&file->host),
			sizeof(info->provider) - 1);
	const struct client_gpu_ops *driver = file->device.vendor;
	info->number = driver && driver->device_number ? driver->device_number(&file->device) : -1;
	if (driver)
		strncpy(info->driver, driver->name, sizeof(info->driver) - 1);
	info->filesystem = file->identity.device;
	info->inode = file->identity.inode;
}

static int file_get_info(struct gpumem *file, struct gpumem_info *info)
{
	struct gpumem_info filled = {.bytes = info->bytes};

	if (info->bytes < INFO_BYTES_MIN)
		return client_fail(EINVAL, "info->bytes is not set to sizeof(struct gpumem_info)");
	scoped_lock(&file->lock);
	int rc = client_file_renew(file);
	if (rc < 0)
		return rc;
	info_fill(file, &filled);
	if (info->bytes > sizeof(filled))
		memset((char *)info + sizeof(filled), 0, info->bytes - sizeof(filled));
	memcpy(info, &filled, info->bytes < sizeof(filled) ? info->bytes : sizeof(filled));
	return 0;
}

int gpumem_get_info(gpumem *file, struct gpumem_info *info)
{
	CLIENT_CALL();
	return client_errno_return(file_get_info(file, info));
}

/* Under the file's lock. */
static int file_ready_to_map(struct gpumem *file)
{
	int rc = client_file_renew(file);

	if (rc == 0 && file->layout.size == 0)
		rc = client_fail(EINVAL, "the file is empty: there is nothing to map");
	return rc;
}

/* Bytes of the file that are mapped: fewer than its size if the mapping could not grow. */
static size_t file_mapped_bytes(const struct gpumem *file, size_t mapped)
{
	return file->layout.size < mapped - file->layout.skip ? file->layout.size
							      : mapped - file->layout.skip;
}

static int file_map_device(struct gpumem *file, unsigned long long *address, size_t *bytes)
{
	scoped_lock(&file->lock);

	int rc = file_ready_to_map(file);
	if (rc == 0)
		rc = client_file_ops(file)->device_map(&file->device, &file->layout);
	if (rc < 0)
		return rc;
	*address = file->device.base + file->layout.skip;
	if (bytes)
		*bytes = file_mapped_bytes(file, file->device.mapped);
	return 0;
}

int gpumem_map_device(gpumem *file, unsigned long long *address, size_t *bytes)
{
	CLIENT_CALL();
	int rc = file_map_device(file, address, bytes);

	if (rc == 0)
		client_safe_points_begin();
	return client_errno_return(rc);
}

int gpumem_unmap_device(gpumem *file)
{
	CLIENT_CALL();
	scoped_lock(&file->lock);
	return client_errno_return(client_file_unmap_device(file));
}

static int file_map_host(struct gpumem *file, void **address, size_t *bytes)
{
	scoped_lock(&file->lock);

	int rc = file_ready_to_map(file);
	if (rc == 0)
		rc = client_file_ops(file)->host_map(&file->host, &file->layout, file->fd);
	if (rc < 0)
		return rc;
	*address = (char *)file->host.range.base + file->layout.skip;
	if (bytes)
		*bytes = file_mapped_bytes(file, file->host.range.mapped);
	return 0;
}

int gpumem_map_host(gpumem *file, void **address, size_t *bytes)
{
	CLIENT_CALL();
	return client_errno_return(file_map_host(file, address, bytes));
}

int gpumem_unmap_host(gpumem *file)
{
	CLIENT_CALL();
	scoped_lock(&file->lock);
	client_file_ops(file)->host_unmap(&file->host);
	return 0;
}

int gpumem_extend(gpumem *file)
{
	CLIENT_CALL();
	scoped_lock(&file->lock);
	return client_errno_return(client_file_extend(file));
}

int gpumem_park(gpumem *file)
{
	CLIENT_CALL();
	scoped_lock(&file->lock);
	return client_errno_return(client_park(file));
}

int gpumem_unpark(gpumem *file)
{
	CLIENT_CALL();
	scoped_lock(&file->lock);
	int rc = client_unpark(file);

	return rc > 0 ? rc : client_errno_return(rc);
}

int gpumem_flush(gpumem *file)
{
	CLIENT_CALL();
	scoped_lock(&file->lock);
	stream_fence();
	const struct client_gpu_ops *ops = client_file_ops(file);
	if (ops->flush)
		ops->flush(&file->host, &file->device);
	return 0;
}

const char *gpumem_error(void)
{
	return client_error_text();
}

const char *gpumem_version(void)
{
	return GPUMEM_VERSION;
}
