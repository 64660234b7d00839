/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* Files in system memory, and those of simulated GPUs, which are in system memory too. */
#include <sys/mman.h>

#include "client/gpu/gpu.h"

static int system_device_map(struct client_device_map *map, const struct client_layout *layout)
{
	return map->vendor ? map->vendor->system_map(map, layout)
			   : client_gpu_system_map(map, layout);
}

static int system_device_extend(struct client_device_map *map, const struct client_layout *layout)
{
	return map->vendor->system_extend(map, layout);
}

static int system_device_unmap(struct client_device_map *map, const struct client_layout *layout)
{
	(void)layout;
	return map->vendor->system_unmap(map);
}

static void system_device_forget(struct client_device_map *map)
{
	map->vendor->device_forget(map);
}

static int system_host_extend(struct client_host_map *map, const struct client_layout *layout)
{
	return client_range_map(&map->range, layout, client_layout_protection(layout));
}

static int system_host_map(struct client_host_map *map, const struct client_layout *layout,
			   int file)
{
	struct client_host_map new_map = {0};

	(void)file;
	if (map->range.base)
		return 0;
	int rc = client_range_reserve(&new_map.range, layout->bytes);
	if (rc < 0)
		return rc;
	rc = system_host_extend(&new_map, layout);
	if (rc < 0)
		client_range_free(&new_map.range);
	else
		*map = new_map;
	return rc;
}

static void system_host_unmap(struct client_host_map *map)
{
	client_range_free(&map->range);
}

static void system_host_park(struct client_host_map *map)
{
	client_range_cut(&map->range);
}

static void system_host_forget(struct client_host_map *map)
{
	(void)map;
}

static const char *system_host_provider(const struct client_host_map *map)
{
	(void)map;
	return "mmap";
}

const struct client_gpu_ops client_gpu_system = {
    .name = "system",
    .kinds = 1U << GPUMEM_KIND_HOST | 1U << GPUMEM_KIND_MEMFD,
    .device_map = system_device_map,
    .device_extend = system_device_extend,
    .device_unmap = system_device_unmap,
    .device_forget = system_device_forget,
    .host_map = system_host_map,
    .host_extend = system_host_extend,
    .host_unmap = system_host_unmap,
    .host_park = system_host_park,
    .host_forget = system_host_forget,
    .host_provider = system_host_provider,
};
