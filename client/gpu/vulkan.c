/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* Files of backend=vulkan. The CPU maps them as it maps memory of CUDA, by the way "vulkan" alone
 * (cuda_host.c). There is no device address yet. */
#include <errno.h>

#include "client/core/error.h"
#include "client/gpu/cuda_ops.h"

static int vulkan_device_map(struct client_device_map *map, const struct client_layout *layout)
{
	(void)map;
	(void)layout;
	return client_fail(ENOTSUP,
			   "no device address of a file of backend=vulkan is possible yet: "
			   "map the file for the CPU, or read it");
}

/* No file is mapped. */
static int vulkan_device_unmap(struct client_device_map *map, const struct client_layout *layout)
{
	(void)map;
	(void)layout;
	return 0;
}

static void vulkan_device_forget(struct client_device_map *map)
{
	*map = (struct client_device_map){0};
}

const struct client_gpu_ops client_gpu_vulkan = {
    .name = "vulkan",
    .kinds = 1U << GPUMEM_KIND_VULKAN,
    .device_map = vulkan_device_map,
    .device_extend = vulkan_device_map,
    .device_unmap = vulkan_device_unmap,
    .device_forget = vulkan_device_forget,
    .host_map = cuda_host_map,
    .host_extend = cuda_host_extend,
    .host_unmap = cuda_host_unmap,
    .host_park = cuda_host_park,
    .host_forget = cuda_host_forget,
    .host_provider = cuda_host_provider,
};
