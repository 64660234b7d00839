/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
#include "backend/vulkan/calls.h"

const char *vulkan_calls_load(const struct vulkan_instance *instance, VkDevice device,
			      struct vulkan_calls *calls)
{
	PFN_vkGetDeviceProcAddr get = instance->vkGetDeviceProcAddr;

#define LOAD(name)                                                                                 \
	calls->name = (PFN_##name)get(device, #name);                                              \
	if (!calls->name)                                                                          \
		return #name;
	VULKAN_DEVICE_FUNCTIONS(LOAD)
#undef LOAD
	calls->vkGetMemoryHostPointerPropertiesEXT = (PFN_vkGetMemoryHostPointerPropertiesEXT)get(
	    device, "vkGetMemoryHostPointerPropertiesEXT");
	return NULL;
}
