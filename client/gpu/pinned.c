/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* System memory for a GPU: a mapping of its own, registered with the driver in the parts in which
 * the file grew. */
#include <errno.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "client/core/error.h"
#include "client/gpu/device.h"

struct client_pin {
	char *at;
	size_t bytes;
};

/* A file that may only be read is registered so, where the driver knows how. */
static gm_CUresult register_part(const struct client_cuda *cuda, void *at, size_t bytes,
				 bool read_only)
{
	unsigned flags = GM_CU_MEMHOSTREGISTER_PORTABLE | GM_CU_MEMHOSTREGISTER_DEVICEMAP;

	return cuda->cu.cuMemHostRegister(
	    at, bytes, read_only ? flags | GM_CU_MEMHOSTREGISTER_READ_ONLY : flags);
}

/* One contiguous range is promised: a part must continue the device address where it continues the
 * CPU's. */
static int address_part(const struct client_device_map *map, char *at, gm_CUdeviceptr *base)
{
	gm_CUdeviceptr address;

	int rc =
	    client_cuda_result(map->cuda, map->cuda->cuMemHostGetDevicePointer(&address, at, 0),
			       "cuMemHostGetDevicePointer");
	if (rc < 0)
		return rc;
	*base = address - (gm_CUdeviceptr)(at - map->range.base);
	if (map->n_pins && *base != map->base)
		return client_fail(ENOSPC, "the driver puts what the file grew by elsewhere: unmap "
					   "it and map it again");
	return 0;
}

/* Registers what is mapped from the byte from on. */
static int pin(struct client_device_map *map, const struct client_layout *layout, size_t from)
{
	size_t page = (size_t)sysconf(_SC_PAGESIZE);
	char *at = map->range.base + (from + page - 1) / page * page;
	char *end = map->range.base + (map->range.mapped + page - 1) / page * page;
	bool read_only = layout->flags & GPUMEM_LAYOUT_READ_ONLY;

	if (at == end)
		return 0;
	struct client_pin *pins = realloc(map->pins, (map->n_pins + 1) * sizeof(*pins));
	if (!pins)
		return client_fail(ENOMEM, "no memory");
	map->pins = pins;
	gm_CUresult result = register_part(map->cuda, at, (size_t)(end - at), read_only);
	if (result == GM_CUDA_ERROR_OUT_OF_MEMORY)
		return client_fail(ENOMEM, "the driver cannot pin %zu bytes", (size_t)(end - at));
	int rc = client_cuda_result(map->cuda, result, "cuMemHostRegister");
	if (rc < 0)
		return rc;
	rc = address_part(map, at, &map->base);
	if (rc < 0) {
		map->cuda->cu.cuMemHostUnregister(at);
		return rc;
	}
	pins[map->n_pins++] = (struct client_pin){at, (size_t)(end - at)};
	return 0;
}

static int protection(const struct client_layout *layout)
{
	return layout->flags & GPUMEM_LAYOUT_READ_ONLY ? PROT_READ : PROT_READ | PROT_WRITE;
}

static int map_new(struct client_device_map *map, const struct client_layout *layout,
		   const struct client_cuda *cuda)
{
	struct client_device_map made = {.cuda = cuda};

	int rc = client_cuda_result(cuda, cuda->cuCtxGetCurrent(&made.context), "cuCtxGetCurrent");
	if (rc == 0)
		rc = client_range_reserve(&made.range, layout->bytes);
	if (rc < 0)
		return rc;
	rc = client_range_map(&made.range, layout, protection(layout));
	if (rc == 0)
		rc = pin(&made, layout, 0);
	if (rc < 0) {
		client_range_free(&made.range);
		free(made.pins);
		return rc;
	}
	made.mapped = layout->bytes;
	*map = made;
	return 0;
}

int client_pinned_map(struct client_device_map *map, const struct client_layout *layout)
{
	const struct client_cuda *cuda;
	gm_CUdevice device;

	int rc = client_cuda_get(&cuda);
	if (rc == 0)
		rc = client_cuda_current(cuda, &device);
	if (rc < 0 || map->cuda) /* what is registered is portable: any context's device has it */
		return rc;
	return map_new(map, layout, cuda);
}

int client_pinned_extend(struct client_device_map *map, const struct client_layout *layout)
{
	size_t had = map->range.mapped;

	int rc = client_range_map(&map->range, layout, protection(layout));
	if (rc == 0)
		rc = pin(map, layout, had);
	if (rc < 0) {
		map->range.mapped = had;
		return rc;
	}
	map->mapped = layout->bytes;
	return 0;
}

static int unpin(const struct client_device_map *map, const struct client_pin *pin)
{
	const struct client_cuda *cuda = map->cuda;

	gm_CUresult result = cuda->cu.cuMemHostUnregister(pin->at);
	/* The driver wants some context, be it that of the mapping. */
	if (result == GM_CUDA_ERROR_INVALID_CONTEXT &&
	    cuda->cuCtxPushCurrent(map->context) == GM_CUDA_SUCCESS) {
		gm_CUcontext pushed;
		result = cuda->cu.cuMemHostUnregister(pin->at);
		cuda->cuCtxPopCurrent(&pushed);
	}
	/* A context that is gone took its registrations along. */
	if (result == GM_CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED ||
	    result == GM_CUDA_ERROR_CONTEXT_IS_DESTROYED)
		return 0;
	return client_cuda_gave_back(cuda, result, "cuMemHostUnregister");
}

/* Memory that the driver still holds keeps its addresses: a later mapping there would not be what
 * the GPU sees. */
int client_pinned_unmap(struct client_device_map *map)
{
	int rc = 0;

	for (unsigned i = 0; i < map->n_pins; i++) {
		int error = unpin(map, &map->pins[i]);
		if (rc == 0)
			rc = error;
	}
	if (rc == 0)
		client_range_free(&map->range);
	free(map->pins);
	*map = (struct client_device_map){0};
	return rc;
}
