/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* Files of backend=vulkan. The CPU maps them as it maps memory of CUDA, by the way "vulkan" alone
 * (cuda_host.c). Device addresses come from the program's driver, by an import. */
#include <errno.h>
#include <stdio.h>

#include "client/core/error.h"
#include "client/gpu/cuda_ops.h"

/* Drivers that import Vulkan's memory. NVIDIA's driver imports it as CUDA's own, and is asked
 * first: a look for a library that is not there takes longer than the rest of a mapping. */
static const struct client_gpu_ops *const address_drivers[] = {&client_gpu_cuda, &client_gpu_hip,
							       &client_gpu_levelzero};
#define DRIVERS (sizeof(address_drivers) / sizeof(address_drivers[0]))

/* Maps by the first driver with the file's GPU among those that the program has loaded, or has not.
 * -ENODEV: there is no such driver. -ENXIO: there is one, but not with this GPU. */
static int drivers_map(struct client_device_map *map, const struct client_layout *layout,
		       bool loaded)
{
	char reason[200] = "";
	int rc = -ENODEV;

	for (unsigned i = 0; i < DRIVERS && (rc == -ENODEV || rc == -ENXIO); i++) {
		if (address_drivers[i]->has_context() != loaded)
			continue;
		rc = address_drivers[i]->device_map(map, layout);
		if (rc == -ENXIO)
			snprintf(reason, sizeof(reason), "%s", client_error_text());
	}
	return rc == -ENODEV && *reason ? client_fail(ENXIO, "%s", reason) : rc;
}

/* Drivers are loaded only for a program without a driver, which must load the driver too before a
 * use of the address. */
static int vulkan_device_map(struct client_device_map *map, const struct client_layout *layout)
{
	if (map->vendor)
		return map->vendor->device_map(map, layout);
	int rc = drivers_map(map, layout, true);
	if (rc == -ENODEV)
		rc = drivers_map(map, layout, false);
	if (rc == -ENODEV)
		return client_fail(ENODEV, "no device address of a file of backend=vulkan without "
					   "CUDA, HIP or Level Zero: map the file for the CPU, or "
					   "import its pieces (gpumem_export)");
	return rc;
}

static int vulkan_device_extend(struct client_device_map *map, const struct client_layout *layout)
{
	return map->vendor->device_extend(map, layout);
}

static int vulkan_device_unmap(struct client_device_map *map, const struct client_layout *layout)
{
	return map->vendor->device_unmap(map, layout);
}

static int vulkan_device_park(struct client_device_map *map, const struct client_layout *layout)
{
	return map->vendor->device_park(map, layout);
}

static void vulkan_flush(const struct client_host_map *host, const struct client_device_map *device)
{
	if (device->vendor && device->vendor->flush)
		device->vendor->flush(host, device);
}

static void vulkan_device_forget(struct client_device_map *map)
{
	map->vendor->device_forget(map);
}

const struct client_gpu_ops client_gpu_vulkan = {
    .name = "vulkan",
    .kinds = 1U << GPUMEM_KIND_VULKAN,
    .device_map = vulkan_device_map,
    .device_extend = vulkan_device_extend,
    .device_unmap = vulkan_device_unmap,
    .device_park = vulkan_device_park,
    .device_forget = vulkan_device_forget,
    .host_map = cuda_host_map,
    .host_extend = cuda_host_extend,
    .host_unmap = cuda_host_unmap,
    .host_park = cuda_host_park,
    .host_forget = cuda_host_forget,
    .host_provider = cuda_host_provider,
    .flush = vulkan_flush,
};
