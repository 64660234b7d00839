/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* Mapping chunks for the CPU: directly if their memory type can be mapped, else by a second import
 * as a mappable type, the window of devices without a resizable BAR. */
#include <errno.h>
#include <stdio.h>
#include <unistd.h>

#include "backend/vulkan/provider.h"
#include "common/log.h"

/* Of mapping NVIDIA's memory by Vulkan. */
#define COST_NS_PER_MIB 10000

const char *vulkan_bar_name(struct device *base, const char **why)
{
	const struct vulkan_device *device = vulkan_device(base);

	if (device->vulkan->bar == BAR_OFF)
		*why = "turned off (bar=off)";
	else if (!device->can.has_window)
		*why = "no memory type is the device's own and host-visible";
	return *why ? "none" : "vulkan";
}

/* Only a successful import owns the descriptor, see vulkan_memory_import. */
static VkResult window_import(struct vulkan_chunk *chunk, int fd)
{
	struct vulkan_device *device = vulkan_device(chunk->base.device);
	VkImportMemoryFdInfoKHR from = {.sType = VK_STRUCTURE_TYPE_IMPORT_MEMORY_FD_INFO_KHR,
					.handleType = VK_EXTERNAL_MEMORY_HANDLE_TYPE_OPAQUE_FD_BIT,
					.fd = fd};
	VkMemoryAllocateInfo info = {.sType = VK_STRUCTURE_TYPE_MEMORY_ALLOCATE_INFO,
				     .pNext = &from,
				     .allocationSize = chunk->base.bytes,
				     .memoryTypeIndex = device->can.window_type};
	VkResult result = vulkan_memory_new(device, &info, &chunk->window);

	if (result != VK_SUCCESS)
		close(fd);
	return result;
}

static int window_open(struct vulkan_chunk *chunk)
{
	struct vulkan_device *device = vulkan_device(chunk->base.device);
	int fd, rc = vulkan_chunk_export(&chunk->base, &fd);

	return rc < 0 ? rc : vulkan_result(device, window_import(chunk, fd), "import for the BAR");
}

static void window_close(struct vulkan_chunk *chunk)
{
	if (chunk->window)
		vulkan_memory_free(vulkan_device(chunk->base.device), chunk->window);
	chunk->window = VK_NULL_HANDLE;
}

int vulkan_bar_map(struct chunk *base, void **address)
{
	struct vulkan_device *device = vulkan_device(base->device);
	struct vulkan_chunk *chunk = vulkan_chunk(base);
	bool system = base->place == PLACE_HOST;
	int rc = 0;

	if (!system && (!device->can.has_window || device->vulkan->bar == BAR_OFF))
		return -ENOTSUP;
	if (!system && !device->can.window_is_own)
		rc = window_open(chunk);
	if (rc < 0)
		return rc;
	VkResult result = device->vk.vkMapMemory(
	    device->handle, chunk->window ? chunk->window : chunk->buffer.memory, 0, VK_WHOLE_SIZE,
	    0, address);

	rc = vulkan_result(device, result, "vkMapMemory");
	if (rc < 0)
		window_close(chunk);
	return rc;
}

void vulkan_bar_unmap(struct chunk *base, void *address)
{
	struct vulkan_device *device = vulkan_device(base->device);
	struct vulkan_chunk *chunk = vulkan_chunk(base);

	(void)address;
	device->vk.vkUnmapMemory(device->handle,
				 chunk->window ? chunk->window : chunk->buffer.memory);
	window_close(chunk);
}

uint32_t vulkan_bar_cost(struct device *base)
{
	return vulkan_device(base)->can.software ? 0 : COST_NS_PER_MIB;
}
