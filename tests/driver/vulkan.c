/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* Stand-in libvulkan.so.1: just enough of a loader and driver to import memory that was exported by
 * the stand-in libcuda.so.1 and to map it. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tests/driver/other.h"
#include "tests/driver/vulkan.h"

static const char memory_fd_name[] = VK_KHR_EXTERNAL_MEMORY_FD_EXTENSION_NAME;

static VKAPI_ATTR VkResult VKAPI_CALL instance_version(uint32_t *version)
{
	*version = VK_API_VERSION_1_3;
	return VK_SUCCESS;
}

static VkResult enumerate(const char *const *names, uint32_t n, uint32_t *count,
			  VkExtensionProperties *properties)
{
	uint32_t room = *count;

	*count = properties && room < n ? room : n;
	for (uint32_t i = 0; properties && i < *count; i++) {
		memset(&properties[i], 0, sizeof(properties[i]));
		snprintf(properties[i].extensionName, sizeof(properties[i].extensionName), "%s",
			 names[i]);
		properties[i].specVersion = 1;
	}
	return properties && room < n ? VK_INCOMPLETE : VK_SUCCESS;
}

static VKAPI_ATTR VkResult VKAPI_CALL instance_extensions(const char *layer, uint32_t *count,
							  VkExtensionProperties *properties)
{
	static const char *const names[] = {
	    VK_KHR_GET_PHYSICAL_DEVICE_PROPERTIES_2_EXTENSION_NAME,
	    VK_KHR_EXTERNAL_MEMORY_CAPABILITIES_EXTENSION_NAME,
	};

	if (layer)
		return VK_ERROR_LAYER_NOT_PRESENT;
	return enumerate(names, 2, count, properties);
}

static VKAPI_ATTR VkResult VKAPI_CALL device_extensions(VkPhysicalDevice physical,
							const char *layer, uint32_t *count,
							VkExtensionProperties *properties)
{
	static const char *const names[] = {
	    "VK_KHR_maintenance1",
	    VK_KHR_EXTERNAL_MEMORY_EXTENSION_NAME,
	    memory_fd_name,
	};

	if (layer)
		return VK_ERROR_LAYER_NOT_PRESENT;
	return enumerate(names, physical->software ? 1 : 3, count, properties);
}

static VKAPI_ATTR VkResult VKAPI_CALL create_instance(const VkInstanceCreateInfo *info,
						      const VkAllocationCallbacks *callbacks,
						      VkInstance *instance)
{
	VkInstance made;

	(void)callbacks;
	/* The loader's answer on a machine without a driver. */
	if (other_setting_is("GPUMEM_STANDIN_VULKAN", "0"))
		return VK_ERROR_INCOMPATIBLE_DRIVER;
	if (info->enabledLayerCount)
		return VK_ERROR_LAYER_NOT_PRESENT;
	made = calloc(1, sizeof(*made));
	if (!made)
		return VK_ERROR_OUT_OF_HOST_MEMORY;
	made->n = other_gpus() + 1;
	made->physical = calloc(made->n, sizeof(*made->physical));
	if (!made->physical) {
		free(made);
		return VK_ERROR_OUT_OF_HOST_MEMORY;
	}
	made->physical[0].software = true;
	for (uint32_t i = 1; i < made->n; i++)
		made->physical[i].gpu = made->n - 1 - i; /* in reverse of CUDA's order */
	*instance = made;
	return VK_SUCCESS;
}

static VKAPI_ATTR void VKAPI_CALL destroy_instance(VkInstance instance,
						   const VkAllocationCallbacks *callbacks)
{
	(void)callbacks;
	if (!instance)
		return;
	free(instance->physical);
	free(instance);
}

static VKAPI_ATTR VkResult VKAPI_CALL physical_devices(VkInstance instance, uint32_t *count,
						       VkPhysicalDevice *devices)
{
	uint32_t room = *count;

	*count = devices && room < instance->n ? room : instance->n;
	for (uint32_t i = 0; devices && i < *count; i++)
		devices[i] = &instance->physical[i];
	return devices && room < instance->n ? VK_INCOMPLETE : VK_SUCCESS;
}

static VKAPI_ATTR void VKAPI_CALL properties(VkPhysicalDevice physical,
					     VkPhysicalDeviceProperties *out)
{
	struct standin_gpu info = {.name = "software"};

	if (!physical->software)
		other_helpers()->gpu_info(physical->gpu, &info);
	memset(out, 0, sizeof(*out));
	out->apiVersion = VK_API_VERSION_1_3;
	out->vendorID = physical->software ? 0x10005 : 0x10de;
	out->deviceType =
	    physical->software ? VK_PHYSICAL_DEVICE_TYPE_CPU : VK_PHYSICAL_DEVICE_TYPE_DISCRETE_GPU;
	snprintf(out->deviceName, sizeof(out->deviceName), "%s", info.name);
	out->limits.maxMemoryAllocationCount = 4096;
	out->limits.minMemoryMapAlignment = 64;
	out->limits.nonCoherentAtomSize = 64;
}

static VKAPI_ATTR void VKAPI_CALL properties2(VkPhysicalDevice physical,
					      VkPhysicalDeviceProperties2 *out)
{
	VkBaseOutStructure *next = out->pNext;
	struct standin_gpu info = {0};

	properties(physical, &out->properties);
	if (!physical->software)
		other_helpers()->gpu_info(physical->gpu, &info);
	for (; next; next = next->pNext) {
		VkPhysicalDeviceIDProperties *id = (VkPhysicalDeviceIDProperties *)next;

		if (next->sType == VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_ID_PROPERTIES)
			memcpy(id->deviceUUID, info.uuid, VK_UUID_SIZE);
	}
}

static VKAPI_ATTR void VKAPI_CALL memory_properties(VkPhysicalDevice physical,
						    VkPhysicalDeviceMemoryProperties *out)
{
	(void)physical;
	vulkan_memory_types(out);
}

static VKAPI_ATTR void VKAPI_CALL memory_properties2(VkPhysicalDevice physical,
						     VkPhysicalDeviceMemoryProperties2 *out)
{
	memory_properties(physical, &out->memoryProperties);
}

/* None; structures of extensions that the device lacks are passed over. */
static VKAPI_ATTR void VKAPI_CALL features2(VkPhysicalDevice physical,
					    VkPhysicalDeviceFeatures2 *out)
{
	(void)physical;
	out->features = (VkPhysicalDeviceFeatures){0};
}

static VKAPI_ATTR void VKAPI_CALL queue_families(VkPhysicalDevice physical, uint32_t *count,
						 VkQueueFamilyProperties *out)
{
	(void)physical;
	if (out && *count)
		*out = (VkQueueFamilyProperties){
		    .queueFlags = VK_QUEUE_TRANSFER_BIT | VK_QUEUE_COMPUTE_BIT,
		    .queueCount = 1,
		};
	*count = 1;
}

static VKAPI_ATTR void VKAPI_CALL external_buffers(VkPhysicalDevice physical,
						   const VkPhysicalDeviceExternalBufferInfo *info,
						   VkExternalBufferProperties *out)
{
	bool known = info->handleType == VK_EXTERNAL_MEMORY_HANDLE_TYPE_OPAQUE_FD_BIT;
	VkExternalMemoryProperties *memory = &out->externalMemoryProperties;

	memset(memory, 0, sizeof(*memory));
	if (physical->software || !known)
		return;
	memory->externalMemoryFeatures =
	    VK_EXTERNAL_MEMORY_FEATURE_IMPORTABLE_BIT | VK_EXTERNAL_MEMORY_FEATURE_EXPORTABLE_BIT;
	memory->exportFromImportedHandleTypes = info->handleType;
	memory->compatibleHandleTypes = info->handleType;
}

static VKAPI_ATTR VkResult VKAPI_CALL create_device(VkPhysicalDevice physical,
						    const VkDeviceCreateInfo *info,
						    const VkAllocationCallbacks *callbacks,
						    VkDevice *device)
{
	VkDevice made;

	(void)callbacks;
	made = calloc(1, sizeof(*made));
	if (!made)
		return VK_ERROR_OUT_OF_HOST_MEMORY;
	made->gpu = physical->gpu;
	for (uint32_t i = 0; i < info->enabledExtensionCount; i++) {
		bool memory_fd = !strcmp(info->ppEnabledExtensionNames[i], memory_fd_name);

		if (memory_fd && physical->software) {
			free(made);
			return VK_ERROR_EXTENSION_NOT_PRESENT;
		}
		made->has_memory_fd |= memory_fd;
	}
	if (vulkan_client_open(made) < 0) {
		free(made);
		return VK_ERROR_INITIALIZATION_FAILED;
	}
	*device = made;
	return VK_SUCCESS;
}

static VKAPI_ATTR void VKAPI_CALL destroy_device(VkDevice device,
						 const VkAllocationCallbacks *callbacks)
{
	unsigned left;

	(void)callbacks;
	if (!device)
		return;
	left = atomic_load(&device->memories);
	if (left)
		other_leak_line("standin: pid=%d vulkan_memories=%u\n", (int)getpid(), left);
	vulkan_client_close(device);
	free(device);
}

static VKAPI_ATTR VkResult VKAPI_CALL wait_idle(VkDevice device)
{
	(void)device;
	return VK_SUCCESS;
}

static PFN_vkVoidFunction find(const struct vulkan_function *functions, size_t n, const char *name)
{
	for (size_t i = 0; i < n; i++)
		if (!strcmp(functions[i].name, name))
			return functions[i].function;
	return NULL;
}
#define FIND(functions, name) find(functions, sizeof(functions) / sizeof((functions)[0]), name)

static const struct vulkan_function device_functions[] = {
    {"vkDestroyDevice", (PFN_vkVoidFunction)destroy_device},
    {"vkDeviceWaitIdle", (PFN_vkVoidFunction)wait_idle},
};

static VKAPI_ATTR PFN_vkVoidFunction VKAPI_CALL device_function(VkDevice device, const char *name)
{
	PFN_vkVoidFunction function = FIND(device_functions, name);

	return function ? function : vulkan_memory_function(name, device->has_memory_fd);
}

STANDIN_API VKAPI_ATTR PFN_vkVoidFunction VKAPI_CALL vkGetInstanceProcAddr(VkInstance instance,
									   const char *name)
{
	static const struct vulkan_function global[] = {
	    {"vkGetInstanceProcAddr", (PFN_vkVoidFunction)vkGetInstanceProcAddr},
	    {"vkCreateInstance", (PFN_vkVoidFunction)create_instance},
	    {"vkEnumerateInstanceVersion", (PFN_vkVoidFunction)instance_version},
	    {"vkEnumerateInstanceExtensionProperties", (PFN_vkVoidFunction)instance_extensions},
	};
	static const struct vulkan_function instances[] = {
	    {"vkDestroyInstance", (PFN_vkVoidFunction)destroy_instance},
	    {"vkEnumeratePhysicalDevices", (PFN_vkVoidFunction)physical_devices},
	    {"vkGetPhysicalDeviceProperties", (PFN_vkVoidFunction)properties},
	    {"vkGetPhysicalDeviceProperties2", (PFN_vkVoidFunction)properties2},
	    {"vkGetPhysicalDeviceProperties2KHR", (PFN_vkVoidFunction)properties2},
	    {"vkGetPhysicalDeviceFeatures2", (PFN_vkVoidFunction)features2},
	    {"vkGetPhysicalDeviceMemoryProperties", (PFN_vkVoidFunction)memory_properties},
	    {"vkGetPhysicalDeviceMemoryProperties2", (PFN_vkVoidFunction)memory_properties2},
	    {"vkGetPhysicalDeviceQueueFamilyProperties", (PFN_vkVoidFunction)queue_families},
	    {"vkGetPhysicalDeviceExternalBufferProperties", (PFN_vkVoidFunction)external_buffers},
	    {"vkEnumerateDeviceExtensionProperties", (PFN_vkVoidFunction)device_extensions},
	    {"vkCreateDevice", (PFN_vkVoidFunction)create_device},
	    {"vkGetDeviceProcAddr", (PFN_vkVoidFunction)device_function},
	};
	PFN_vkVoidFunction function = FIND(global, name);

	if (function || !instance)
		return function;
	function = FIND(instances, name);
	if (!function)
		function = FIND(device_functions, name);
	return function ? function : vulkan_memory_function(name, true);
}
