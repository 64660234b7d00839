/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* What a physical device offers, and the choice of queues. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "backend/vulkan/provider.h"
#include "common/cleanup.h"

/* llvmpipe computes with signed 32-bit sizes. */
#define SOFTWARE_BYTES_MAX (1ULL << 30)

/* In the order of the answers below. */
struct extension {
	const char *name;
	bool found;
};

static int extensions_find(struct vulkan_device *device, struct extension *extensions, unsigned n)
{
	const struct vulkan_instance *vk = &device->vulkan->instance;
	uint32_t count = 0;

	if (vk->vkEnumerateDeviceExtensionProperties(device->physical, NULL, &count, NULL))
		return -ENOTSUP;
	AUTO_FREE VkExtensionProperties *all = calloc(count + 1, sizeof(*all));

	if (!all ||
	    vk->vkEnumerateDeviceExtensionProperties(device->physical, NULL, &count, all) < 0)
		return -ENOTSUP;
	for (unsigned i = 0; i < n; i++)
		for (uint32_t j = 0; j < count; j++)
			extensions[i].found |=
			    strcmp(all[j].extensionName, extensions[i].name) == 0;
	return 0;
}

static void uuid_describe(struct device *base, const uint8_t uuid[VK_UUID_SIZE])
{
	size_t room = sizeof(base->uuid);
	int at = snprintf(base->uuid, room, "GPU-");

	for (unsigned i = 0; i < VK_UUID_SIZE; i++)
		at += snprintf(base->uuid + at, room - (size_t)at, "%s%02x",
			       i == 4 || i == 6 || i == 8 || i == 10 ? "-" : "", uuid[i]);
}

/* Structures that the driver does not know stay as they are. */
static uint32_t properties_find(struct vulkan_device *device, bool has_pci)
{
	VkPhysicalDeviceMaintenance4Properties buffers = {
	    .sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_MAINTENANCE_4_PROPERTIES};
	VkPhysicalDeviceMaintenance3Properties sizes = {
	    .sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_MAINTENANCE_3_PROPERTIES, .pNext = &buffers};
	VkPhysicalDeviceExternalMemoryHostPropertiesEXT host = {
	    .sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_EXTERNAL_MEMORY_HOST_PROPERTIES_EXT,
	    .pNext = &sizes};
	VkPhysicalDevicePCIBusInfoPropertiesEXT pci = {
	    .sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_PCI_BUS_INFO_PROPERTIES_EXT, .pNext = &host};
	VkPhysicalDeviceDriverProperties driver = {
	    .sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_DRIVER_PROPERTIES, .pNext = &pci};
	VkPhysicalDeviceIDProperties id = {.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_ID_PROPERTIES,
					   .pNext = &driver};
	VkPhysicalDeviceProperties2 all = {.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_PROPERTIES_2,
					   .pNext = &id};
	struct vulkan_abilities *can = &device->can;

	device->vulkan->instance.vkGetPhysicalDeviceProperties2(device->physical, &all);
	device->type = all.properties.deviceType;
	can->software = device->type == VK_PHYSICAL_DEVICE_TYPE_CPU;
	can->bytes_max = sizes.maxMemoryAllocationSize;
	if (buffers.maxBufferSize && buffers.maxBufferSize < can->bytes_max)
		can->bytes_max = buffers.maxBufferSize;
	if (can->software && can->bytes_max > SOFTWARE_BYTES_MAX)
		can->bytes_max = SOFTWARE_BYTES_MAX;
	can->allocations = all.properties.limits.maxMemoryAllocationCount;
	can->pin_align = host.minImportedHostPointerAlignment;
	snprintf(device->base.name, sizeof(device->base.name), "%.80s%s", all.properties.deviceName,
		 can->software ? ", software" : "");
	snprintf(device->driver, sizeof(device->driver), "%.16s %.32s%s", driver.driverName,
		 driver.driverInfo, can->software ? ", software" : "");
	uuid_describe(&device->base, id.deviceUUID);
	if (has_pci)
		snprintf(device->base.pci, sizeof(device->base.pci), "%04x:%02x:%02x.%x",
			 pci.pciDomain & 0xffff, pci.pciBus & 0xff, pci.pciDevice & 0xff,
			 pci.pciFunction & 0xf);
	return all.properties.apiVersion;
}

static bool has_timelines(struct vulkan_device *device)
{
	VkPhysicalDeviceBufferDeviceAddressFeatures addresses = {
	    .sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_BUFFER_DEVICE_ADDRESS_FEATURES};
	VkPhysicalDeviceTimelineSemaphoreFeatures timeline = {
	    .sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_TIMELINE_SEMAPHORE_FEATURES,
	    .pNext = &addresses};
	VkPhysicalDeviceFeatures2 features = {.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_FEATURES_2,
					      .pNext = &timeline};

	device->vulkan->instance.vkGetPhysicalDeviceFeatures2(device->physical, &features);
	/* The CPU simulates copies faster than a kernel. */
	device->can.kernel = addresses.bufferDeviceAddress && !device->can.software;
	return timeline.timelineSemaphore;
}

static bool can_export(struct vulkan_device *device)
{
	const VkExternalMemoryFeatureFlags needed =
	    VK_EXTERNAL_MEMORY_FEATURE_EXPORTABLE_BIT | VK_EXTERNAL_MEMORY_FEATURE_IMPORTABLE_BIT;
	VkPhysicalDeviceExternalBufferInfo info = {
	    .sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_EXTERNAL_BUFFER_INFO,
	    .usage = VK_BUFFER_USAGE_TRANSFER_SRC_BIT | VK_BUFFER_USAGE_TRANSFER_DST_BIT,
	    .handleType = VK_EXTERNAL_MEMORY_HANDLE_TYPE_OPAQUE_FD_BIT};
	VkExternalBufferProperties found = {.sType = VK_STRUCTURE_TYPE_EXTERNAL_BUFFER_PROPERTIES};

	device->vulkan->instance.vkGetPhysicalDeviceExternalBufferProperties(device->physical,
									     &info, &found);
	VkExternalMemoryFeatureFlags has = found.externalMemoryProperties.externalMemoryFeatures;

	device->can.dedicated = has & VK_EXTERNAL_MEMORY_FEATURE_DEDICATED_ONLY_BIT;
	return (has & needed) == needed;
}

#define ENGINES (VK_QUEUE_TRANSFER_BIT | VK_QUEUE_COMPUTE_BIT | VK_QUEUE_GRAPHICS_BIT)

/* The best family for copies over the link has the highest rank; 0: no copies. A family that only
 * transfers is the copy engines'. */
static unsigned link_rank(VkQueueFlags flags)
{
	const VkQueueFlags other_flags =
	    ~(VkQueueFlags)(ENGINES | VK_QUEUE_SPARSE_BINDING_BIT | VK_QUEUE_PROTECTED_BIT);

	if (!(flags & ENGINES))
		return 0;
	if ((flags & ENGINES) == VK_QUEUE_TRANSFER_BIT)
		return flags & other_flags ? 1 : 3;
	return flags & VK_QUEUE_GRAPHICS_BIT ? 1 : 2;
}

/* Of a family for kernels. */
static unsigned inside_rank(VkQueueFlags flags)
{
	if (!(flags & VK_QUEUE_COMPUTE_BIT))
		return 0;
	return flags & VK_QUEUE_GRAPHICS_BIT ? 1 : 2;
}

/* The number of the best family, or -1. */
static int family_find(const VkQueueFamilyProperties *families, uint32_t n,
		       unsigned (*rank)(VkQueueFlags flags))
{
	unsigned best = 0;
	int found = -1;

	for (uint32_t i = 0; i < n; i++) {
		unsigned family_rank = families[i].queueCount ? rank(families[i].queueFlags) : 0;

		if (family_rank <= best)
			continue;
		best = family_rank;
		found = (int)i;
	}
	return found;
}

static bool queues_find(struct vulkan_device *device)
{
	VkQueueFamilyProperties families[32];
	struct vulkan_abilities *can = &device->can;
	uint32_t n = 32;

	device->vulkan->instance.vkGetPhysicalDeviceQueueFamilyProperties(device->physical, &n,
									  families);
	int link = family_find(families, n, link_rank);
	int inside = can->kernel ? family_find(families, n, inside_rank) : -1;

	if (link < 0)
		return false;
	can->kernel = inside >= 0;
	can->link_family = (uint32_t)link;
	can->inside_family = (uint32_t)(inside >= 0 ? inside : link);
	can->n_queues = families[link].queueCount;
	if (can->n_queues > VULKAN_QUEUES_MAX)
		can->n_queues = VULKAN_QUEUES_MAX;
	return true;
}

int vulkan_abilities_find(struct vulkan_device *device, char *reason, size_t size)
{
	struct extension extensions[] = {{.name = VK_KHR_EXTERNAL_MEMORY_FD_EXTENSION_NAME},
					 {.name = VK_EXT_PCI_BUS_INFO_EXTENSION_NAME},
					 {.name = VK_EXT_EXTERNAL_MEMORY_HOST_EXTENSION_NAME},
					 {.name = VK_EXT_MEMORY_BUDGET_EXTENSION_NAME}};
	const char *missing = NULL;

	if (extensions_find(device, extensions, sizeof(extensions) / sizeof(extensions[0])) < 0)
		missing = "a list of extensions";
	uint32_t version = properties_find(device, extensions[1].found);

	device->can.pin = extensions[2].found && device->can.pin_align;
	device->can.budget = extensions[3].found;
	if (missing)
		;
	else if (version < VK_API_VERSION_1_2)
		missing = "Vulkan 1.2";
	else if (!extensions[0].found)
		missing = extensions[0].name;
	else if (!has_timelines(device))
		missing = "timeline semaphores";
	else if (!can_export(device))
		missing = "buffers in memory that can be exported and imported";
	else if (!queues_find(device))
		missing = "a queue for copies";
	if (!missing)
		return 0;
	snprintf(reason, size, "%s: its driver has no %s", device->base.name, missing);
	return -ENOTSUP;
}
