/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* Device addresses of GPU memory: the chunks are imported side by side into one reserved range.
 * None of these driver calls needs a context; the current context tells which device wants access.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "client/core/error.h"
#include "client/gpu/cuda_ops.h"
#include "common/system/ipc_memory.h"

/* A set of devices is a word: the bit is CUDA's number of the device. */
#define DEVICES_MAX 64

struct device_map {
	struct cuda_map head; /* first; no pins */
	gm_CUdeviceptr base;
	gm_CUdeviceptr opened; /* of cudaMalloc: the allocation, in no range of ours; else 0 */
	gm_CUcontext context;  /* that opened it */
	unsigned long long id; /* of the context: another one may get the pointer */
	size_t mapped, reserved;
	uint32_t n_chunks;
	uint64_t devices; /* that have access, by CUDA's number */
};

static gm_CUmemAccess_flags layout_access(const struct client_layout *layout)
{
	return layout->flags & GPUMEM_LAYOUT_READ_ONLY ? GM_CU_MEM_ACCESS_FLAGS_PROT_READ
						       : GM_CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
}

/* Gives all devices of the set access in a single call: with access for a device alone, copies
 * between that device and the rest go through the host. */
static int access_grant(const struct device_map *map, const struct client_layout *layout,
			uint64_t devices, uint64_t from, uint64_t to)
{
	gm_CUmemAccessDesc access[DEVICES_MAX];
	size_t n = 0;

	for (int i = 0; i < DEVICES_MAX; i++)
		if (devices >> i & 1)
			access[n++] = (gm_CUmemAccessDesc){
			    .location = {.type = GM_CU_MEM_LOCATION_TYPE_DEVICE, .id = i},
			    .flags = layout_access(layout),
			};
	if (from == to)
		return 0;
	return client_cuda_result(
	    map->head.cuda,
	    map->head.cuda->cu.cuMemSetAccess(map->base + from, to - from, access, n),
	    "cuMemSetAccess");
}

static int chunk_import(const struct client_cuda *cuda, struct client_chunk *chunk)
{
	gm_CUmemGenericAllocationHandle handle;

	if (chunk->imported)
		return 0;
	int rc = client_cuda_result(
	    cuda,
	    cuda->cu.cuMemImportFromShareableHandle(&handle, (void *)(intptr_t)chunk->fd,
						    GM_CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR),
	    "cuMemImportFromShareableHandle");
	if (rc == 0)
		chunk->imported = handle;
	return rc;
}

static void chunk_release(const struct client_cuda *cuda, struct client_chunk *chunk)
{
	if (chunk->imported)
		cuda->cu.cuMemRelease(chunk->imported);
	chunk->imported = 0;
}

static int chunk_map(const struct device_map *map, struct client_chunk *chunk)
{
	const struct client_cuda *cuda = map->head.cuda;
	int rc = chunk_import(cuda, chunk);

	if (rc < 0)
		return rc;
	rc = client_cuda_result(
	    cuda, cuda->cu.cuMemMap(map->base + chunk->offset, chunk->bytes, 0, chunk->imported, 0),
	    "cuMemMap");
	chunk_release(cuda, chunk); /* the mapping keeps the memory */
	return rc;
}

/* Unmaps the chunks from first to the last mapped chunk. Gives the first error. */
static int chunks_unmap(struct device_map *map, const struct client_layout *layout, uint32_t first)
{
	int rc = 0;

	for (uint32_t i = first; i < map->n_chunks; i++) {
		const struct client_chunk *chunk = &layout->chunks[i];
		int error = client_cuda_gave_back(
		    map->head.cuda,
		    map->head.cuda->cu.cuMemUnmap(map->base + chunk->offset, chunk->bytes),
		    "cuMemUnmap");
		if (rc == 0)
			rc = error;
	}
	map->n_chunks = first;
	return rc;
}

static int chunks_map(struct device_map *map, const struct client_layout *layout)
{
	uint32_t had = map->n_chunks;
	int rc = 0;

	while (rc == 0 && map->n_chunks < layout->n_chunks) {
		rc = chunk_map(map, &layout->chunks[map->n_chunks]);
		if (rc == 0)
			map->n_chunks++;
	}
	if (rc == 0)
		rc = access_grant(map, layout, map->devices, map->mapped, layout->bytes);
	if (rc < 0)
		chunks_unmap(map, layout, had);
	else
		map->mapped = layout->bytes;
	return rc;
}

/* The devices that get access when device asks: device, and the owner of the memory. */
static int devices_find(const struct client_cuda *cuda, const struct client_layout *layout,
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
				   "file's (gpu%u): no peer access between them, as between "
				   "MIG instances",
				   layout->device);
	*devices = 1ULL << device | 1ULL << owner;
	return 0;
}

/* bytes_needed: bytes that the caller cannot do without, or 0. */
static int range_reserve(struct device_map *map, const struct client_layout *layout,
			 size_t bytes_needed)
{
	size_t bytes_min = bytes_needed > layout->bytes ? bytes_needed : layout->bytes;
	size_t room = bytes_needed ? bytes_min : client_range_room(layout->bytes);

	gm_CUresult result = map->head.cuda->cu.cuMemAddressReserve(&map->base, room, 0, 0, 0);
	if (result != GM_CUDA_SUCCESS) {
		room = bytes_min;
		result = map->head.cuda->cu.cuMemAddressReserve(&map->base, room, 0, 0, 0);
	}
	if (result == GM_CUDA_ERROR_OUT_OF_MEMORY)
		return client_fail(ENOMEM, "no GPU address space for %zu bytes", bytes_min);
	map->reserved = room;
	return client_cuda_result(map->head.cuda, result, "cuMemAddressReserve");
}

static int malloc_result(const struct client_cuda *cuda, gm_CUresult result)
{
	if (result == GM_CUDA_ERROR_INVALID_CONTEXT)
		return client_fail(EINVAL, "this process has allocated the memory itself: use the "
					   "address that it has");
	/* The latter after the end of the process, the former for memory that was freed. */
	if (result == GM_CUDA_ERROR_INVALID_VALUE || result == GM_CUDA_ERROR_INVALID_HANDLE)
		return client_fail(ESTALE, "the process that shared the memory has freed it, or "
					   "has ended");
	return client_cuda_result(cuda, result, "cuIpcOpenMemHandle");
}

static unsigned long long context_id(const struct client_cuda *cuda, gm_CUcontext context)
{
	unsigned long long id = 0;

	if (cuda->cuCtxGetId)
		cuda->cuCtxGetId(context, &id);
	return id;
}

static bool malloc_is_open(const struct device_map *map)
{
	return map->opened && context_id(map->head.cuda, map->context) == map->id;
}

/* The end of a context closes what is open in it. */
static int malloc_close(const struct device_map *map)
{
	const struct client_cuda *cuda = map->head.cuda;
	gm_CUcontext pushed;

	if (!malloc_is_open(map) || cuda->cuCtxPushCurrent(map->context) != GM_CUDA_SUCCESS)
		return 0;
	gm_CUresult result = cuda->cu.cuIpcCloseMemHandle(map->opened);

	cuda->cuCtxPopCurrent(&pushed);
	return result == GM_CUDA_ERROR_CONTEXT_IS_DESTROYED
		   ? 0
		   : client_cuda_gave_back(cuda, result, "cuIpcCloseMemHandle");
}

/* The other process may say more than there is. */
static int malloc_check(const struct device_map *map, const struct client_layout *layout)
{
	gm_CUdeviceptr base = 0;
	size_t bytes = 0;
	int rc = client_cuda_result(
	    map->head.cuda, map->head.cuda->cu.cuMemGetAddressRange(&base, &bytes, map->opened),
	    "cuMemGetAddressRange");

	if (rc == 0 &&
	    (base != map->opened || layout->skip > bytes || layout->size > bytes - layout->skip))
		rc = client_fail(ESTALE, "the process that shared the memory has freed it, or says "
					 "more than there is");
	return rc;
}

/* All devices with access to the owner's get it with their first access. */
static int malloc_open(struct device_map *map, const struct client_layout *layout,
		       const struct ipc_memory *memory)
{
	const struct client_cuda *cuda = map->head.cuda;
	gm_CUipcMemHandle handle;

	if (layout->flags & GPUMEM_LAYOUT_READ_ONLY)
		return client_fail(EACCES, "CUDA maps memory of cudaMalloc for writing alone: open "
					   "the file with O_RDWR");
	memcpy(&handle, memory->handle, sizeof(handle));
	int rc =
	    malloc_result(cuda, cuda->cu.cuIpcOpenMemHandle(&map->opened, handle,
							    GM_CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS));
	if (rc < 0)
		return rc;
	cuda->cuCtxGetCurrent(&map->context);
	map->id = context_id(cuda, map->context);
	rc = malloc_check(map, layout);
	if (rc < 0) {
		malloc_close(map);
		return rc;
	}
	map->base = map->opened - layout->chunks[0].offset;
	map->mapped = map->reserved = layout->bytes;
	map->n_chunks = 1;
	return 0;
}

/* After the end of the context that had it open. */
static int malloc_renew(struct client_device_map *map, const struct client_layout *layout)
{
	struct device_map *state = map->state, next = *state;
	struct ipc_memory memory;

	if (!client_layout_of_malloc(layout, &memory))
		return client_fail(ESTALE, "the memory is no longer the other process's");
	int rc = malloc_open(&next, layout, &memory);

	if (rc < 0)
		return rc;
	*state = next;
	map->base = next.base;
	return 0;
}

static int device_map_new(struct device_map *map, const struct client_layout *layout,
			  size_t bytes_needed)
{
	struct ipc_memory memory;

	if (client_layout_of_malloc(layout, &memory))
		return malloc_open(map, layout, &memory);
	int rc = range_reserve(map, layout, bytes_needed);
	if (rc < 0)
		return rc;
	rc = chunks_map(map, layout);
	if (rc < 0)
		map->head.cuda->cu.cuMemAddressFree(map->base, map->reserved);
	return rc;
}

static int device_map_create(struct client_device_map *map, const struct client_layout *layout,
			     const struct client_cuda *cuda, uint64_t devices)
{
	struct device_map *new_map = malloc(sizeof(*new_map));

	if (!new_map)
		return client_fail(ENOMEM, "no memory");
	*new_map = (struct device_map){.head = {.cuda = cuda}, .devices = devices};
	int rc = device_map_new(new_map, layout, map->room);
	if (rc < 0)
		free(new_map);
	else
		*map = (struct client_device_map){
		    .base = new_map->base, .mapped = new_map->mapped, .state = new_map};
	return rc;
}

/* Gives the devices access to memory that is mapped already. */
static int devices_add(struct device_map *map, const struct client_layout *layout, uint64_t devices)
{
	if ((map->devices & devices) == devices || map->opened)
		return 0;
	int rc = access_grant(map, layout, map->devices | devices, 0, map->mapped);
	if (rc == 0)
		map->devices |= devices;
	return rc;
}

int cuda_device_map(struct client_device_map *map, const struct client_layout *layout)
{
	const struct client_cuda *cuda;
	gm_CUdevice device;
	uint64_t devices = 0;

	int rc = client_cuda_get(&cuda);
	if (rc == 0)
		rc = client_cuda_current(cuda, &device);
	if (rc == 0)
		rc = devices_find(cuda, layout, device, &devices);
	if (rc < 0)
		return rc;
	struct device_map *state = map->state;

	if (!state)
		return device_map_create(map, layout, cuda, devices);
	return state->opened && !malloc_is_open(state) ? malloc_renew(map, layout)
						       : devices_add(state, layout, devices);
}

int cuda_device_extend(struct client_device_map *map, const struct client_layout *layout)
{
	struct device_map *state = map->state;

	if (layout->bytes > state->reserved)
		return client_fail(ENOSPC, "the file has outgrown the room behind its device "
					   "address: unmap it and map it again");
	int rc = chunks_map(state, layout);
	if (rc == 0)
		map->mapped = state->mapped;
	return rc;
}

int cuda_device_unmap(struct client_device_map *map, const struct client_layout *layout)
{
	struct device_map *state = map->state;
	const struct client_cuda *cuda = state->head.cuda;

	int rc = state->opened ? malloc_close(state) : chunks_unmap(state, layout, 0);
	int freed = 0;

	if (!state->opened)
		freed = client_cuda_gave_back(
		    cuda, cuda->cu.cuMemAddressFree(state->base, state->reserved),
		    "cuMemAddressFree");
	free(state);
	*map = (struct client_device_map){0};
	return rc < 0 ? rc : freed;
}

int cuda_device_park(struct client_device_map *map, const struct client_layout *layout)
{
	struct device_map *state = map->state;
	int rc = chunks_unmap(state, layout, 0);

	state->mapped = map->mapped = 0;
	return rc;
}

void cuda_device_cancel(const struct client_device_map *map, const struct client_layout *layout)
{
	const struct device_map *state = map->state;

	for (uint32_t i = 0; i < layout->n_chunks; i++)
		chunk_release(state->head.cuda, &layout->chunks[i]);
}

int cuda_device_prepare(const struct client_device_map *map, const struct client_layout *layout)
{
	const struct device_map *state = map->state;
	int rc = 0;

	for (uint32_t i = 0; rc == 0 && i < layout->n_chunks; i++)
		rc = chunk_import(state->head.cuda, &layout->chunks[i]);
	if (rc < 0)
		cuda_device_cancel(map, layout);
	return rc;
}
