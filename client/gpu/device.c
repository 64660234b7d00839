/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* Memory of a GPU: the chunks imported side by side into one reserved range. None of these calls
 * needs a context; the current one says who wants access. */
#include "client/gpu/device.h"

#include <errno.h>

#include "client/core/error.h"

/* Access is kept by CUDA's number of a device, in a word. */
#define DEVICES_MAX 64

static gm_CUmemAccess_flags access_of(const struct client_layout *layout)
{
	return layout->flags & GPUMEM_LAYOUT_READ_ONLY ? GM_CU_MEM_ACCESS_FLAGS_PROT_READ
						       : GM_CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
}

/* For all devices of the set at once: access for one alone makes copies between it and others go
 * through the host. */
static int grant(const struct client_device_map *map, const struct client_layout *layout,
		 uint64_t devices, uint64_t from, uint64_t to)
{
	gm_CUmemAccessDesc access[DEVICES_MAX];
	size_t n = 0;

	for (int i = 0; i < DEVICES_MAX; i++)
		if (devices >> i & 1)
			access[n++] = (gm_CUmemAccessDesc){
			    .location = {.type = GM_CU_MEM_LOCATION_TYPE_DEVICE, .id = i},
			    .flags = access_of(layout),
			};
	if (from == to)
		return 0;
	return client_cuda_result(
	    map->cuda, map->cuda->cu.cuMemSetAccess(map->base + from, to - from, access, n),
	    "cuMemSetAccess");
}

static int import_chunk(const struct client_device_map *map, const struct client_chunk *chunk)
{
	const struct client_cuda *cuda = map->cuda;
	gm_CUmemGenericAllocationHandle handle;

	int rc = client_cuda_result(
	    cuda,
	    cuda->cu.cuMemImportFromShareableHandle(&handle, (void *)(intptr_t)chunk->fd,
						    GM_CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR),
	    "cuMemImportFromShareableHandle");
	if (rc < 0)
		return rc;
	rc = client_cuda_result(
	    cuda, cuda->cu.cuMemMap(map->base + chunk->offset, chunk->bytes, 0, handle, 0),
	    "cuMemMap");
	cuda->cu.cuMemRelease(handle); /* the mapping keeps the memory */
	return rc;
}

/* Chunks from first on, to the last one mapped; the first error. */
static int unmap_chunks(struct client_device_map *map, const struct client_layout *layout,
			uint32_t first)
{
	int rc = 0;

	for (uint32_t i = first; i < map->n_chunks; i++) {
		const struct client_chunk *chunk = &layout->chunks[i];
		int error = client_cuda_gave_back(
		    map->cuda, map->cuda->cu.cuMemUnmap(map->base + chunk->offset, chunk->bytes),
		    "cuMemUnmap");
		if (rc == 0)
			rc = error;
	}
	map->n_chunks = first;
	return rc;
}

static int map_chunks(struct client_device_map *map, const struct client_layout *layout)
{
	uint32_t had = map->n_chunks;
	int rc = 0;

	while (rc == 0 && map->n_chunks < layout->n_chunks) {
		rc = import_chunk(map, &layout->chunks[map->n_chunks]);
		if (rc == 0)
			map->n_chunks++;
	}
	if (rc == 0)
		rc = grant(map, layout, map->devices, map->mapped, layout->bytes);
	if (rc < 0)
		unmap_chunks(map, layout, had);
	else
		map->mapped = layout->bytes;
	return rc;
}

/* Which devices get access when this one asks: it, and the memory's own. */
static int devices_for(const struct client_cuda *cuda, const struct client_layout *layout,
		       gm_CUdevice device, uint64_t *devices)
{
	gm_CUdevice owner;
	int can = 0;

	int rc = client_cuda_find(cuda, layout->uuid, &owner);
	if (rc < 0)
		return rc;
	if (device >= DEVICES_MAX || owner >= DEVICES_MAX)
		return client_fail(ENOTSUP, "more than %d GPUs", DEVICES_MAX);
	if (device != owner &&
	    (cuda->cu.cuDeviceCanAccessPeer(&can, device, owner) != GM_CUDA_SUCCESS || !can))
		return client_fail(ENOTSUP,
				   "the current context's GPU cannot reach the memory of the "
				   "file's (gpu%u): no peer access between them",
				   layout->device);
	*devices = 1ULL << device | 1ULL << owner;
	return 0;
}

static int reserve(struct client_device_map *map, const struct client_layout *layout)
{
	size_t room = client_range_room(layout->bytes);

	gm_CUresult result = map->cuda->cu.cuMemAddressReserve(&map->base, room, 0, 0, 0);
	if (result != GM_CUDA_SUCCESS) {
		room = layout->bytes;
		result = map->cuda->cu.cuMemAddressReserve(&map->base, room, 0, 0, 0);
	}
	if (result == GM_CUDA_ERROR_OUT_OF_MEMORY)
		return client_fail(ENOMEM, "no GPU address space for a file of %llu bytes",
				   (unsigned long long)layout->size);
	map->reserved = room;
	return client_cuda_result(map->cuda, result, "cuMemAddressReserve");
}

static int map_new(struct client_device_map *map, const struct client_layout *layout,
		   const struct client_cuda *cuda, uint64_t devices)
{
	struct client_device_map made = {.cuda = cuda, .devices = devices};

	int rc = reserve(&made, layout);
	if (rc < 0)
		return rc;
	rc = map_chunks(&made, layout);
	if (rc < 0) {
		cuda->cu.cuMemAddressFree(made.base, made.reserved);
		return rc;
	}
	*map = made;
	return 0;
}

int client_device_map(struct client_device_map *map, const struct client_layout *layout)
{
	const struct client_cuda *cuda;
	gm_CUdevice device;
	uint64_t devices = 0;

	int rc = client_cuda_get(&cuda);
	if (rc == 0)
		rc = client_cuda_current(cuda, &device);
	if (rc == 0)
		rc = devices_for(cuda, layout, device, &devices);
	if (rc < 0)
		return rc;
	if (!map->cuda)
		return map_new(map, layout, cuda, devices);
	if ((map->devices & devices) == devices)
		return 0;
	rc = grant(map, layout, map->devices | devices, 0, map->mapped);
	if (rc == 0)
		map->devices |= devices;
	return rc;
}

int client_device_extend(struct client_device_map *map, const struct client_layout *layout)
{
	if (layout->bytes > map->reserved)
		return client_fail(ENOSPC, "the file has outgrown the room behind its device "
					   "address: unmap it and map it again");
	return map_chunks(map, layout);
}

int client_device_unmap(struct client_device_map *map, const struct client_layout *layout)
{
	const struct client_cuda *cuda = map->cuda;

	int rc = unmap_chunks(map, layout, 0);
	int freed = client_cuda_gave_back(cuda, cuda->cu.cuMemAddressFree(map->base, map->reserved),
					  "cuMemAddressFree");
	*map = (struct client_device_map){0};
	return rc < 0 ? rc : freed;
}
