/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
#include "backend/vulkan_loader/loader.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "common/driver_library.h"

const char *vulkan_error_name(VkResult result, char text[VULKAN_ERROR_NAME_MAX])
{
#define NAME(value)                                                                                \
	case value:                                                                                \
		snprintf(text, VULKAN_ERROR_NAME_MAX, "%s", #value);                               \
		break;
	switch (result) {
		NAME(VK_ERROR_OUT_OF_HOST_MEMORY)
		NAME(VK_ERROR_OUT_OF_DEVICE_MEMORY)
		NAME(VK_ERROR_INITIALIZATION_FAILED)
		NAME(VK_ERROR_DEVICE_LOST)
		NAME(VK_ERROR_MEMORY_MAP_FAILED)
		NAME(VK_ERROR_EXTENSION_NOT_PRESENT)
		NAME(VK_ERROR_FEATURE_NOT_PRESENT)
		NAME(VK_ERROR_INCOMPATIBLE_DRIVER)
		NAME(VK_ERROR_TOO_MANY_OBJECTS)
		NAME(VK_ERROR_INVALID_EXTERNAL_HANDLE)
	default:
		snprintf(text, VULKAN_ERROR_NAME_MAX, "Vulkan error %d", (int)result);
	}
#undef NAME
	return text;
}

static int library_load(struct vulkan_instance *instance, char *reason, size_t size)
{
	static const struct driver_symbol symbol = {
	    "vkGetInstanceProcAddr", offsetof(struct vulkan_instance, vkGetInstanceProcAddr),
	    REQUIRED};
	void *library;

	return driver_load("libvulkan.so.1", &symbol, 1, instance, reason, size, &library);
}

/* NULL, or the name of a missing function. */
static const char *instance_load(struct vulkan_instance *instance)
{
#define LOAD(name)                                                                                 \
	instance->name = (PFN_##name)instance->vkGetInstanceProcAddr(instance->handle, #name);     \
	if (!instance->name)                                                                       \
		return #name;
	VULKAN_INSTANCE_FUNCTIONS(LOAD)
#undef LOAD
	return NULL;
}

int vulkan_instance_open(struct vulkan_instance *instance, char *reason, size_t size)
{
	VkApplicationInfo application = {.sType = VK_STRUCTURE_TYPE_APPLICATION_INFO,
					 .pApplicationName = "gpumemfs",
					 .apiVersion = VK_API_VERSION_1_3};
	VkInstanceCreateInfo info = {.sType = VK_STRUCTURE_TYPE_INSTANCE_CREATE_INFO,
				     .pApplicationInfo = &application};
	char name[VULKAN_ERROR_NAME_MAX];
	int rc = library_load(instance, reason, size);

	if (rc < 0)
		return rc;
	PFN_vkCreateInstance create =
	    (PFN_vkCreateInstance)instance->vkGetInstanceProcAddr(NULL, "vkCreateInstance");
	VkResult result =
	    create ? create(&info, NULL, &instance->handle) : VK_ERROR_INITIALIZATION_FAILED;

	if (result != VK_SUCCESS) {
		instance->handle = VK_NULL_HANDLE;
		if (result == VK_ERROR_INCOMPATIBLE_DRIVER)
			snprintf(reason, size, "libvulkan.so.1 finds no driver");
		else
			snprintf(reason, size, "vkCreateInstance: %s",
				 vulkan_error_name(result, name));
		return -ENODEV;
	}
	const char *missing = instance_load(instance);

	if (!missing)
		return 0;
	snprintf(reason, size, "libvulkan.so.1 has no %s: Vulkan 1.2 is needed", missing);
	vulkan_instance_close(instance);
	return -ENODEV;
}

void vulkan_instance_close(struct vulkan_instance *instance)
{
	if (instance->handle && instance->vkDestroyInstance)
		instance->vkDestroyInstance(instance->handle, NULL);
	instance->handle = VK_NULL_HANDLE;
}
