/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* Opens the Vulkan loader, libvulkan.so.1, at run time: for the daemon, and for programs that map
 * GPU memory. */
#ifndef BACKEND_VULKAN_LOADER_LOADER_H
#define BACKEND_VULKAN_LOADER_LOADER_H

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
/* clang-format on */

#define VULKAN_FIELD(name) PFN_##name name;

struct vulkan_instance {
	VkInstance handle;
	PFN_vkGetInstanceProcAddr vkGetInstanceProcAddr;
	VULKAN_INSTANCE_FUNCTIONS(VULKAN_FIELD)
};

/* Loads the library and makes an instance: 0, or -ENODEV and the reason, as a line. The
 * library stays loaded: the drivers' threads do not survive unloading. */
int vulkan_instance_open(struct vulkan_instance *instance, char *reason, size_t size);
void vulkan_instance_close(struct vulkan_instance *instance);

/* "VK_ERROR_DEVICE_LOST", or "Vulkan error -1234". */
#define VULKAN_ERROR_NAME_MAX 64
const char *vulkan_error_name(VkResult result, char text[VULKAN_ERROR_NAME_MAX]);

#endif
