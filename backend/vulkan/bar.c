/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* Mapping chunks for the CPU: directly if their memory type can be mapped, else by a second import
 * as a mappable type. Vulkan does not promise that a second import works, so a test decides. */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "backend/stream/stream.h"
#include "backend/vulkan/copier.h"
#include "common/log.h"

/* Of the second import on an H100: 19 ms for 1 GiB. */
#define COST_NS_PER_MIB 19000

static const struct vulkan_place *chunk_place(const struct chunk *chunk)
{
	return &vulkan_device(chunk->device)->types.places[chunk->place];
}

const char *vulkan_bar_name(struct device *base, const char **reason)
{
	const struct vulkan_device *device = vulkan_device(base);

	*reason = device->vulkan->bar == BAR_OFF ? "turned off (bar=off)" : device->types.unmapped;
	return *reason ? "none" : "vulkan";
}

static VkResult window_import(struct vulkan_chunk *chunk, int fd)
{
	struct vulkan_device *device = vulkan_device(chunk->base.device);
	VkImportMemoryFdInfoKHR from = {.sType = VK_STRUCTURE_TYPE_IMPORT_MEMORY_FD_INFO_KHR,
					.handleType = VK_EXTERNAL_MEMORY_HANDLE_TYPE_OPAQUE_FD_BIT,
					.fd = fd};
	VkMemoryAllocateInfo info = {.sType = VK_STRUCTURE_TYPE_MEMORY_ALLOCATE_INFO,
				     .pNext = &from,
				     .allocationSize = chunk->base.bytes,
				     .memoryTypeIndex = chunk_place(&chunk->base)->map_type};

	return vulkan_import_result(vulkan_memory_new(device, &info, &chunk->window));
}

static void window_close(struct vulkan_chunk *chunk)
{
	if (chunk->window)
		vulkan_memory_free(vulkan_device(chunk->base.device), chunk->window);
	chunk->window = VK_NULL_HANDLE;
}

static VkResult memory_map(struct vulkan_chunk *chunk, void **address)
{
	struct vulkan_device *device = vulkan_device(chunk->base.device);

	return device->vk.vkMapMemory(device->handle,
				      chunk->window ? chunk->window : chunk->buffer.memory, 0,
				      VK_WHOLE_SIZE, 0, address);
}

int vulkan_bar_map(struct chunk *base, void **address)
{
	struct vulkan_device *device = vulkan_device(base->device);
	const struct vulkan_place *place = chunk_place(base);
	struct vulkan_chunk *chunk = vulkan_chunk(base);
	int fd, rc = 0;

	if (!place->mappable || (base->place == PLACE_GPU && device->vulkan->bar == BAR_OFF))
		return -ENOTSUP;
	if (!place->direct) {
		rc = vulkan_chunk_export(base, &fd);
		if (rc == 0) {
			rc = vulkan_result(device, window_import(chunk, fd), "import for the CPU");
			close(fd);
		}
	}
	if (rc == 0 && !chunk->buffer.memory)
		rc = -EIO; /* lost in a reset */
	if (rc < 0)
		return rc;
	rc = vulkan_result(device, memory_map(chunk, address), "vkMapMemory");
	if (rc < 0)
		window_close(chunk);
	return rc;
}

void vulkan_bar_unmap(struct chunk *base, void *address)
{
	struct vulkan_device *device = vulkan_device(base->device);
	struct vulkan_chunk *chunk = vulkan_chunk(base);

	(void)address;
	device->vk.vkUnmapMemory(device->handle,
				 chunk->window ? chunk->window : chunk->buffer.memory);
	window_close(chunk);
}

uint32_t vulkan_bar_cost(struct device *base)
{
	return vulkan_device(base)->can.software ? 0 : COST_NS_PER_MIB;
}

/* Stores through the mapping and reads by the device, and the reverse. */
static int bytes_compare(struct vulkan_stream *stream, struct vulkan_chunk *chunk, char *mapping,
			 uint64_t offset)
{
	struct place at = {chunk->buffer.buffer, offset, 0, false};
	char pattern[4096], content[sizeof(pattern)];

	for (unsigned i = 0; i < sizeof(pattern); i++)
		pattern[i] = (char)((i * 7 + offset / sizeof(pattern)) % 251);
	stream_store(mapping + offset, pattern, sizeof(pattern));
	stream_fence();
	int rc = vulkan_stage_out(stream, content, at, sizeof(content));
	if (rc < 0 || memcmp(pattern, content, sizeof(pattern)) != 0)
		return rc < 0 ? rc : -EILSEQ;
	for (unsigned i = 0; i < sizeof(pattern); i++)
		pattern[i] = (char)~pattern[i];
	rc = vulkan_stage_in(stream, at, pattern, sizeof(pattern));
	if (rc == 0)
		rc = vulkan_stream_wait(stream, stream->enqueued);
	if (rc < 0)
		return rc;
	stream_load(content, mapping + offset, sizeof(content));
	return memcmp(pattern, content, sizeof(pattern)) != 0 ? -EILSEQ : 0;
}

static int mapping_test(struct vulkan_stream *stream, struct chunk *chunk)
{
	static const uint64_t offsets[] = {0, CHUNK_ALIGN / 2 - 100, CHUNK_ALIGN - 4096};
	void *mapping;
	int rc = vulkan_bar_map(chunk, &mapping);

	if (rc < 0)
		return rc;
	for (unsigned i = 0; rc == 0 && i < sizeof(offsets) / sizeof(offsets[0]); i++)
		rc = bytes_compare(stream, vulkan_chunk(chunk), mapping, offsets[i]);
	vulkan_bar_unmap(chunk, mapping);
	return rc;
}

static int place_test(struct vulkan_device *device, enum memory_place place)
{
	struct vulkan_stream stream = {.device = NULL};
	struct chunk *chunk;
	int rc = vulkan_chunk_new(&device->base, place, CHUNK_ALIGN, &chunk);

	if (rc < 0) /* without room nothing is known: mappings are tried when they are needed */
		return rc == -ENOSPC ? 0 : rc;
	rc = vulkan_stream_open(&stream, device, STREAM_LINK);
	if (rc == 0)
		rc = mapping_test(&stream, chunk);
	vulkan_stream_close(&stream);
	vulkan_chunk_free(chunk);
	return rc;
}

void vulkan_bar_open(struct vulkan_device *device)
{
	struct vulkan_place *gpu = &device->types.places[PLACE_GPU];
	struct vulkan_place *host = &device->types.places[PLACE_HOST];
	int rc = 0;

	if (gpu->mappable && !gpu->direct && device->vulkan->bar != BAR_OFF)
		rc = place_test(device, PLACE_GPU);
	if (rc < 0) {
		gpu->mappable = false;
		device->types.unmapped = rc == -EILSEQ
					     ? "memory that is imported twice has other bytes"
					     : "memory cannot be imported a second time";
		log_warn("gpu%u: GPU memory is not mapped: %s", device->base.index,
			 device->types.unmapped);
	}
	if (host->usable && !host->direct && place_test(device, PLACE_HOST) < 0)
		host->usable = false;
	device->base.host_memory = host->usable;
	device->base.bar_bytes =
	    gpu->mappable && device->vulkan->bar != BAR_OFF ? device->types.window_bytes : 0;
}
