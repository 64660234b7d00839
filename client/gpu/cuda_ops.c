/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
#include "client/gpu/cuda_ops.h"

#include <stdlib.h>

/* The functions that map leave vendor to this table, which calls them. */
static int cuda_map_set_vendor(struct client_device_map *map, int rc)
{
	if (rc == 0)
		map->vendor = &client_gpu_cuda;
	return rc;
}

static int cuda_map_device(struct client_device_map *map, const struct client_layout *layout)
{
	return cuda_map_set_vendor(map, cuda_device_map(map, layout));
}

static int cuda_map_system(struct client_device_map *map, const struct client_layout *layout)
{
	return cuda_map_set_vendor(map, cuda_pinned_map(map, layout));
}

static void cuda_device_forget(struct client_device_map *map)
{
	struct cuda_map *state = map->state;

	free(state->pins);
	free(state);
	*map = (struct client_device_map){0};
}

/* The GPU that has the memory sees stores over the bus in order; its peers see flushed stores only.
 * Without a context no GPU of this process reads, so there is no flush. */
static void cuda_flush(const struct client_host_map *host, const struct client_device_map *device)
{
	const struct cuda_map *state = device->state;
	const struct client_cuda *cuda = state ? state->cuda : cuda_host_driver(host);

	if (host->state && cuda && cuda->cuFlushGPUDirectRDMAWrites)
		cuda->cuFlushGPUDirectRDMAWrites(
		    GM_CU_FLUSH_GPU_DIRECT_RDMA_WRITES_TARGET_CURRENT_CTX,
		    GM_CU_FLUSH_GPU_DIRECT_RDMA_WRITES_TO_ALL_DEVICES);
}

static bool cuda_has_context(void)
{
	const struct client_cuda *cuda;
	gm_CUdevice device;

	return client_cuda_running() && client_cuda_get(&cuda) == 0 &&
	       client_cuda_current(cuda, &device) == 0;
}

const struct client_gpu_ops client_gpu_cuda = {
    .name = "cuda",
    .kinds = 1U << GPUMEM_KIND_DEVICE,
    .device_map = cuda_map_device,
    .device_extend = cuda_device_extend,
    .device_unmap = cuda_device_unmap,
    .device_prepare = cuda_device_prepare,
    .device_cancel = cuda_device_cancel,
    .device_park = cuda_device_park,
    .device_copy = cuda_device_copy,
    .host_copy = cuda_host_copy,
    .has_context = cuda_has_context,
    .system_map = cuda_map_system,
    .system_extend = cuda_pinned_extend,
    .system_unmap = cuda_pinned_unmap,
    .device_forget = cuda_device_forget,
    .host_map = cuda_host_map,
    .host_extend = cuda_host_extend,
    .host_unmap = cuda_host_unmap,
    .host_park = cuda_host_park,
    .host_forget = cuda_host_forget,
    .host_provider = cuda_host_provider,
    .flush = cuda_flush,
};
