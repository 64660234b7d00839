/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* Inside the stand-in libvulkan.so.1. */
#ifndef DRIVER_VULKAN_H
#define DRIVER_VULKAN_H

#include <stdatomic.h>
#include <stdbool.h>
#include <vulkan/vulkan.h>

#include "tests/driver/helpers.h"

struct VkInstance_T {
	VkPhysicalDevice physical; /* array */
	uint32_t n;
};

struct VkPhysicalDevice_T {
	bool software; /* a renderer on the CPU, listed first: it is not what anybody wants */
	unsigned gpu;
};

struct VkDevice_T {
	unsigned gpu;
	bool has_memory_fd; /* VK_KHR_external_memory_fd was enabled */
	atomic_uint memories;
};

/* The memory types, in the order in which a careless program would take them. */
enum memory_type {
	TYPE_SYSTEM, /* host visible and coherent, but not the GPU's */
	TYPE_DEVICE, /* the GPU's, cannot be mapped */
	TYPE_SYSTEM_CACHED,
	TYPE_DEVICE_MAPPABLE, /* the one */
	N_MEMORY_TYPES
};

/* vulkan_memory.c */
void vulkan_memory_types(VkPhysicalDeviceMemoryProperties *properties);
PFN_vkVoidFunction vulkan_memory_function(const char *name, bool has_memory_fd);

struct vulkan_function {
	const char *name;
	PFN_vkVoidFunction function;
};

#endif
