/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* Device addresses of system memory: the memory is mapped once more, and the mapping is registered
 * with the driver, in one part for each growth of the file. */
#include <errno.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "client/core/error.h"
#include "client/gpu/cuda_ops.h"

struct cuda_pin {
	char *at;
	size_t bytes;
};

struct pinned_map {
	struct cuda_map head; /* first */
	unsigned n_pins;
	struct client_range range;
	gm_CUdeviceptr base;
	gm_CUcontext context; /* that was current when the memory was mapped */
};

/* Registers a file that may only be read as read-only. */
static gm_CUresult pin_register(const struct client_cuda *cuda, void *at, size_t bytes,
				bool read_only)
{
	unsigned flags = GM_CU_MEMHOSTREGISTER_PORTABLE | GM_CU_MEMHOSTREGISTER_DEVICEMAP;

	return cuda->cu.cuMemHostRegister(
	    at, bytes, read_only ? flags | GM_CU_MEMHOSTREGISTER_READ_ONLY : flags);
}

/* The caller is promised one contiguous range: the device address of a part must follow that of the
 * part before, as the CPU address does. */
static int pin_address(const struct pinned_map *map, char *at, gm_CUdeviceptr *base)
{
	gm_CUdeviceptr address;

	int rc = client_cuda_result(map->head.cuda,
				    map->head.cuda->cuMemHostGetDevicePointer(&address, at, 0),
				    "cuMemHostGetDevicePointer");
	if (rc < 0)
		return rc;
	*base = address - (gm_CUdeviceptr)(at - map->range.base);
	if (map->n_pins && *base != map->base)
		return client_fail(ENOSPC, "the driver gives the new part of the file another "
					   "address: unmap the file and map it again");
	return 0;
}

/* Registers the mapped pages from the byte at offset from to the end of the mapping. */
static int pin_add(struct pinned_map *map, const struct client_layout *layout, size_t from)
{
	size_t page = (size_t)sysconf(_SC_PAGESIZE);
	char *at = map->range.base + (from + page - 1) / page * page;
	char *end = map->range.base + (map->range.mapped + page - 1) / page * page;
	bool read_only = layout->flags & GPUMEM_LAYOUT_READ_ONLY;

	if (at == end)
		return 0;
	struct cuda_pin *pins = realloc(map->head.pins, (map->n_pins + 1) * sizeof(*pins));
	if (!pins)
		return client_fail(ENOMEM, "no memory");
	map->head.pins = pins;
	gm_CUresult result = pin_register(map->head.cuda, at, (size_t)(end - at), read_only);
	if (result == GM_CUDA_ERROR_OUT_OF_MEMORY)
		return client_fail(ENOMEM, "the driver cannot pin %zu bytes", (size_t)(end - at));
	int rc = client_cuda_result(map->head.cuda, result, "cuMemHostRegister");
	if (rc < 0)
		return rc;
	rc = pin_address(map, at, &map->base);
	if (rc < 0) {
		map->head.cuda->cu.cuMemHostUnregister(at);
		return rc;
	}
	pins[map->n_pins++] = (struct cuda_pin){at, (size_t)(end - at)};
	return 0;
}

static int pinned_map_new(struct pinned_map *map, const struct client_layout *layout,
			  size_t bytes_needed)
{
	const struct client_cuda *cuda = map->head.cuda;

	int rc = client_cuda_result(cuda, cuda->cuCtxGetCurrent(&map->context), "cuCtxGetCurrent");
	if (rc == 0)
		rc = client_range_reserve(
		    &map->range, bytes_needed > layout->bytes ? bytes_needed : layout->bytes);
	if (rc < 0)
		return rc;
	rc = client_range_map(&map->range, layout, client_layout_protection(layout));
	if (rc == 0)
		rc = pin_add(map, layout, 0);
	if (rc < 0) {
		client_range_free(&map->range);
		free(map->head.pins);
	}
	return rc;
}

int cuda_pinned_map(struct client_device_map *map, const struct client_layout *layout)
{
	const struct client_cuda *cuda;
	gm_CUdevice device;

	int rc = client_cuda_get(&cuda);
	if (rc == 0)
		rc = client_cuda_current(cuda, &device);
	/* Registered memory is portable: the devices of all contexts have access. */
	if (rc < 0 || map->state)
		return rc;
	struct pinned_map *new_map = malloc(sizeof(*new_map));
	if (!new_map)
		return client_fail(ENOMEM, "no memory");
	*new_map = (struct pinned_map){.head = {.cuda = cuda}};
	rc = pinned_map_new(new_map, layout, map->room);
	if (rc < 0)
		free(new_map);
	else
		*map = (struct client_device_map){
		    .base = new_map->base, .mapped = layout->bytes, .state = new_map};
	return rc;
}

int cuda_pinned_extend(struct client_device_map *map, const struct client_layout *layout)
{
	struct pinned_map *state = map->state;
	size_t had = state->range.mapped;

	int rc = client_range_map(&state->range, layout, client_layout_protection(layout));
	if (rc == 0)
		rc = pin_add(state, layout, had);
	if (rc < 0) {
		state->range.mapped = had;
		return rc;
	}
	map->mapped = layout->bytes;
	return 0;
}

static int pin_remove(const struct pinned_map *map, const struct cuda_pin *pin)
{
	const struct client_cuda *cuda = map->head.cuda;

	gm_CUresult result = cuda->cu.cuMemHostUnregister(pin->at);
	/* The driver wants a current context; the context of the mapping will do. */
	if (result == GM_CUDA_ERROR_INVALID_CONTEXT &&
	    cuda->cuCtxPushCurrent(map->context) == GM_CUDA_SUCCESS) {
		gm_CUcontext pushed;
		result = cuda->cu.cuMemHostUnregister(pin->at);
		cuda->cuCtxPopCurrent(&pushed);
	}
	/* A context that was destroyed has ended its registrations. */
	if (result == GM_CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED ||
	    result == GM_CUDA_ERROR_CONTEXT_IS_DESTROYED)
		return 0;
	return client_cuda_gave_back(cuda, result, "cuMemHostUnregister");
}

/* Memory that the driver still holds keeps its addresses: the GPU would not see a later mapping
 * there. */
int cuda_pinned_unmap(struct client_device_map *map)
{
	struct pinned_map *state = map->state;
	int rc = 0;

	for (unsigned i = 0; i < state->n_pins; i++) {
		int error = pin_remove(state, &state->head.pins[i]);
		if (rc == 0)
			rc = error;
	}
	if (rc == 0)
		client_range_free(&state->range);
	free(state->head.pins);
	free(state);
	*map = (struct client_device_map){0};
	return rc;
}
