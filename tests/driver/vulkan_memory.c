/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* Stand-in libvulkan.so.1: device memory, created by import only. A mistake that Vulkan calls
 * undefined ends the process. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tests/driver/other.h"
#include "tests/driver/vulkan.h"

#define MAGIC 0x6d656d76U

void vulkan_memory_types(VkPhysicalDeviceMemoryProperties *properties)
{
	static const VkMemoryType types[N_MEMORY_TYPES] = {
	    [TYPE_SYSTEM] = {VK_MEMORY_PROPERTY_HOST_VISIBLE_BIT |
				 VK_MEMORY_PROPERTY_HOST_COHERENT_BIT,
			     1},
	    [TYPE_DEVICE] = {VK_MEMORY_PROPERTY_DEVICE_LOCAL_BIT, 0},
	    [TYPE_SYSTEM_CACHED] = {VK_MEMORY_PROPERTY_HOST_VISIBLE_BIT |
					VK_MEMORY_PROPERTY_HOST_COHERENT_BIT |
					VK_MEMORY_PROPERTY_HOST_CACHED_BIT,
				    1},
	    [TYPE_DEVICE_MAPPABLE] = {VK_MEMORY_PROPERTY_DEVICE_LOCAL_BIT |
					  VK_MEMORY_PROPERTY_HOST_VISIBLE_BIT |
					  VK_MEMORY_PROPERTY_HOST_COHERENT_BIT,
				      0},
	};

	memset(properties, 0, sizeof(*properties));
	properties->memoryTypeCount = N_MEMORY_TYPES;
	memcpy(properties->memoryTypes, types, sizeof(types));
	properties->memoryHeapCount = 2;
	properties->memoryHeaps[0] = (VkMemoryHeap){256ULL << 30, VK_MEMORY_HEAP_DEVICE_LOCAL_BIT};
	properties->memoryHeaps[1] = (VkMemoryHeap){64ULL << 30, 0};
}

static struct VkDeviceMemory_T *check(VkDevice device, VkDeviceMemory handle)
{
	struct VkDeviceMemory_T *memory = (struct VkDeviceMemory_T *)handle;

	vulkan_client_check(device);
	if (memory->magic != MAGIC || memory->device != device)
		vulkan_refuse("memory that is not this device's");
	return memory;
}

static const VkImportMemoryFdInfoKHR *find_import(const VkMemoryAllocateInfo *info)
{
	const VkBaseInStructure *next = info->pNext;

	while (next && next->sType != VK_STRUCTURE_TYPE_IMPORT_MEMORY_FD_INFO_KHR)
		next = next->pNext;
	return (const VkImportMemoryFdInfoKHR *)next;
}

/* The device owns the fd only after a successful import. */
static VkResult import(VkDevice device, const VkMemoryAllocateInfo *info, int shared,
		       struct VkDeviceMemory_T *memory)
{
	unsigned gpu;
	uint64_t size;
	int fd = other_helpers()->reopen(shared, &gpu, &size);
	struct stat st;

	if (fd < 0)
		return VK_ERROR_INVALID_EXTERNAL_HANDLE;
	if (gpu != device->gpu || size != info->allocationSize) {
		close(fd);
		return VK_ERROR_INVALID_EXTERNAL_HANDLE;
	}
	if (info->memoryTypeIndex == TYPE_DEVICE_MAPPABLE &&
	    other_helpers()->bar_take(gpu, (int64_t)size)) {
		close(fd);
		return VK_ERROR_OUT_OF_DEVICE_MEMORY;
	}
	*memory = (struct VkDeviceMemory_T){.magic = MAGIC,
					    .device = device,
					    .type = info->memoryTypeIndex,
					    .size = size,
					    .fd = fd};
	memory->inode = fstat(fd, &st) == 0 ? st.st_ino : 0;
	return VK_SUCCESS;
}

static VKAPI_ATTR VkResult VKAPI_CALL allocate(VkDevice device, const VkMemoryAllocateInfo *info,
					       const VkAllocationCallbacks *callbacks,
					       VkDeviceMemory *handle)
{
	const VkImportMemoryFdInfoKHR *from = find_import(info);
	struct VkDeviceMemory_T *memory;
	VkResult result;

	(void)callbacks;
	vulkan_client_check(device);
	if (info->sType != VK_STRUCTURE_TYPE_MEMORY_ALLOCATE_INFO ||
	    info->memoryTypeIndex >= N_MEMORY_TYPES)
		vulkan_refuse("vkAllocateMemory: wrong sType or memoryTypeIndex");
	if (!from)
		return VK_ERROR_OUT_OF_DEVICE_MEMORY;
	if (!device->has_memory_fd)
		vulkan_refuse("an import without VK_KHR_external_memory_fd");
	if (from->handleType != VK_EXTERNAL_MEMORY_HANDLE_TYPE_OPAQUE_FD_BIT)
		return VK_ERROR_INVALID_EXTERNAL_HANDLE;
	memory = calloc(1, sizeof(*memory));
	if (!memory)
		return VK_ERROR_OUT_OF_HOST_MEMORY;
	result = import(device, info, from->fd, memory);
	if (result != VK_SUCCESS) {
		free(memory);
		return result;
	}
	close(from->fd);
	atomic_fetch_add(&device->memories, 1);
	*handle = (VkDeviceMemory)memory;
	return VK_SUCCESS;
}

static void list_add(VkDevice device, struct VkDeviceMemory_T *memory)
{
	pthread_mutex_lock(&device->lock);
	memory->next = device->list;
	device->list = memory;
	pthread_mutex_unlock(&device->lock);
}

static void list_remove(VkDevice device, struct VkDeviceMemory_T *memory)
{
	struct VkDeviceMemory_T **at = &device->list;

	pthread_mutex_lock(&device->lock);
	while (*at != memory)
		at = &(*at)->next;
	*at = memory->next;
	pthread_mutex_unlock(&device->lock);
}

static VKAPI_ATTR void VKAPI_CALL unmap(VkDevice device, VkDeviceMemory handle)
{
	struct VkDeviceMemory_T *memory = check(device, handle);

	if (!memory->mapped)
		vulkan_refuse("vkUnmapMemory of memory that is not mapped");
	list_remove(device, memory);
	munmap(memory->mapped, memory->mapped_size);
	memory->mapped = NULL;
}

static VKAPI_ATTR void VKAPI_CALL release(VkDevice device, VkDeviceMemory handle,
					  const VkAllocationCallbacks *callbacks)
{
	struct VkDeviceMemory_T *memory;

	(void)callbacks;
	if (!handle)
		return;
	memory = check(device, handle);
	if (memory->mapped)
		unmap(device, handle);
	if (memory->type == TYPE_DEVICE_MAPPABLE)
		other_helpers()->bar_take(device->gpu, -(int64_t)memory->size);
	close(memory->fd);
	memory->magic = 0;
	free(memory);
	atomic_fetch_sub(&device->memories, 1);
}

/* Maps other bytes for memory of a type other than the GPU's mappable type. The real trap types of
 * a few drivers do the same, and a program must not rely on such types. */
static VKAPI_ATTR VkResult VKAPI_CALL map(VkDevice device, VkDeviceMemory handle,
					  VkDeviceSize offset, VkDeviceSize size,
					  VkMemoryMapFlags flags, void **address)
{
	struct VkDeviceMemory_T *memory = check(device, handle);
	bool honest = memory->type == TYPE_DEVICE_MAPPABLE &&
		      !other_setting_is("GPUMEM_STANDIN_VULKAN", "lie");

	if (size == VK_WHOLE_SIZE)
		size = memory->size - offset;
	if (flags || offset + size > memory->size || offset % 4096 || !size)
		vulkan_refuse("vkMapMemory outside of the memory");
	if (memory->mapped || memory->type == TYPE_DEVICE)
		return VK_ERROR_MEMORY_MAP_FAILED;
	memory->mapped_size = size;
	memory->mapped = mmap(NULL, size, PROT_READ | PROT_WRITE,
			      honest ? MAP_SHARED : MAP_PRIVATE | MAP_ANONYMOUS,
			      honest ? memory->fd : -1, honest ? (off_t)offset : 0);
	if (memory->mapped == MAP_FAILED) {
		memory->mapped = NULL;
		return VK_ERROR_MEMORY_MAP_FAILED;
	}
	list_add(device, memory);
	*address = memory->mapped;
	return VK_SUCCESS;
}

/* The specification excludes opaque fds from the call. */
static VKAPI_ATTR VkResult VKAPI_CALL fd_properties(VkDevice device,
						    VkExternalMemoryHandleTypeFlagBits type, int fd,
						    VkMemoryFdPropertiesKHR *properties)
{
	(void)device, (void)type, (void)fd, (void)properties;
	return VK_ERROR_INVALID_EXTERNAL_HANDLE;
}

static VKAPI_ATTR VkResult VKAPI_CALL flush(VkDevice device, uint32_t n,
					    const VkMappedMemoryRange *ranges)
{
	(void)device, (void)n, (void)ranges;
	return VK_SUCCESS;
}

PFN_vkVoidFunction vulkan_memory_function(const char *name, bool has_memory_fd)
{
	static const struct vulkan_function functions[] = {
	    {"vkAllocateMemory", (PFN_vkVoidFunction)allocate},
	    {"vkFreeMemory", (PFN_vkVoidFunction)release},
	    {"vkMapMemory", (PFN_vkVoidFunction)map},
	    {"vkUnmapMemory", (PFN_vkVoidFunction)unmap},
	    {"vkFlushMappedMemoryRanges", (PFN_vkVoidFunction)flush},
	    {"vkInvalidateMappedMemoryRanges", (PFN_vkVoidFunction)flush},
	    {"vkGetMemoryFdPropertiesKHR", (PFN_vkVoidFunction)fd_properties},
	};

	for (size_t i = 0; i < sizeof(functions) / sizeof(functions[0]); i++)
		if (!strcmp(functions[i].name, name) &&
		    (has_memory_fd || !strstr(name, "FdPropertiesKHR")))
			return functions[i].function;
	return NULL;
}
