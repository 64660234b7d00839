/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* Memory with a buffer over the whole: for chunks, staging memory and pinned host memory. */
#include <fcntl.h>
#include <unistd.h>

#include "backend/vulkan/provider.h"

/* The import of a descriptor in the chain of an allocation, or NULL. */
static VkImportMemoryFdInfoKHR *import_find(const VkMemoryAllocateInfo *info)
{
	const VkBaseInStructure *at = info->pNext;

	while (at && at->sType != VK_STRUCTURE_TYPE_IMPORT_MEMORY_FD_INFO_KHR)
		at = at->pNext;
	return (VkImportMemoryFdInfoKHR *)at;
}

/* The driver gets a duplicate of an imported descriptor, and owns the duplicate after a success. A
 * driver that refuses leaves the duplicate to the caller; but llvmpipe closes the duplicate. */
static VkResult memory_allocate(struct vulkan_device *device, const VkMemoryAllocateInfo *info,
				VkDeviceMemory *memory)
{
	VkImportMemoryFdInfoKHR *import = import_find(info);
	int fd = import ? import->fd : -1;

	if (import)
		import->fd = fcntl(fd, F_DUPFD_CLOEXEC, 0);
	if (import && import->fd < 0) {
		import->fd = fd;
		return VK_ERROR_TOO_MANY_OBJECTS;
	}
	VkResult result = device->vk.vkAllocateMemory(device->handle, info, NULL, memory);

	if (import && result != VK_SUCCESS && !device->can.software)
		close(import->fd);
	if (import)
		import->fd = fd;
	return result;
}

VkResult vulkan_memory_new(struct vulkan_device *device, const VkMemoryAllocateInfo *info,
			   VkDeviceMemory *memory)
{
	/* The driver need not refuse an allocation beyond the limit. */
	if (info->allocationSize > device->can.bytes_max ||
	    atomic_fetch_add(&device->allocations, 1) >= device->can.allocations) {
		if (info->allocationSize <= device->can.bytes_max)
			atomic_fetch_sub(&device->allocations, 1);
		return VK_ERROR_TOO_MANY_OBJECTS;
	}
	VkResult result = memory_allocate(device, info, memory);

	if (result != VK_SUCCESS) {
		*memory = VK_NULL_HANDLE;
		atomic_fetch_sub(&device->allocations, 1);
	}
	return result;
}

void vulkan_memory_free(struct vulkan_device *device, VkDeviceMemory memory)
{
	device->vk.vkFreeMemory(device->handle, memory, NULL);
	atomic_fetch_sub(&device->allocations, 1);
}

VkResult vulkan_buffer_create(struct vulkan_device *device, uint64_t bytes,
			      VkExternalMemoryHandleTypeFlags handle, VkBuffer *buffer)
{
	VkExternalMemoryBufferCreateInfo external = {
	    .sType = VK_STRUCTURE_TYPE_EXTERNAL_MEMORY_BUFFER_CREATE_INFO, .handleTypes = handle};
	bool has_address =
	    device->can.kernel && handle == VK_EXTERNAL_MEMORY_HANDLE_TYPE_OPAQUE_FD_BIT;
	const uint32_t families[] = {device->can.link_family, device->can.inside_family};
	VkBufferCreateInfo info = {.sType = VK_STRUCTURE_TYPE_BUFFER_CREATE_INFO,
				   .pNext = handle ? &external : NULL,
				   .size = bytes,
				   .usage = VK_BUFFER_USAGE_TRANSFER_SRC_BIT |
					    VK_BUFFER_USAGE_TRANSFER_DST_BIT,
				   .sharingMode = VK_SHARING_MODE_EXCLUSIVE};

	if (vulkan_has_inside_queue(device)) {
		info.sharingMode = VK_SHARING_MODE_CONCURRENT;
		info.queueFamilyIndexCount = 2;
		info.pQueueFamilyIndices = families;
	}
	if (has_address)
		info.usage |= VK_BUFFER_USAGE_SHADER_DEVICE_ADDRESS_BIT;
	return device->vk.vkCreateBuffer(device->handle, &info, NULL, buffer);
}

static VkResult memory_bind(struct vulkan_device *device, const VkMemoryAllocateInfo *info,
			    struct vulkan_buffer *buffer)
{
	VkMemoryRequirements needs;

	device->vk.vkGetBufferMemoryRequirements(device->handle, buffer->buffer, &needs);
	if (needs.size > info->allocationSize ||
	    !(needs.memoryTypeBits >> info->memoryTypeIndex & 1))
		return VK_ERROR_FEATURE_NOT_PRESENT;
	VkResult result = vulkan_memory_new(device, info, &buffer->memory);

	if (result != VK_SUCCESS)
		return result;
	result = device->vk.vkBindBufferMemory(device->handle, buffer->buffer, buffer->memory, 0);
	if (result != VK_SUCCESS)
		vulkan_memory_free(device, buffer->memory);
	return result;
}

static VkDeviceAddress buffer_address(struct vulkan_device *device, VkBuffer buffer)
{
	VkBufferDeviceAddressInfo info = {.sType = VK_STRUCTURE_TYPE_BUFFER_DEVICE_ADDRESS_INFO,
					  .buffer = buffer};

	return device->vk.vkGetBufferDeviceAddress(device->handle, &info);
}

/* NVIDIA's driver gives a dedicated allocation large pages: making 1 GiB takes 1.7 ms instead of
 * 17, and CUDA maps the memory in a twentieth of the time. Importing is slower if the import is
 * dedicated too (31 ms instead of 15), which most drivers do not ask for. */
static bool wants_dedicated(const struct vulkan_device *device, const VkBaseInStructure *source)
{
	return device->can.dedicated || !source ||
	       source->sType != VK_STRUCTURE_TYPE_IMPORT_MEMORY_FD_INFO_KHR;
}

VkResult vulkan_buffer_new(struct vulkan_device *device, uint32_t type, uint64_t bytes,
			   VkExternalMemoryHandleTypeFlags handle, const void *source,
			   struct vulkan_buffer *buffer)
{
	bool shared = handle == VK_EXTERNAL_MEMORY_HANDLE_TYPE_OPAQUE_FD_BIT;
	VkMemoryDedicatedAllocateInfo dedicated = {
	    .sType = VK_STRUCTURE_TYPE_MEMORY_DEDICATED_ALLOCATE_INFO, .pNext = source};
	VkMemoryAllocateFlagsInfo addressed = {.sType =
						   VK_STRUCTURE_TYPE_MEMORY_ALLOCATE_FLAGS_INFO,
					       .flags = VK_MEMORY_ALLOCATE_DEVICE_ADDRESS_BIT};
	VkMemoryAllocateInfo info = {.sType = VK_STRUCTURE_TYPE_MEMORY_ALLOCATE_INFO,
				     .pNext = source,
				     .allocationSize = bytes,
				     .memoryTypeIndex = type};
	struct vulkan_buffer new_buffer = {.memory = VK_NULL_HANDLE};
	VkResult result = vulkan_buffer_create(device, bytes, handle, &new_buffer.buffer);

	if (result != VK_SUCCESS)
		return result;
	dedicated.buffer = new_buffer.buffer;
	if (shared && wants_dedicated(device, source))
		info.pNext = &dedicated;
	addressed.pNext = info.pNext;
	if (shared && device->can.kernel)
		info.pNext = &addressed;
	result = memory_bind(device, &info, &new_buffer);
	if (result == VK_SUCCESS && shared && device->can.kernel)
		new_buffer.address = buffer_address(device, new_buffer.buffer);
	if (result == VK_SUCCESS)
		*buffer = new_buffer;
	else
		device->vk.vkDestroyBuffer(device->handle, new_buffer.buffer, NULL);
	return result;
}

void vulkan_buffer_free(struct vulkan_device *device, struct vulkan_buffer *buffer)
{
	if (!buffer->memory)
		return;
	device->vk.vkDestroyBuffer(device->handle, buffer->buffer, NULL);
	vulkan_memory_free(device, buffer->memory);
	*buffer = (struct vulkan_buffer){.memory = VK_NULL_HANDLE};
}
