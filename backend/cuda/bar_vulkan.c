/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* A BAR mapping by Vulkan: the chunk's exported descriptor is imported as host-visible device
 * memory and mapped. Works on every driver with Vulkan's ICD, without a kernel module. */
#include <errno.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "backend/cuda/bar_way.h"
#include "backend/cuda/vulkan_placed.h"
#include "backend/vulkan_loader/loader.h"
#include "common/cleanup.h"

/* Measured on the reference machine: 136 us for 2 MiB, 2 ms for 256 MiB, 10 ms for 1 GiB. */
#define COST_NS_PER_MIB 10000

/* The import must be in the BAR: Vulkan also offers host-visible types that are not device-local,
 * which are other memory. */
#define WANTED_MEMORY                                                                              \
	(VK_MEMORY_PROPERTY_DEVICE_LOCAL_BIT | VK_MEMORY_PROPERTY_HOST_VISIBLE_BIT |               \
	 VK_MEMORY_PROPERTY_HOST_COHERENT_BIT)

#define PHYSICAL_DEVICES_MAX 64

/* clang-format off */
#define DEVICE_FUNCTIONS(X) \
	X(vkDestroyDevice) X(vkAllocateMemory) X(vkFreeMemory) X(vkMapMemory) X(vkUnmapMemory)
/* clang-format on */

struct vulkan_state {
	pthread_mutex_t lock; /* held in every call with the device */
	struct vulkan_instance instance;
	VkPhysicalDevice physical;
	VkDevice device;
	uint32_t memory_type;
	PFN_vkMapMemory2KHR map_at; /* NULL: a mapping cannot be placed */
	DEVICE_FUNCTIONS(VULKAN_FIELD)
};

static int result_describe(char *reason, const char *operation, VkResult result)
{
	char name[VULKAN_ERROR_NAME_MAX];

	snprintf(reason, BAR_REASON_MAX, "%s: %s", operation, vulkan_error_name(result, name));
	return result == VK_ERROR_OUT_OF_HOST_MEMORY ? -ENOMEM : -ENOTSUP;
}

static int physical_find(struct vulkan_state *vk, const gm_CUuuid *uuid, char *reason)
{
	VkPhysicalDevice found[PHYSICAL_DEVICES_MAX];
	uint32_t n = PHYSICAL_DEVICES_MAX;

	VkResult result = vk->instance.vkEnumeratePhysicalDevices(vk->instance.handle, &n, found);
	if (result != VK_SUCCESS && result != VK_INCOMPLETE)
		return result_describe(reason, "vkEnumeratePhysicalDevices", result);
	for (uint32_t i = 0; i < n; i++) {
		VkPhysicalDeviceIDProperties id = {
		    .sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_ID_PROPERTIES};
		VkPhysicalDeviceProperties2 properties = {
		    .sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_PROPERTIES_2, .pNext = &id};
		vk->instance.vkGetPhysicalDeviceProperties2(found[i], &properties);
		if (memcmp(id.deviceUUID, uuid->bytes, sizeof(uuid->bytes)) == 0) {
			vk->physical = found[i];
			return 0;
		}
	}
	snprintf(reason, BAR_REASON_MAX,
		 "none of Vulkan's %u devices is this GPU (is its ICD there?)", n);
	return -ENOTSUP;
}

static int memory_type_find(struct vulkan_state *vk, char *reason)
{
	VkPhysicalDeviceMemoryProperties2 memory = {
	    .sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_MEMORY_PROPERTIES_2};
	const VkPhysicalDeviceMemoryProperties *found = &memory.memoryProperties;

	vk->instance.vkGetPhysicalDeviceMemoryProperties2(vk->physical, &memory);
	for (uint32_t i = 0; i < found->memoryTypeCount; i++) {
		if ((found->memoryTypes[i].propertyFlags & WANTED_MEMORY) == WANTED_MEMORY) {
			vk->memory_type = i;
			return 0;
		}
	}
	snprintf(reason, BAR_REASON_MAX,
		 "no Vulkan memory type is the device's own and host-visible");
	return -ENOTSUP;
}

static bool has_extension(const VkExtensionProperties *extensions, uint32_t n, const char *name)
{
	for (uint32_t i = 0; i < n; i++)
		if (strcmp(extensions[i].extensionName, name) == 0)
			return true;
	return false;
}

/* Whether a mapping can be placed at a given address; enabled with the device. */
static bool placing_available(struct vulkan_state *vk)
{
	VkPhysicalDeviceMapMemoryPlacedFeaturesEXT placed = {
	    .sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_MAP_MEMORY_PLACED_FEATURES_EXT};
	VkPhysicalDeviceFeatures2 features = {.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_FEATURES_2,
					      .pNext = &placed};
	uint32_t n = 0;

	if (vk->instance.vkEnumerateDeviceExtensionProperties(vk->physical, NULL, &n, NULL) !=
	    VK_SUCCESS)
		return false;
	AUTO_FREE VkExtensionProperties *extensions = calloc(n + 1, sizeof(*extensions));
	if (!extensions || vk->instance.vkEnumerateDeviceExtensionProperties(
			       vk->physical, NULL, &n, extensions) != VK_SUCCESS)
		return false;
	if (!has_extension(extensions, n, VK_KHR_MAP_MEMORY_2_EXTENSION_NAME) ||
	    !has_extension(extensions, n, VK_EXT_MAP_MEMORY_PLACED_EXTENSION_NAME))
		return false;
	vk->instance.vkGetPhysicalDeviceFeatures2(vk->physical, &features);
	return placed.memoryMapPlaced;
}

static int device_create(struct vulkan_state *vk, char *reason)
{
	static const char *const extensions[] = {VK_KHR_EXTERNAL_MEMORY_FD_EXTENSION_NAME,
						 VK_KHR_MAP_MEMORY_2_EXTENSION_NAME,
						 VK_EXT_MAP_MEMORY_PLACED_EXTENSION_NAME};
	VkPhysicalDeviceMapMemoryPlacedFeaturesEXT placed = {
	    .sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_MAP_MEMORY_PLACED_FEATURES_EXT,
	    .memoryMapPlaced = VK_TRUE};
	bool place = placing_available(vk);
	float priority = 1;
	/* Every device has a queue, and every implementation a family 0. */
	VkDeviceQueueCreateInfo queue = {
	    .sType = VK_STRUCTURE_TYPE_DEVICE_QUEUE_CREATE_INFO,
	    .queueCount = 1,
	    .pQueuePriorities = &priority,
	};
	VkDeviceCreateInfo info = {
	    .sType = VK_STRUCTURE_TYPE_DEVICE_CREATE_INFO,
	    .pNext = place ? &placed : NULL,
	    .queueCreateInfoCount = 1,
	    .pQueueCreateInfos = &queue,
	    .enabledExtensionCount = place ? 3 : 1,
	    .ppEnabledExtensionNames = extensions,
	};

	VkResult result = vk->instance.vkCreateDevice(vk->physical, &info, NULL, &vk->device);
	if (result != VK_SUCCESS)
		return result_describe(
		    reason, "vkCreateDevice with " VK_KHR_EXTERNAL_MEMORY_FD_EXTENSION_NAME,
		    result);

#define LOAD(name)                                                                                 \
	vk->name = (PFN_##name)vk->instance.vkGetDeviceProcAddr(vk->device, #name);                \
	if (!vk->name) {                                                                           \
		snprintf(reason, BAR_REASON_MAX, "Vulkan has no " #name);                          \
		return -ENOTSUP;                                                                   \
	}
	DEVICE_FUNCTIONS(LOAD)
#undef LOAD
	if (place)
		vk->map_at = (PFN_vkMapMemory2KHR)vk->instance.vkGetDeviceProcAddr(
		    vk->device, "vkMapMemory2KHR");
	return 0;
}

static void vulkan_close(void *state)
{
	struct vulkan_state *vk = state;

	if (vk->device && vk->vkDestroyDevice)
		vk->vkDestroyDevice(vk->device, NULL);
	vulkan_instance_close(&vk->instance);
	pthread_mutex_destroy(&vk->lock);
	free(vk);
}

static int vulkan_open(const struct bar_device *device, void **state, char *reason)
{
	struct vulkan_state *vk = calloc(1, sizeof(*vk));
	if (!vk)
		return -ENOMEM;
	pthread_mutex_init(&vk->lock, NULL);
	int rc = vulkan_instance_open(&vk->instance, reason, BAR_REASON_MAX) < 0 ? -ENOTSUP : 0;
	if (rc == 0)
		rc = physical_find(vk, &device->uuid, reason);
	if (rc == 0)
		rc = memory_type_find(vk, reason);
	if (rc == 0)
		rc = device_create(vk, reason);
	if (rc < 0) {
		vulkan_close(vk);
		return rc;
	}
	*state = vk;
	return 0;
}

/* Under the lock. Only a successful import owns fd. */
static VkResult memory_import(struct vulkan_state *vk, int fd, uint64_t bytes,
			      VkDeviceMemory *memory)
{
	VkImportMemoryFdInfoKHR from = {
	    .sType = VK_STRUCTURE_TYPE_IMPORT_MEMORY_FD_INFO_KHR,
	    .handleType = VK_EXTERNAL_MEMORY_HANDLE_TYPE_OPAQUE_FD_BIT,
	    .fd = fd,
	};
	VkMemoryAllocateInfo info = {
	    .sType = VK_STRUCTURE_TYPE_MEMORY_ALLOCATE_INFO,
	    .pNext = &from,
	    .allocationSize = bytes,
	    .memoryTypeIndex = vk->memory_type,
	};

	VkResult result = vk->vkAllocateMemory(vk->device, &info, NULL, memory);
	if (result != VK_SUCCESS)
		close(fd);
	return result;
}

/* Under the lock. */
static VkResult memory_map(struct vulkan_state *vk, VkDeviceMemory memory, void *at, void **address)
{
	VkMemoryMapPlacedInfoEXT place = {.sType = VK_STRUCTURE_TYPE_MEMORY_MAP_PLACED_INFO_EXT,
					  .pPlacedAddress = at};
	VkMemoryMapInfoKHR info = {
	    .sType = VK_STRUCTURE_TYPE_MEMORY_MAP_INFO_KHR,
	    .pNext = &place,
	    .flags = VK_MEMORY_MAP_PLACED_BIT_EXT,
	    .memory = memory,
	    .size = VK_WHOLE_SIZE,
	};

	if (at && vk->map_at)
		return vk->map_at(vk->device, &info, address);
	return vk->vkMapMemory(vk->device, memory, 0, VK_WHOLE_SIZE, 0, address);
}

static int vulkan_map(void *state, const struct bar_source *source, void *at, void **address,
		      void **mapping, char *reason)
{
	struct vulkan_state *vk = state;

	int fd;
	int rc = source->export(source, &fd);
	if (rc < 0) {
		snprintf(reason, BAR_REASON_MAX, "export: %s", strerror(-rc));
		return rc;
	}
	scoped_lock(&vk->lock);
	VkDeviceMemory memory;
	VkResult result = memory_import(vk, fd, source->bytes, &memory);
	if (result != VK_SUCCESS) {
		rc = result_describe(reason, "import", result);
		return result == VK_ERROR_OUT_OF_DEVICE_MEMORY ? -ENOSPC : rc;
	}
	result = memory_map(vk, memory, at, address);
	if (result != VK_SUCCESS) {
		vk->vkFreeMemory(vk->device, memory, NULL);
		rc = result_describe(reason, "vkMapMemory", result);
		return result == VK_ERROR_MEMORY_MAP_FAILED ? -ENOSPC : rc;
	}
	*mapping = (void *)memory;
	return 0;
}

static void vulkan_unmap(void *state, void *address, uint64_t bytes, void *mapping)
{
	struct vulkan_state *vk = state;
	VkDeviceMemory memory = (VkDeviceMemory)mapping;

	(void)address;
	(void)bytes;
	scoped_lock(&vk->lock);
	vk->vkUnmapMemory(vk->device, memory);
	vk->vkFreeMemory(vk->device, memory, NULL);
}

const struct bar_way cuda_bar_vulkan = {
    .name = "vulkan",
    .needs = BAR_NEEDS_NOTHING,
    .cost = COST_NS_PER_MIB,
    .open = vulkan_open,
    .close = vulkan_close,
    .map = vulkan_map,
    .unmap = vulkan_unmap,
};
