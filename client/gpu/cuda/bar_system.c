/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* Memory of a file that is in system memory (docs/tiers.md): no BAR is needed, because the driver
 * gives the CPU access at the same address as the GPU. */
#include <errno.h>
#include <stdint.h>
#include <stdio.h>

#include "backend/cuda/driver/driver.h"
#include "client/gpu/cuda/bar.h"

static int system_open(const struct bar_device *device, void **state, char *reason)
{
	(void)reason;
	*state = (void *)device;
	return 0;
}

static void system_close(void *state)
{
	(void)state;
}

/* The driver refuses the CPU's access to memory of a GPU. */
static int system_map(void *state, const struct bar_source *source, void *at, void **address,
		      void **mapping, char *reason)
{
	const struct bar_device *device = state;
	gm_CUmemAccessDesc access = {
	    .location = {.type = GM_CU_MEM_LOCATION_TYPE_HOST_NUMA},
	    .flags = GM_CU_MEM_ACCESS_FLAGS_PROT_READWRITE,
	};
	int node;

	(void)at;
	if (device->cu->cuDeviceGetAttribute(&node, GM_CU_DEVICE_ATTRIBUTE_HOST_NUMA_ID,
					     device->handle) == GM_CUDA_SUCCESS &&
	    node > 0)
		access.location.id = node;
	gm_CUresult result = device->cu->cuMemSetAccess(source->address, source->bytes, &access, 1);
	if (result != GM_CUDA_SUCCESS) {
		snprintf(reason, BAR_REASON_MAX, "a part of the file is in the GPU's own memory");
		return -ENOTSUP;
	}
	*address = (void *)(uintptr_t)source->address;
	*mapping = state;
	return 0;
}

/* The caller unmaps the GPU's address, which is the CPU's. */
static void system_unmap(void *state, void *address, uint64_t bytes, void *mapping)
{
	(void)state;
	(void)address;
	(void)bytes;
	(void)mapping;
}

const struct bar_way cuda_bar_system = {
    .name = "system",
    .needs = BAR_NEEDS_CUDA,
    .at_gpu_address = true,
    .open = system_open,
    .close = system_close,
    .map = system_map,
    .unmap = system_unmap,
};
