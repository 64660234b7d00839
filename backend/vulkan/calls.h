/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* The functions of a VkDevice. */
#ifndef BACKEND_VULKAN_CALLS_H
#define BACKEND_VULKAN_CALLS_H

#include "backend/vulkan_loader/loader.h"

/* clang-format off */
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

/* The functions of one VkDevice. */
struct vulkan_calls {
	VULKAN_DEVICE_FUNCTIONS(VULKAN_FIELD)
	/* NULL without VK_EXT_external_memory_host. */
	PFN_vkGetMemoryHostPointerPropertiesEXT vkGetMemoryHostPointerPropertiesEXT;
};

/* NULL, or the name of a missing function. */
const char *vulkan_calls_load(const struct vulkan_instance *instance, VkDevice device,
			      struct vulkan_calls *calls);

#endif
