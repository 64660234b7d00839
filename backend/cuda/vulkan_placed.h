/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* The parts of VK_KHR_map_memory2 and VK_EXT_map_memory_placed that bar_vulkan.c uses, for older
 * headers. Values and layouts are those of the Vulkan registry. */
#ifndef BACKEND_CUDA_VULKAN_PLACED_H
#define BACKEND_CUDA_VULKAN_PLACED_H

#include <vulkan/vulkan.h>

#ifndef VK_KHR_map_memory2
#define VK_KHR_MAP_MEMORY_2_EXTENSION_NAME    "VK_KHR_map_memory2"
#define VK_STRUCTURE_TYPE_MEMORY_MAP_INFO_KHR ((VkStructureType)1000271000)

typedef struct VkMemoryMapInfoKHR {
	VkStructureType sType;
	const void *pNext;
	VkMemoryMapFlags flags;
	VkDeviceMemory memory;
	VkDeviceSize offset;
	VkDeviceSize size;
} VkMemoryMapInfoKHR;

typedef VkResult(VKAPI_PTR *PFN_vkMapMemory2KHR)(VkDevice device, const VkMemoryMapInfoKHR *info,
						 void **address);
#endif

#ifndef VK_EXT_map_memory_placed
#define VK_EXT_MAP_MEMORY_PLACED_EXTENSION_NAME "VK_EXT_map_memory_placed"
#define VK_MEMORY_MAP_PLACED_BIT_EXT		0x00000001
#define VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_MAP_MEMORY_PLACED_FEATURES_EXT                           \
	((VkStructureType)1000272000)
#define VK_STRUCTURE_TYPE_MEMORY_MAP_PLACED_INFO_EXT ((VkStructureType)1000272002)

typedef struct VkPhysicalDeviceMapMemoryPlacedFeaturesEXT {
	VkStructureType sType;
	void *pNext;
	VkBool32 memoryMapPlaced;
	VkBool32 memoryMapRangePlaced;
	VkBool32 memoryUnmapReserve;
} VkPhysicalDeviceMapMemoryPlacedFeaturesEXT;

typedef struct VkMemoryMapPlacedInfoEXT {
	VkStructureType sType;
	const void *pNext;
	void *pPlacedAddress;
} VkMemoryMapPlacedInfoEXT;
#endif

#endif
