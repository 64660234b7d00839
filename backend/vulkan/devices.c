/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* Finds the GPUs, and selects those of gpus=LIST. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "backend/vulkan/provider.h"
#include "common/cacheline.h"
#include "common/cleanup.h"
#include "common/log.h"

/* The devices of which this process was told. */
struct found {
	struct vulkan_device *devices[BACKEND_DEVICES_MAX];
	unsigned n;
};

static const char **extensions_wanted(const struct vulkan_device *device, const char **names,
				      uint32_t *n)
{
	*n = 0;
	names[(*n)++] = VK_KHR_EXTERNAL_MEMORY_FD_EXTENSION_NAME;
	if (device->can.pin)
		names[(*n)++] = VK_EXT_EXTERNAL_MEMORY_HOST_EXTENSION_NAME;
	if (device->can.budget)
		names[(*n)++] = VK_EXT_MEMORY_BUDGET_EXTENSION_NAME;
	return names;
}

static VkResult handle_create(struct vulkan_device *device)
{
	const float priorities[VULKAN_QUEUES_MAX] = {1, 1};
	const char *names[3];
	VkPhysicalDeviceBufferDeviceAddressFeatures addresses = {
	    .sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_BUFFER_DEVICE_ADDRESS_FEATURES,
	    .bufferDeviceAddress = device->can.kernel};
	VkPhysicalDeviceTimelineSemaphoreFeatures timeline = {
	    .sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_TIMELINE_SEMAPHORE_FEATURES,
	    .pNext = &addresses,
	    .timelineSemaphore = VK_TRUE};
	VkDeviceQueueCreateInfo queues[] = {{.sType = VK_STRUCTURE_TYPE_DEVICE_QUEUE_CREATE_INFO,
					     .queueFamilyIndex = device->can.link_family,
					     .queueCount = device->can.n_queues,
					     .pQueuePriorities = priorities},
					    {.sType = VK_STRUCTURE_TYPE_DEVICE_QUEUE_CREATE_INFO,
					     .queueFamilyIndex = device->can.inside_family,
					     .queueCount = 1,
					     .pQueuePriorities = priorities}};
	VkDeviceCreateInfo info = {.sType = VK_STRUCTURE_TYPE_DEVICE_CREATE_INFO,
				   .pNext = &timeline,
				   .queueCreateInfoCount = vulkan_has_inside_queue(device) ? 2 : 1,
				   .pQueueCreateInfos = queues};

	info.ppEnabledExtensionNames =
	    extensions_wanted(device, names, &info.enabledExtensionCount);
	return device->vulkan->instance.vkCreateDevice(device->physical, &info, NULL,
						       &device->handle);
}

static void queue_get(struct vulkan_device *device, uint32_t family, uint32_t number,
		      struct vulkan_queue *queue)
{
	queue->family = family;
	device->vk.vkGetDeviceQueue(device->handle, family, number, &queue->handle);
}

int vulkan_device_create(struct vulkan_device *device)
{
	const struct vulkan_instance *instance = &device->vulkan->instance;
	VkResult result = handle_create(device);

	if (result != VK_SUCCESS) {
		device->handle = VK_NULL_HANDLE;
		return vulkan_result(device, result, "vkCreateDevice");
	}
	const char *missing = vulkan_calls_load(instance, device->handle, &device->vk);

	if (missing) {
		log_error("gpu%u (%s): its driver has no %s", device->base.index, device->base.name,
			  missing);
		vulkan_device_destroy(device);
		return -ENOTSUP;
	}
	for (unsigned i = 0; i < device->can.n_queues; i++)
		queue_get(device, device->can.link_family, i, &device->queues[i]);
	if (vulkan_has_inside_queue(device))
		queue_get(device, device->can.inside_family, 0, &device->inside);
	return 0;
}

void vulkan_device_destroy(struct vulkan_device *device)
{
	vulkan_kernel_close(device);
	if (device->handle && device->vk.vkDestroyDevice)
		device->vk.vkDestroyDevice(device->handle, NULL);
	device->handle = VK_NULL_HANDLE;
}

void vulkan_device_close(struct vulkan_device *device)
{
	if (!device)
		return;
	vulkan_device_destroy(device);
	for (unsigned i = 0; i < VULKAN_QUEUES_MAX; i++)
		pthread_mutex_destroy(&device->queues[i].lock);
	pthread_mutex_destroy(&device->inside.lock);
	pthread_mutex_destroy(&device->kernel.lock);
	pthread_mutex_destroy(&device->lock);
	free(device);
}

static struct vulkan_device *device_new(struct vulkan *vulkan, VkPhysicalDevice physical)
{
	struct vulkan_device *device = cacheline_calloc(sizeof(*device));

	if (!device)
		return NULL;
	device->vulkan = vulkan;
	device->physical = physical;
	device->base.backend = &vulkan->base;
	for (unsigned i = 0; i < VULKAN_QUEUES_MAX; i++)
		pthread_mutex_init(&device->queues[i].lock, NULL);
	pthread_mutex_init(&device->inside.lock, NULL);
	pthread_mutex_init(&device->kernel.lock, NULL);
	pthread_mutex_init(&device->lock, NULL);
	return device;
}

/* Two drivers may offer the same GPU. */
static bool is_known(const struct found *found, const struct vulkan_device *device)
{
	for (unsigned i = 0; i < found->n; i++) {
		const struct device *known_device = &found->devices[i]->base;

		if (strcmp(known_device->uuid, device->base.uuid) == 0 ||
		    (*known_device->pci && strcmp(known_device->pci, device->base.pci) == 0))
			return true;
	}
	return false;
}

/* An unwanted device is as good as absent: software is never a GPU by BACKEND_AUTO's choice, nor is
 * a GPU that is shared by virtual machines. */
static bool is_wanted(const struct vulkan_device *device, enum backend_kind kind)
{
	return kind == BACKEND_VULKAN || device->type == VK_PHYSICAL_DEVICE_TYPE_DISCRETE_GPU ||
	       device->type == VK_PHYSICAL_DEVICE_TYPE_INTEGRATED_GPU;
}

static void device_add(struct vulkan *vulkan, VkPhysicalDevice physical, enum backend_kind kind,
		       struct found *found, char *reason, size_t size)
{
	struct vulkan_device *device = device_new(vulkan, physical);

	if (!device)
		return;
	int rc = vulkan_abilities_find(device, reason, size);

	if (rc < 0 && is_wanted(device, kind) && !device->can.software)
		log_warn("a GPU is not used: %s", reason);
	if (rc == 0 && is_wanted(device, kind) && !is_known(found, device))
		found->devices[found->n++] = device;
	else
		vulkan_device_close(device);
}

/* Beside a real GPU, the CPU's simulation of a GPU is not used. */
static void software_drop(struct found *found)
{
	unsigned n_kept = 0;

	for (unsigned i = 0; i < found->n; i++)
		n_kept += !found->devices[i]->can.software;
	if (!n_kept)
		return;
	n_kept = 0;
	for (unsigned i = 0; i < found->n; i++) {
		if (found->devices[i]->can.software)
			vulkan_device_close(found->devices[i]);
		else
			found->devices[n_kept++] = found->devices[i];
	}
	found->n = n_kept;
}

/* By PCI address, as nvidia-smi does; a driver may order devices by their speed. */
static int device_compare(const void *a, const void *b)
{
	const struct vulkan_device *const *first = a, *const *second = b;

	return strcmp((*first)->base.pci, (*second)->base.pci);
}

static int devices_find(struct vulkan *vulkan, enum backend_kind kind, struct found *found,
			char *reason, size_t size)
{
	VkPhysicalDevice physical[BACKEND_DEVICES_MAX];
	char name[VULKAN_ERROR_NAME_MAX];
	uint32_t n = BACKEND_DEVICES_MAX;
	VkResult result =
	    vulkan->instance.vkEnumeratePhysicalDevices(vulkan->instance.handle, &n, physical);

	if (result != VK_SUCCESS && result != VK_INCOMPLETE) {
		snprintf(reason, size, "vkEnumeratePhysicalDevices: %s",
			 vulkan_error_name(result, name));
		return -ENODEV;
	}
	for (uint32_t i = 0; i < n; i++)
		device_add(vulkan, physical[i], kind, found, reason, size);
	software_drop(found);
	qsort(found->devices, found->n, sizeof(struct vulkan_device *), device_compare);
	if (!found->n && !*reason)
		snprintf(reason, size, "Vulkan's drivers offer no GPU");
	return found->n ? 0 : -ENODEV;
}

static void device_describe(struct vulkan_device *device)
{
	struct device *base = &device->base;
	const struct vulkan_abilities *can = &device->can;

	base->total = device->types.total;
	base->chunk_max = can->bytes_max;
	snprintf(base->backend->version, sizeof(base->backend->version), "%s", device->driver);
	if (can->software)
		log_warn("gpu%u: %s: the CPU simulates a GPU in system memory", base->index,
			 base->name);
	if (!can->pin)
		log_info("gpu%u: copies go through staging memory: its driver has "
			 "no " VK_EXT_EXTERNAL_MEMORY_HOST_EXTENSION_NAME,
			 base->index);
}

static int device_open(struct vulkan_device *device)
{
	int rc = vulkan_device_create(device);

	if (rc == 0)
		rc = vulkan_types_find(device);
	if (rc == -ENOTSUP)
		log_warn("gpu%u (%s) is not used: no memory type of its driver is suitable for "
			 "files",
			 device->base.index, device->base.name);
	return rc;
}

/* A device that cannot be used, because no memory type is suitable or because the driver makes no
 * VkDevice now, is an error only if gpus= names the device. */
static int device_take(struct vulkan *vulkan, struct vulkan_device *device, const char *gpus)
{
	int rc = device_open(device);

	if (rc < 0) {
		if (rc != -ENOTSUP)
			log_warn("%s (%s) is not used: its driver cannot open it: %s",
				 device->base.label, device->base.name, strerror(-rc));
		vulkan_device_close(device);
		return gpus || rc == -ENOMEM ? rc : 0;
	}
	device_describe(device);
	device->base.slot = vulkan->base.n_devices;
	vulkan->base.devices[vulkan->base.n_devices++] = &device->base;
	return 0;
}

static int devices_select(struct vulkan *vulkan, const char *gpus, struct found *found)
{
	struct device *devices[BACKEND_DEVICES_MAX];
	uint64_t selected = 0;

	for (unsigned i = 0; i < found->n; i++) {
		devices[i] = &found->devices[i]->base;
		devices[i]->index = i;
		snprintf(devices[i]->label, sizeof(devices[i]->label), "gpu%u", i);
	}
	int rc = backend_select_gpus(gpus, devices, found->n, &selected);

	for (unsigned i = 0; rc == 0 && i < found->n; i++) {
		if (!(selected >> i & 1))
			continue;
		rc = device_take(vulkan, found->devices[i], gpus);
		found->devices[i] = NULL;
	}
	return rc == 0 && !vulkan->base.n_devices ? -ENOTSUP : rc;
}

int vulkan_devices_open(struct vulkan *vulkan, const struct backend_config *config, char *reason,
			size_t size)
{
	struct found found = {.n = 0};
	int rc;

	*reason = '\0';
	rc = devices_find(vulkan, config->kind, &found, reason, size);
	if (rc == 0) {
		*reason = '\0'; /* the log has the reasons against single devices */
		rc = devices_select(vulkan, config->gpus, &found);
	}
	for (unsigned i = 0; i < found.n; i++)
		vulkan_device_close(found.devices[i]);
	return rc;
}
