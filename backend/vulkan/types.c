/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* The choice of memory types. A driver need not allow a buffer in exported memory in each type:
 * NVIDIA's excludes the types that the CPU can map. */
#include <errno.h>
#include <string.h>

#include "backend/vulkan/provider.h"

#define LOCAL	 VK_MEMORY_PROPERTY_DEVICE_LOCAL_BIT
#define CACHED	 VK_MEMORY_PROPERTY_HOST_CACHED_BIT
#define MAPPABLE (VK_MEMORY_PROPERTY_HOST_VISIBLE_BIT | VK_MEMORY_PROPERTY_HOST_COHERENT_BIT)
/* Memory of types with other properties is not read and written like plain memory. */
#define PLAIN (LOCAL | MAPPABLE | CACHED | VK_MEMORY_PROPERTY_HOST_VISIBLE_BIT)

struct wish {
	VkMemoryPropertyFlags required, excluded;
};

static uint64_t heap_bytes(const VkPhysicalDeviceMemoryProperties *memory, uint32_t type)
{
	return memory->memoryHeaps[memory->memoryTypes[type].heapIndex].size;
}

/* The first type of bits that grants a wish with a heap of at least min_bytes. */
static bool type_find(const VkPhysicalDeviceMemoryProperties *memory, uint32_t bits,
		      struct wish wish, VkDeviceSize min_bytes, uint32_t *type)
{
	for (uint32_t i = 0; i < memory->memoryTypeCount; i++) {
		VkMemoryPropertyFlags has = memory->memoryTypes[i].propertyFlags;

		if (!(bits >> i & 1) || (has & wish.required) != wish.required ||
		    has & (wish.excluded | ~(VkMemoryPropertyFlags)PLAIN) ||
		    heap_bytes(memory, i) < min_bytes)
			continue;
		*type = i;
		return true;
	}
	return false;
}

/* System memory that the CPU maps. Without a cache, reading by the CPU is slow. */
static bool system_type_find(const VkPhysicalDeviceMemoryProperties *memory, uint32_t bits,
			     uint32_t *type)
{
	static const struct wish wishes[] = {
	    {MAPPABLE | CACHED, LOCAL}, {MAPPABLE | CACHED, 0}, {MAPPABLE, LOCAL}, {MAPPABLE, 0}};

	for (unsigned i = 0; i < sizeof(wishes) / sizeof(wishes[0]); i++)
		if (type_find(memory, bits, wishes[i], 0, type))
			return true;
	return false;
}

static VkDeviceSize largest_local_heap(const VkPhysicalDeviceMemoryProperties *memory)
{
	VkDeviceSize largest = 0;

	for (uint32_t i = 0; i < memory->memoryHeapCount; i++)
		if (memory->memoryHeaps[i].flags & VK_MEMORY_HEAP_DEVICE_LOCAL_BIT &&
		    memory->memoryHeaps[i].size > largest)
			largest = memory->memoryHeaps[i].size;
	return largest;
}

/* Chunks are in the largest heap of the device, if possible in a type that the CPU maps directly.
 * Otherwise they are imported a second time for the mapping: as a type whose heap is as large
 * (resizable BAR), or as the type of a small window, of which other programs need their part. */
static bool gpu_types_choose(const VkPhysicalDeviceMemoryProperties *memory, uint32_t bits,
			     struct vulkan_types *types)
{
	const struct wish mappable = {LOCAL | MAPPABLE, 0}, local = {LOCAL, 0};
	VkDeviceSize largest = largest_local_heap(memory);
	struct vulkan_place *gpu = &types->places[PLACE_GPU];

	gpu->direct = gpu->mappable = type_find(memory, bits, mappable, largest, &gpu->type);
	gpu->map_type = gpu->type;
	types->window_bytes = gpu->direct ? largest : 0;
	if (!gpu->direct && !type_find(memory, bits, local, largest, &gpu->type))
		return false;
	if (!gpu->direct && type_find(memory, ~0U, mappable, largest, &gpu->map_type)) {
		gpu->mappable = true;
		types->window_bytes = largest;
	} else if (!gpu->direct && type_find(memory, ~0U, mappable, 1, &gpu->map_type)) {
		gpu->mappable = true;
		types->window_bytes = heap_bytes(memory, gpu->map_type) / 2;
	}
	if (!gpu->mappable)
		types->unmapped = "no memory type is the device's own and host-visible";
	types->total = largest;
	gpu->usable = largest > 0;
	return gpu->usable;
}

static void host_types_choose(const VkPhysicalDeviceMemoryProperties *memory, uint32_t bits,
			      struct vulkan_place *host)
{
	const struct wish system = {0, LOCAL};

	host->direct = host->mappable = host->usable = system_type_find(memory, bits, &host->type);
	host->map_type = host->type;
	if (!host->usable && type_find(memory, bits, system, 1, &host->type))
		host->mappable = host->usable = system_type_find(memory, ~0U, &host->map_type);
}

int vulkan_types_choose(const VkPhysicalDeviceMemoryProperties *memory, uint32_t exportable,
			uint32_t plain, struct vulkan_types *types)
{
	memset(types, 0, sizeof(*types));
	if (!gpu_types_choose(memory, exportable, types) ||
	    !system_type_find(memory, plain, &types->stage))
		return -ENOTSUP;
	host_types_choose(memory, exportable, &types->places[PLACE_HOST]);
	return 0;
}

/* The types that the driver allows for a buffer of copies. */
static VkResult buffer_types(struct vulkan_device *device, VkExternalMemoryHandleTypeFlags handle,
			     uint32_t *bits)
{
	VkMemoryRequirements needs;
	VkBuffer buffer;
	VkResult result = vulkan_buffer_create(device, CHUNK_ALIGN, handle, &buffer);

	if (result != VK_SUCCESS)
		return result;
	device->vk.vkGetBufferMemoryRequirements(device->handle, buffer, &needs);
	device->vk.vkDestroyBuffer(device->handle, buffer, NULL);
	*bits = needs.memoryTypeBits;
	return VK_SUCCESS;
}

int vulkan_types_find(struct vulkan_device *device)
{
	VkPhysicalDeviceMemoryProperties2 memory = {
	    .sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_MEMORY_PROPERTIES_2};
	uint32_t exportable = 0, plain = 0, pinned = 0;
	VkResult result =
	    buffer_types(device, VK_EXTERNAL_MEMORY_HANDLE_TYPE_OPAQUE_FD_BIT, &exportable);

	if (result == VK_SUCCESS)
		result = buffer_types(device, 0, &plain);
	if (result == VK_SUCCESS && device->can.pin)
		result = buffer_types(
		    device, VK_EXTERNAL_MEMORY_HANDLE_TYPE_HOST_ALLOCATION_BIT_EXT, &pinned);
	int rc = vulkan_result(device, result, "vkCreateBuffer");
	if (rc < 0)
		return rc;
	device->vulkan->instance.vkGetPhysicalDeviceMemoryProperties2(device->physical, &memory);
	rc = vulkan_types_choose(&memory.memoryProperties, exportable, plain, &device->types);
	device->types.pinned = pinned;
	return rc;
}

bool vulkan_system_type_find(struct vulkan_device *device, uint32_t bits, uint32_t *type)
{
	VkPhysicalDeviceMemoryProperties2 memory = {
	    .sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_MEMORY_PROPERTIES_2};

	device->vulkan->instance.vkGetPhysicalDeviceMemoryProperties2(device->physical, &memory);
	return system_type_find(&memory.memoryProperties, bits, type);
}
