/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* Chunks: physical allocations, each mapped into the reserved address range of its device. */
#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <unistd.h>

#include "backend/cuda/ipc.h"
#include "backend/cuda/provider.h"
#include "common/cleanup.h"
#include "common/log.h"

/* Address space is free: with twice the memory reserved, there is nearly always a hole for a chunk
 * that fits into memory. */
#define RANGE_FACTOR 2

/* Most descriptors of exported chunks to keep: a process may have few. */
#define EXPORTS_KEPT_MAX 1024

/* Under device->lock. */
static int range_open(struct cuda_device *device)
{
	const struct cuda_driver *cu = &device->cuda->cu;
	uint64_t total = device->base.total;
	uint64_t bytes = RANGE_FACTOR * ((total + CHUNK_ALIGN - 1) / CHUNK_ALIGN * CHUNK_ALIGN);

	int rc = va_init(&device->va, bytes);
	if (rc < 0)
		return rc;
	gm_CUdeviceptr range;
	gm_CUresult result = cu->cuMemAddressReserve(&range, bytes, CHUNK_ALIGN, 0, 0);
	if (result != GM_CUDA_SUCCESS) {
		va_destroy(&device->va);
		rc = cuda_result(device, result, "cuMemAddressReserve");
		return rc == -ENOSPC ? -ENOMEM : rc;
	}
	device->range = range;
	device->range_bytes = bytes;
	return 0;
}

void cuda_range_close(struct cuda_device *device)
{
	if (device->range)
		device->cuda->cu.cuMemAddressFree(device->range, device->range_bytes);
	device->range = 0;
	va_destroy(&device->va);
}

static int address_alloc(struct cuda_device *device, uint64_t bytes, gm_CUdeviceptr *address)
{
	scoped_lock(&device->lock);

	int rc = device->range ? 0 : range_open(device);
	if (rc < 0)
		return rc;
	uint64_t offset;
	rc = va_alloc(&device->va, bytes, &offset);
	if (rc < 0)
		return rc;
	*address = device->range + offset;
	return 0;
}

static void address_free(struct cuda_device *device, gm_CUdeviceptr address, uint64_t bytes)
{
	scoped_lock(&device->lock);
	va_free(&device->va, address - device->range, bytes);
}

/* System memory near the device. Its pages need no flag for other devices to reach them. */
static void prop_set_host(gm_CUmemAllocationProp *prop, const struct cuda_device *device)
{
	prop->location.type = GM_CU_MEM_LOCATION_TYPE_HOST_NUMA;
	prop->location.id = device->numa_node;
	prop->allocFlags.gpuDirectRDMACapable = 0;
}

static int memory_create(struct cuda_device *device, enum memory_place place, uint64_t bytes,
			 gm_CUmemGenericAllocationHandle *handle)
{
	gm_CUmemAllocationProp prop = {
	    .type = GM_CU_MEM_ALLOCATION_TYPE_PINNED,
	    .requestedHandleTypes = GM_CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
	    .location = {.type = GM_CU_MEM_LOCATION_TYPE_DEVICE, .id = device->handle},
	    .allocFlags.gpuDirectRDMACapable = device->rdma,
	};

	if (place == PLACE_HOST)
		prop_set_host(&prop, device);

	return cuda_result(device, device->cuda->cu.cuMemCreate(handle, bytes, &prop, 0),
			   "cuMemCreate");
}

/* For the owner, and for the CPU if the memory is the system's: access of the peers takes longer,
 * and is granted later (peers.h). */
static int access_grant(struct cuda_device *device, enum memory_place place, gm_CUdeviceptr address,
			uint64_t bytes)
{
	const gm_CUmemAccessDesc access[] = {
	    {
		.location = {.type = GM_CU_MEM_LOCATION_TYPE_DEVICE, .id = device->handle},
		.flags = GM_CU_MEM_ACCESS_FLAGS_PROT_READWRITE,
	    },
	    {
		.location = {.type = GM_CU_MEM_LOCATION_TYPE_HOST_NUMA, .id = device->numa_node},
		.flags = GM_CU_MEM_ACCESS_FLAGS_PROT_READWRITE,
	    },
	};

	return cuda_result(
	    device,
	    device->cuda->cu.cuMemSetAccess(address, bytes, access, place == PLACE_HOST ? 2 : 1),
	    "cuMemSetAccess");
}

/* The driver refuses to unmap on a failed device. Then the range stays allocated and the device
 * held, so that no chunk is mapped over a mapping that may still exist. */
static void address_unmap(struct cuda_device *device, gm_CUdeviceptr address, uint64_t bytes)
{
	gm_CUresult result = device->cuda->cu.cuMemUnmap(address, bytes);
	if (cuda_result(device, result, "cuMemUnmap") == 0)
		address_free(device, address, bytes);
	else
		cuda_hold(device);
}

static int chunk_map(struct cuda_device *device, struct cuda_chunk *chunk)
{
	uint64_t bytes = chunk->base.bytes;

	gm_CUdeviceptr address = 0;
	int rc = address_alloc(device, bytes, &address);
	if (rc < 0)
		return rc;
	gm_CUresult result = device->cuda->cu.cuMemMap(address, bytes, 0, chunk->handle, 0);
	rc = cuda_result(device, result, "cuMemMap");
	if (rc < 0) {
		address_free(device, address, bytes);
		return rc;
	}
	rc = access_grant(device, chunk->base.place, address, bytes);
	if (rc < 0) {
		address_unmap(device, address, bytes);
		return rc;
	}
	chunk->usable = bytes;
	atomic_store_explicit(&chunk->address, address, memory_order_release);
	peers_add(chunk);
	return 0;
}

void cuda_chunk_unmap(struct cuda_chunk *chunk)
{
	struct cuda_device *device = cuda_device(chunk->base.device);

	if (chunk->address && !chunk->handle)
		cuda_ipc_close(device, chunk->address);
	else if (chunk->address)
		address_unmap(device, chunk->address, chunk->base.bytes);
	chunk->address = 0;
}

static int memory_import(struct cuda_device *device, int fd,
			 gm_CUmemGenericAllocationHandle *handle)
{
	gm_CUresult result = device->cuda->cu.cuMemImportFromShareableHandle(
	    handle, (void *)(intptr_t)fd, GM_CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);

	return cuda_result(device, result, "cuMemImportFromShareableHandle");
}

static int chunk_reimport(struct cuda_device *device, struct cuda_chunk *chunk)
{
	gm_CUmemGenericAllocationHandle handle, old_handle = chunk->handle;
	int fd = atomic_load(&chunk->exported);
	int rc = fd < 0 ? -ENOENT : memory_import(device, fd, &handle);

	if (rc < 0)
		return rc;
	chunk->handle = handle;
	rc = chunk_map(device, chunk);
	if (rc < 0)
		chunk->handle = old_handle;
	device->cuda->cu.cuMemRelease(rc < 0 ? handle : old_handle);
	return rc;
}

int cuda_chunk_remap(struct cuda_chunk *chunk)
{
	struct cuda_device *device = cuda_device(chunk->base.device);

	cuda_chunk_unmap(chunk);
	int rc = chunk_map(device, chunk);

	return rc == 0 || rc == -ENOMEM || rc == -ENOSPC ? rc : chunk_reimport(device, chunk);
}

/* -EINVAL: fd is no memory of this device. */
static int memory_import_foreign(struct cuda_device *device, int fd,
				 gm_CUmemGenericAllocationHandle *handle)
{
	const struct cuda_driver *cu = &device->cuda->cu;
	gm_CUmemAllocationProp prop = {0};
	int rc = cuda_import_result(
	    device,
	    cu->cuMemImportFromShareableHandle(handle, (void *)(intptr_t)fd,
					       GM_CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR),
	    "cuMemImportFromShareableHandle");

	if (rc < 0)
		return rc;
	if (cu->cuMemGetAllocationPropertiesFromHandle(&prop, *handle) == GM_CUDA_SUCCESS &&
	    prop.location.type == GM_CU_MEM_LOCATION_TYPE_DEVICE &&
	    prop.location.id == device->handle)
		return 0;
	cu->cuMemRelease(*handle);
	return -EINVAL;
}

/* On failure the handle is released. */
static int chunk_map_or_release(struct cuda_device *device, struct cuda_chunk *chunk,
				gm_CUmemGenericAllocationHandle handle)
{
	chunk->handle = handle;
	int rc = chunk_map(device, chunk);

	if (rc < 0) {
		device->cuda->cu.cuMemRelease(handle);
		chunk->handle = 0;
	}
	return rc;
}

static int chunk_import_foreign_now(struct cuda_device *device, struct cuda_chunk *chunk, int fd)
{
	gm_CUmemGenericAllocationHandle handle = 0;
	gm_CUdeviceptr address;
	int rc = cuda_ipc_open(device, fd, chunk->base.bytes, &address, &chunk->usable);

	if (rc == -ENOENT) {
		rc = memory_import_foreign(device, fd, &handle);
		return rc < 0 ? rc : chunk_map_or_release(device, chunk, handle);
	}
	if (rc == 0)
		atomic_store_explicit(&chunk->address, address, memory_order_release);
	return rc;
}

static int chunk_fill(struct cuda_device *device, struct cuda_chunk *chunk,
		      enum chunk_origin origin, int fd)
{
	gm_CUmemGenericAllocationHandle handle = 0;

	if (origin == CHUNK_FOREIGN_LATER)
		return 0;
	int rc = cuda_context_use(device);

	if (rc == 0 && origin == CHUNK_FOREIGN)
		return chunk_import_foreign_now(device, chunk, fd);
	if (rc == 0)
		rc = origin == CHUNK_NEW
			 ? memory_create(device, chunk->base.place, chunk->base.bytes, &handle)
			 : memory_import(device, fd, &handle);
	return rc < 0 ? rc : chunk_map_or_release(device, chunk, handle);
}

static int chunk_make(struct cuda_device *device, enum memory_place place, uint64_t bytes,
		      enum chunk_origin origin, int fd, struct chunk **chunk)
{
	AUTO_FREE struct cuda_chunk *new_chunk = calloc(1, sizeof(*new_chunk));
	if (!new_chunk)
		return -ENOMEM;
	new_chunk->base.device = &device->base;
	new_chunk->base.bytes = bytes;
	new_chunk->base.place = place;
	atomic_init(&new_chunk->exported, fd);
	int rc = chunk_fill(device, new_chunk, origin, fd);
	if (rc < 0)
		return rc;
	*chunk = &new_chunk->base;
	new_chunk = NULL;
	return 0;
}

int cuda_chunk_new(struct device *base, enum memory_place place, uint64_t bytes,
		   struct chunk **chunk)
{
	struct cuda_device *device = cuda_device(base);

	cuda_hold(device);
	int rc = chunk_make(device, place, bytes, CHUNK_NEW, -1, chunk);
	if (rc < 0)
		cuda_drop(device);
	return rc;
}

/* An imported chunk has no exportable handle: its descriptor is kept even beyond the limit. */
static int chunk_import_any(struct device *base, enum memory_place place, uint64_t bytes,
			    enum chunk_origin origin, int fd, struct chunk **chunk)
{
	struct cuda_device *device = cuda_device(base);

	cuda_hold(device);
	int rc = chunk_make(device, place, bytes, origin, fd, chunk);
	if (rc < 0)
		cuda_drop(device);
	else
		atomic_fetch_add(&device->cuda->exports_kept, 1);
	return rc;
}

int cuda_chunk_import(struct device *base, enum memory_place place, uint64_t bytes, int fd,
		      struct chunk **chunk)
{
	return chunk_import_any(base, place, bytes, CHUNK_OURS, fd, chunk);
}

/* The driver maps memory as a whole only, so cuMemMap refuses another size. */
int cuda_chunk_import_foreign(struct device *base, uint64_t bytes, int fd, enum chunk_origin origin,
			      struct chunk **chunk)
{
	int rc = chunk_import_any(base, PLACE_GPU, bytes, origin, fd, chunk);

	return rc == -ENOTSUP ? -EINVAL : rc;
}

int cuda_chunk_need(struct cuda_chunk *chunk)
{
	struct cuda_device *device = cuda_device(chunk->base.device);
	int rc;

	if (atomic_load_explicit(&chunk->address, memory_order_acquire))
		return 0;
	/* The reset waits for the copier's lock, and afterwards finds no use of the device. */
	if (atomic_load(&chunk->base.lost) || atomic_load(&device->base.failed))
		return -EIO;
	scoped_lock(&device->import_lock);
	rc = cuda_context_use(device);
	if (rc == 0 && !chunk->address)
		rc = chunk_import_foreign_now(device, chunk, atomic_load(&chunk->exported));
	if ((rc == -EINVAL || rc == -ENOTSUP) && !atomic_load(&device->base.failed)) {
		atomic_store(&chunk->base.lost, true);
		log_warn("%s: memory of %" PRIu64 " bytes that another program shared cannot be "
			 "used: the program has freed it, or gave another descriptor",
			 device->base.label, chunk->base.bytes);
	}
	if (rc == -ENOSPC)
		return -ENOMEM;
	return rc == 0 || rc == -ENOMEM ? rc : -EIO;
}

static void export_drop(struct cuda_device *device, struct cuda_chunk *chunk)
{
	int exported = atomic_load(&chunk->exported);

	if (exported < 0)
		return;
	close(exported);
	atomic_fetch_sub(&device->cuda->exports_kept, 1);
}

void cuda_chunk_free(struct chunk *base)
{
	struct cuda_chunk *chunk = cuda_chunk(base);
	struct cuda_device *device = cuda_device(base->device);

	assert(!chunk->mapping);
	peers_remove(chunk);
	export_drop(device, chunk);
	if (chunk->handle || chunk->address)
		cuda_context_use(device); /* on a failed device the memory is freed all the same */
	cuda_chunk_unmap(chunk);
	if (chunk->handle)
		cuda_result(device, device->cuda->cu.cuMemRelease(chunk->handle), "cuMemRelease");
	peers_drop(chunk);
	free(chunk);
	cuda_drop(device);
}

static int export_new(struct cuda_device *device, struct cuda_chunk *chunk, int *fd)
{
	/* Not for the export, but for the error of whichever context is current to this thread. */
	int exported, rc = cuda_context_use(device);
	if (rc < 0)
		return rc;
	gm_CUresult result = device->cuda->cu.cuMemExportToShareableHandle(
	    &exported, chunk->handle, GM_CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0);
	rc = cuda_result(device, result, "cuMemExportToShareableHandle");
	if (rc < 0)
		return rc == -ENOSPC ? -EMFILE : rc;
	fcntl(exported, F_SETFD, FD_CLOEXEC);
	*fd = exported;
	return 0;
}

static int descriptor_duplicate(int source, int *fd)
{
	int duplicate = fcntl(source, F_DUPFD_CLOEXEC, 0);

	if (duplicate < 0)
		return -errno;
	*fd = duplicate;
	return 0;
}

static bool export_keep(struct cuda_device *device, struct cuda_chunk *chunk, int fd)
{
	atomic_uint *n_exports = &device->cuda->exports_kept;
	int expected = -1;

	if (atomic_fetch_add(n_exports, 1) < EXPORTS_KEPT_MAX &&
	    atomic_compare_exchange_strong(&chunk->exported, &expected, fd))
		return true;
	atomic_fetch_sub(n_exports, 1);
	return false;
}

/* A duplicate can be imported like the original, and takes 1 us; an export takes 33. */
int cuda_chunk_export(struct chunk *base, int *fd)
{
	struct cuda_chunk *chunk = cuda_chunk(base);
	struct cuda_device *device = cuda_device(base->device);
	int exported = atomic_load(&chunk->exported);

	if (atomic_load(&device->base.failed))
		return -EIO;
	if (exported >= 0)
		return descriptor_duplicate(exported, fd);
	int rc = export_new(device, chunk, fd);
	if (rc < 0 || descriptor_duplicate(*fd, &exported) < 0)
		return rc;
	if (!export_keep(device, chunk, exported))
		close(exported);
	return 0;
}
