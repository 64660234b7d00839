/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* Host memory that copies use directly: imported into each device at the first copy there. */
#include <errno.h>
#include <stdlib.h>
#include <utlist.h>

#include "backend/vulkan/copier.h"
#include "common/cleanup.h"
#include "common/log.h"

int vulkan_pin(struct copier *base, void *host, size_t bytes)
{
	struct vulkan_copier *copier = vulkan_copier(base);
	struct vulkan_host_pin *pin =
	    calloc(1, sizeof(*pin) + base->backend->n_devices * sizeof(pin->imports[0]));

	if (!pin)
		return -ENOMEM;
	pin->base = host;
	pin->bytes = bytes;
	scoped_lock(&copier->lock);
	LL_PREPEND(copier->pins, pin);
	return 0;
}

/* Whole pages are imported; the pages' other bytes are never copied. */
static VkResult memory_import(struct vulkan_device *device, char *base, size_t bytes,
			      struct vulkan_buffer *buffer, uint64_t *offset)
{
	const VkExternalMemoryHandleTypeFlagBits handle =
	    VK_EXTERNAL_MEMORY_HANDLE_TYPE_HOST_ALLOCATION_BIT_EXT;
	uint64_t align = device->can.pin_align, head = (uintptr_t)base % align;
	uint64_t whole = (head + bytes + align - 1) / align * align;
	VkMemoryHostPointerPropertiesEXT properties = {
	    .sType = VK_STRUCTURE_TYPE_MEMORY_HOST_POINTER_PROPERTIES_EXT};
	VkImportMemoryHostPointerInfoEXT info = {
	    .sType = VK_STRUCTURE_TYPE_IMPORT_MEMORY_HOST_POINTER_INFO_EXT,
	    .handleType = handle,
	    .pHostPointer = base - head};
	uint32_t type;

	if (!device->can.pin || !device->vk.vkGetMemoryHostPointerPropertiesEXT)
		return VK_ERROR_EXTENSION_NOT_PRESENT;
	VkResult result = device->vk.vkGetMemoryHostPointerPropertiesEXT(
	    device->handle, handle, info.pHostPointer, &properties);

	if (result != VK_SUCCESS)
		return result;
	if (!vulkan_system_type_find(device, properties.memoryTypeBits & device->types.pinned,
				     &type))
		return VK_ERROR_FEATURE_NOT_PRESENT;
	*offset = head;
	return vulkan_buffer_new(device, type, whole, handle, &info, buffer);
}

static void pin_try(struct vulkan_host_pin *pin, struct vulkan_device *device)
{
	unsigned slot = device->base.slot;
	char name[VULKAN_ERROR_NAME_MAX];
	VkResult result = memory_import(device, pin->base, pin->bytes, &pin->imports[slot].buffer,
					&pin->imports[slot].offset);

	if (result == VK_SUCCESS)
		return;
	pin->imports[slot].refused = true;
	if (result == VK_ERROR_DEVICE_LOST)
		vulkan_result(device, result, "importing host memory");
	else if (device->can.pin)
		log_warn("gpu%u: copies of %zu KiB of buffers go through staging memory: importing "
			 "host memory: %s",
			 device->base.index, pin->bytes >> 10, vulkan_error_name(result, name));
}

bool vulkan_pinned(struct vulkan_copier *copier, struct vulkan_device *device, const void *host,
		   size_t bytes, struct place *place)
{
	struct vulkan_host_pin *pin = copier->pins;
	const char *at = host;
	unsigned slot = device->base.slot;

	while (pin && (at < pin->base || at + bytes > pin->base + pin->bytes))
		pin = pin->next;
	if (!pin)
		return false;
	if (!pin->imports[slot].buffer.memory && !pin->imports[slot].refused)
		pin_try(pin, device);
	if (!pin->imports[slot].buffer.memory)
		return false;
	*place = (struct place){pin->imports[slot].buffer.buffer,
				pin->imports[slot].offset + (uint64_t)(at - pin->base), 0, true};
	return true;
}

static void pin_leave(struct vulkan_host_pin *pin, struct vulkan_device *device)
{
	vulkan_buffer_free(device, &pin->imports[device->base.slot].buffer);
	pin->imports[device->base.slot].refused = false;
}

void vulkan_pins_leave(struct vulkan_copier *copier, struct vulkan_device *device)
{
	struct vulkan_host_pin *pin;

	LL_FOREACH (copier->pins, pin) {
		pin_leave(pin, device);
	}
}

static void pin_close(struct vulkan_copier *copier, struct vulkan_host_pin *pin)
{
	struct backend *backend = copier->base.backend;

	LL_DELETE(copier->pins, pin);
	for (unsigned i = 0; i < backend->n_devices; i++)
		pin_leave(pin, vulkan_device(backend->devices[i]));
	free(pin);
}

void vulkan_pins_close(struct vulkan_copier *copier)
{
	while (copier->pins)
		pin_close(copier, copier->pins);
}

/* The owner frees the memory next: no copy may use it. The error stays for the owner's own wait. */
void vulkan_unpin(struct copier *base, void *host)
{
	struct vulkan_copier *copier = vulkan_copier(base);
	struct vulkan_host_pin *pin;

	scoped_lock(&copier->lock);
	LL_SEARCH_SCALAR(copier->pins, pin, base, (char *)host);
	if (!pin)
		return;
	copier->error = vulkan_streams_wait(copier);
	pin_close(copier, pin);
}
