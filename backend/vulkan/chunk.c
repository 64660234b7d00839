/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* Chunks: memory that is exported as an opaque descriptor, whose owner is the driver in the kernel
 * (or, for software, a memfd): the memory lives as long as a descriptor does. */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "backend/vulkan/provider.h"
#include "common/log.h"

static int bytes_count(struct vulkan_device *device, enum memory_place place, uint64_t bytes)
{
	uint64_t used = atomic_load(&device->used);

	if (place != PLACE_GPU)
		return 0;
	do {
		if (used > device->base.total || bytes > device->base.total - used)
			return -ENOSPC;
	} while (!atomic_compare_exchange_weak(&device->used, &used, used + bytes));
	return 0;
}

static void bytes_uncount(struct vulkan_device *device, enum memory_place place, uint64_t bytes)
{
	if (place == PLACE_GPU)
		atomic_fetch_sub(&device->used, bytes);
}

/* A chunk without memory, which keeps the device in use. */
static int chunk_prepare(struct vulkan_device *device, enum memory_place place, uint64_t bytes,
			 struct vulkan_chunk **chunk)
{
	struct vulkan_chunk *new_chunk;

	if (!device->types.places[place].usable)
		return -ENOTSUP;
	new_chunk = calloc(1, sizeof(*new_chunk));
	if (!new_chunk)
		return -ENOMEM;
	int rc = vulkan_device_hold(device);

	if (rc < 0) {
		free(new_chunk);
		return rc;
	}
	new_chunk->base.device = &device->base;
	new_chunk->base.place = place;
	new_chunk->base.bytes = bytes;
	new_chunk->fd = -1;
	*chunk = new_chunk;
	return 0;
}

static void chunk_end(struct vulkan_chunk *chunk)
{
	vulkan_device_unhold(vulkan_device(chunk->base.device));
	free(chunk);
}

static int memory_new(struct vulkan_chunk *chunk)
{
	struct vulkan_device *device = vulkan_device(chunk->base.device);
	VkExportMemoryAllocateInfo info = {.sType = VK_STRUCTURE_TYPE_EXPORT_MEMORY_ALLOCATE_INFO,
					   .handleTypes =
					       VK_EXTERNAL_MEMORY_HANDLE_TYPE_OPAQUE_FD_BIT};
	VkResult result =
	    vulkan_buffer_new(device, device->types.places[chunk->base.place].type,
			      chunk->base.bytes, info.handleTypes, &info, &chunk->buffer);

	return vulkan_result(device, result, "vkAllocateMemory");
}

int vulkan_chunk_new(struct device *base, enum memory_place place, uint64_t bytes,
		     struct chunk **chunk)
{
	struct vulkan_device *device = vulkan_device(base);
	struct vulkan_chunk *new_chunk;
	int rc = chunk_prepare(device, place, bytes, &new_chunk);

	if (rc < 0)
		return rc;
	rc = bytes_count(device, place, bytes);
	if (rc == 0) {
		rc = memory_new(new_chunk);
		if (rc < 0)
			bytes_uncount(device, place, bytes);
	}
	if (rc < 0)
		chunk_end(new_chunk);
	else
		*chunk = &new_chunk->base;
	return rc;
}

/* An import takes no memory. NVIDIA's driver gives VK_ERROR_OUT_OF_DEVICE_MEMORY for a descriptor
 * of another driver. */
VkResult vulkan_import_result(VkResult result)
{
	return result == VK_ERROR_OUT_OF_DEVICE_MEMORY ? VK_ERROR_INVALID_EXTERNAL_HANDLE : result;
}

/* The descriptor stays the caller's. */
int vulkan_memory_import(struct vulkan_chunk *chunk, int fd)
{
	struct vulkan_device *device = vulkan_device(chunk->base.device);
	VkImportMemoryFdInfoKHR info = {.sType = VK_STRUCTURE_TYPE_IMPORT_MEMORY_FD_INFO_KHR,
					.handleType = VK_EXTERNAL_MEMORY_HANDLE_TYPE_OPAQUE_FD_BIT,
					.fd = fd};
	VkResult result =
	    vulkan_buffer_new(device, device->types.places[chunk->base.place].type,
			      chunk->base.bytes, info.handleType, &info, &chunk->buffer);

	return vulkan_result(device, vulkan_import_result(result), "import");
}

/* The memory exists already: no limit is asked. */
int vulkan_chunk_import(struct device *base, enum memory_place place, uint64_t bytes, int fd,
			struct chunk **chunk)
{
	struct vulkan_device *device = vulkan_device(base);
	struct vulkan_chunk *new_chunk;
	int rc = chunk_prepare(device, place, bytes, &new_chunk);

	if (rc < 0)
		return rc;
	rc = vulkan_memory_import(new_chunk, fd);
	if (rc < 0) {
		chunk_end(new_chunk);
		return rc;
	}
	new_chunk->fd = fd;
	if (place == PLACE_GPU)
		atomic_fetch_add(&device->used, bytes);
	*chunk = &new_chunk->base;
	return 0;
}

void vulkan_chunk_free(struct chunk *base)
{
	struct vulkan_chunk *chunk = vulkan_chunk(base);
	struct vulkan_device *device = vulkan_device(base->device);

	vulkan_buffer_free(device, &chunk->buffer);
	if (chunk->fd >= 0)
		close(chunk->fd);
	bytes_uncount(device, base->place, base->bytes);
	chunk_end(chunk);
}

static int memory_export(struct vulkan_chunk *chunk, int *fd)
{
	struct vulkan_device *device = vulkan_device(chunk->base.device);
	VkMemoryGetFdInfoKHR info = {.sType = VK_STRUCTURE_TYPE_MEMORY_GET_FD_INFO_KHR,
				     .memory = chunk->buffer.memory,
				     .handleType = VK_EXTERNAL_MEMORY_HANDLE_TYPE_OPAQUE_FD_BIT};
	int exported = -1;

	if (!info.memory) /* lost in a reset */
		return -EIO;
	VkResult result = device->vk.vkGetMemoryFdKHR(device->handle, &info, &exported);
	int rc = vulkan_result(device, result, "vkGetMemoryFdKHR");

	if (rc == 0 && exported < 0)
		rc = -EMFILE; /* llvmpipe's answer if there is no descriptor left */
	if (rc < 0)
		return rc == -ENOSPC ? -EMFILE : rc;
	fcntl(exported, F_SETFD, FD_CLOEXEC);
	*fd = exported;
	return 0;
}

int vulkan_chunk_export(struct chunk *base, int *fd)
{
	struct vulkan_chunk *chunk = vulkan_chunk(base);
	int copy;

	if (chunk->fd < 0)
		return memory_export(chunk, fd);
	copy = fcntl(chunk->fd, F_DUPFD_CLOEXEC, 0);
	if (copy < 0)
		return -errno;
	*fd = copy;
	return 0;
}
