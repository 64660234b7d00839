/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* A process gives a file's memory back for a while: the lease ends, the handles and mappings go,
 * and the ranges of addresses stay reserved. */
#include "client/lib/park.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>

#include "backend/stream/stream.h"
#include "client/core/error.h"
#include "client/lib/file.h"

/* The daemon's present size and mtime, by which a change is noticed. */
static int file_stamp(const struct gpumem *file, struct client_stamp *stamp)
{
	struct statx st;

	if (statx(file->fd, "", AT_EMPTY_PATH | AT_STATX_FORCE_SYNC, STATX_SIZE | STATX_MTIME,
		  &st) < 0)
		return client_fail(errno, "%s", strerror(errno));
	*stamp = (struct client_stamp){
	    .size = st.stx_size, .seconds = st.stx_mtime.tv_sec, .ns = st.stx_mtime.tv_nsec};
	return 0;
}

static bool stamps_are_equal(const struct client_stamp *a, const struct client_stamp *b)
{
	return a->size == b->size && a->seconds == b->seconds && a->ns == b->ns;
}

int client_may_park(const struct gpumem *file)
{
	const struct client_gpu_ops *ops = client_file_ops(file);

	if (!file->connection)
		return client_fail(EINVAL, "the lease belongs to the parent of this process");
	if (file->pending)
		return client_fail(EBUSY, "the file has no name yet");
	if (file->layout.kind == GPUMEM_KIND_HOST)
		return client_fail(ENOTSUP, "a file of host/ has no memory of a GPU to give back");
	if (file->layout.flags & GPUMEM_LAYOUT_PRIVATE)
		return client_fail(ENOTSUP, "a private copy lasts only as long as its lease");
	if (file->exported)
		return client_fail(ENOTSUP, "the program has exported the file's memory, and may "
					    "use imports of it: close the file");
	struct ipc_memory of_malloc;

	if (file->device.vendor && client_layout_of_malloc(&file->layout, &of_malloc))
		return client_fail(ENOTSUP, "the mapping of memory of another process's cudaMalloc "
					    "cannot be made again at its address");
	if (file->device.vendor && (!ops->device_park || (file->layout.kind == GPUMEM_KIND_VULKAN &&
							  !file->device.vendor->device_park)))
		return client_fail(ENOTSUP, "this mapping cannot be made again at its address");
	return 0;
}

int client_mappings_give(struct gpumem *file)
{
	const struct client_gpu_ops *ops = client_file_ops(file);

	if (file->host.range.base)
		ops->host_park(&file->host);
	return file->device.vendor ? ops->device_park(&file->device, &file->layout) : 0;
}

int client_mappings_take(struct gpumem *file)
{
	const struct client_gpu_ops *ops = client_file_ops(file);
	int rc = file->device.vendor ? ops->device_extend(&file->device, &file->layout) : 0;

	if (rc == 0 && file->host.range.base)
		rc = ops->host_extend(&file->host, &file->layout);
	return rc;
}

void client_lease_give(struct gpumem *file)
{
	client_layout_cut(&file->layout, 0);
	client_connection_release(file->connection, file->layout.lease);
	file->connection = NULL;
	file->layout.lease = 0;
	file->parked = true;
}

int client_park(struct gpumem *file)
{
	file->on_request = false;
	if (file->parked)
		return 0;
	int rc = client_may_park(file);
	if (rc < 0)
		return rc;
	stream_fence();
	rc = client_mappings_give(file);
	client_lease_give(file);
	/* After the lease: its end moves mtime. */
	if (file_stamp(file, &file->stamp) < 0)
		file->stamp = (struct client_stamp){.size = UINT64_MAX};
	return rc;
}

/* The mappings as before, or none of the memory. */
static int mappings_return(struct gpumem *file)
{
	if (file->layout.size == 0 && file->stamp.size)
		return client_fail(ESTALE, "the file was emptied, or removed");
	if (file->layout.size < file->size_min)
		return client_fail(ESTALE,
				   "the file was shortened to fewer than the arena's bytes");
	int rc = client_mappings_take(file);

	if (rc < 0 && file->device.vendor)
		client_file_ops(file)->device_park(&file->device, &file->layout);
	return rc;
}

int client_unpark(struct gpumem *file)
{
	struct client_stamp parked = file->stamp, now;

	if (!file->parked)
		return 0;
	file->parked = false;
	/* Before the lease, during which mtime moves. */
	int rc = file_stamp(file, &now);
	if (rc == 0)
		rc = client_file_renew(file);
	if (rc == 0)
		rc = mappings_return(file);
	if (rc < 0) {
		client_lease_give(file);
		return rc;
	}
	file->on_request = false;
	return stamps_are_equal(&parked, &now) ? GPUMEM_UNPARKED_SAME : GPUMEM_UNPARKED_CHANGED;
}
