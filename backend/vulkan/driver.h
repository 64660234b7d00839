/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* Loads Vulkan's loader at run time. */
#ifndef BACKEND_VULKAN_DRIVER_H
#define BACKEND_VULKAN_DRIVER_H

#include <stdbool.h>
#include <stddef.h>

#define VK_NO_PROTOTYPES
#include <vulkan/vulkan.h>

/* clang-format off */
#define VULKAN_INSTANCE_FUNCTIONS(X) \
	X(vkDestroyInstance) X(vkEnumeratePhysicalDevices) X(vkGetPhysicalDeviceProperties2) \
	X(vkGetPhysicalDeviceFeatures2) X(vkGetPhysicalDeviceMemoryProperties2) \
	X(vkGetPhysicalDeviceQueueFamilyProperties) X(vkGetPhysicalDeviceExternalBufferProperties) \
	X(vkEnumerateDeviceExtensionProperties) X(vkCreateDevice) X(vkGetDeviceProcAddr)
#define VULKAN_DEVICE_FUNCTIONS(X) \
	X(vkDestroyDevice) X(vkGetDeviceQueue) X(vkAllocateMemory) X(vkFreeMemory) \
	X(vkMapMemory) X(vkUnmapMemory) X(vkGetMemoryFdKHR) X(vkCreateBuffer) X(vkDestroyBuffer) \
	X(vkGetBufferMemoryRequirements) X(vkBindBufferMemory) X(vkCreateCommandPool) \
	X(vkDestroyCommandPool) X(vkAllocateCommandBuffers) X(vkBeginCommandBuffer) \
	X(vkEndCommandBuffer) X(vkCmdCopyBuffer) X(vkCmdFillBuffer) X(vkCmdPipelineBarrier) \
	X(vkQueueSubmit) X(vkCreateSemaphore) X(vkDestroySemaphore) X(vkWaitSemaphores) \
	X(vkGetSemaphoreCounterValue) X(vkGetBufferDeviceAddress) X(vkCreateShaderModule) \
	X(vkDestroyShaderModule) X(vkCreatePipelineLayout) X(vkDestroyPipelineLayout) \
	X(vkCreateComputePipelines) X(vkDestroyPipeline) X(vkCmdBindPipeline) \
	X(vkCmdPushConstants) X(vkCmdDispatch)
/* clang-format on */

#define VULKAN_FIELD(name) PFN_##name name;

struct vulkan_instance {
	VkInstance handle;
	PFN_vkGetInstanceProcAddr vkGetInstanceProcAddr;
	VULKAN_INSTANCE_FUNCTIONS(VULKAN_FIELD)
};

/* The functions of one VkDevice. */
struct vulkan_calls {
	VULKAN_DEVICE_FUNCTIONS(VULKAN_FIELD)
	/* NULL without VK_EXT_external_memory_host. */
	PFN_vkGetMemoryHostPointerPropertiesEXT vkGetMemoryHostPointerPropertiesEXT;
};

/* Loads the library and makes an instance: 0, or -ENODEV and the reason, as a line. The
 * library stays loaded: the drivers' threads do not survive unloading. */
int vulkan_instance_open(struct vulkan_instance *instance, char *reason, size_t size);
void vulkan_instance_close(struct vulkan_instance *instance);

/* NULL, or the name of a missing function. */
const char *vulkan_calls_load(const struct vulkan_instance *instance, VkDevice device,
			      struct vulkan_calls *calls);

/* result.c: "VK_ERROR_DEVICE_LOST", or "Vulkan error -1234". */
#define VULKAN_ERROR_NAME_MAX 64
const char *vulkan_error_name(VkResult result, char text[VULKAN_ERROR_NAME_MAX]);

#endif
