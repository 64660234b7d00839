/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* Opening and closing the Vulkan provider. */
#include "backend/vulkan/provider.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#include "backend/providers.h"
#include "common/log.h"

static int report_unusable(const struct backend_config *config, const char *reason)
{
	if (config->reason)
		snprintf(config->reason, config->reason_bytes, "%s", reason);
	else
		log_error("Vulkan cannot be used: %s", reason);
	return -ENODEV;
}

static void vulkan_close(struct backend *base)
{
	struct vulkan *vulkan = vulkan_of(base);

	for (unsigned i = 0; i < base->n_devices; i++)
		vulkan_device_close(vulkan_device(base->devices[i]));
	vulkan_instance_close(&vulkan->instance);
	pthread_mutex_destroy(&vulkan->lock);
	free(vulkan);
}

static int vulkan_open(const struct backend_config *config, struct backend **backend)
{
	struct vulkan *vulkan = calloc(1, sizeof(*vulkan));
	char reason[256] = "";

	if (!vulkan)
		return -ENOMEM;
	vulkan->base.ops = &backend_vulkan_ops;
	vulkan->base.name = backend_vulkan_ops.name;
	vulkan->bar = config->bar;
	if (config->bar == BAR_DMABUF || config->bar == BAR_GDRCOPY) {
		log_warn("bar=: backend=vulkan has no other way to the BAR than vulkan; GPU memory "
			 "is not mapped");
		vulkan->bar = BAR_OFF;
	}
	pthread_mutex_init(&vulkan->lock, NULL);
	/* After the daemon's fork, as threads of drivers do not survive a fork. */
	int rc = vulkan_instance_open(&vulkan->instance, reason, sizeof(reason));
	if (rc == 0)
		rc = vulkan_devices_open(vulkan, config, reason, sizeof(reason));
	for (unsigned i = 0; rc == 0 && i < vulkan->base.n_devices; i++)
		vulkan_bar_open(vulkan_device(vulkan->base.devices[i]));
	if (rc < 0) {
		if (*reason)
			report_unusable(config, reason);
		vulkan_close(&vulkan->base);
		return rc;
	}
	*backend = &vulkan->base;
	return 0;
}

static int heap_budget(struct vulkan_device *device, uint64_t *bytes)
{
	VkPhysicalDeviceMemoryBudgetPropertiesEXT budget = {
	    .sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_MEMORY_BUDGET_PROPERTIES_EXT};
	VkPhysicalDeviceMemoryProperties2 memory = {
	    .sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_MEMORY_PROPERTIES_2, .pNext = &budget};

	if (!device->can.budget)
		return -ENOTSUP;
	device->vulkan->instance.vkGetPhysicalDeviceMemoryProperties2(device->physical, &memory);
	uint32_t type = device->types.places[PLACE_GPU].type;
	uint32_t heap = memory.memoryProperties.memoryTypes[type].heapIndex;
	uint64_t limit = budget.heapBudget[heap], used = budget.heapUsage[heap];

	*bytes = limit > used ? limit - used : 0;
	return 0;
}

/* Without a budget, other processes are unknown. */
static int vulkan_memory(struct device *base, struct device_memory *memory)
{
	struct vulkan_device *device = vulkan_device(base);
	uint64_t used = atomic_load(&device->used), available = base->total, free_bytes;

	available = available > used ? available - used : 0;
	if (heap_budget(device, &free_bytes) < 0 || free_bytes > available)
		free_bytes = available;
	*memory = (struct device_memory){.total = base->total, .free = free_bytes};
	return 0;
}

const struct backend_ops backend_vulkan_ops = {
    .name = "vulkan",
    .handle = CHUNK_VULKAN,
    .open = vulkan_open,
    .close = vulkan_close,
    .memory = vulkan_memory,
    .idle_release = vulkan_idle_release,
    .reset = vulkan_reset,
    .bar_name = vulkan_bar_name,
    .chunk_new = vulkan_chunk_new,
    .chunk_free = vulkan_chunk_free,
    .chunk_export = vulkan_chunk_export,
    .chunk_import = vulkan_chunk_import,
    .copier_new = vulkan_copier_new,
    .copier_free = vulkan_copier_free,
    .pin = vulkan_pin,
    .unpin = vulkan_unpin,
    .dma_in = vulkan_dma_in,
    .dma_out = vulkan_dma_out,
    .dma_across = vulkan_dma_across,
    .dma_zero = vulkan_dma_zero,
    .wait = vulkan_wait,
    .bar_map = vulkan_bar_map,
    .bar_unmap = vulkan_bar_unmap,
    .bar_cost = vulkan_bar_cost,
};
