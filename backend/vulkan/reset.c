/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* After the loss of a device: makes another VkDevice, imports every chunk into it by its
 * descriptor, and reads the chunk once. Vulkan does not promise that memory outlives a lost device;
 * whether a chunk has, only reading tells. */
#include <errno.h>
#include <fcntl.h>
#include <utlist.h>

#include "backend/vulkan/copier.h"
#include "common/cleanup.h"

/* Chunks are read by copying them to a scratch chunk of this size. */
#define SCRATCH_BYTES (32ULL << 20)
/* A device with more bad chunks is not used again. */
#define LOST_MAX 16

/* -EBUSY: a copier's thread is in a call, which will end soon. */
static int copiers_leave(struct vulkan_device *device)
{
	struct vulkan_copier *copier;
	int rc = 0;

	scoped_lock(&device->vulkan->lock);
	DL_FOREACH (device->vulkan->copiers, copier) {
		if (pthread_mutex_trylock(&copier->lock)) {
			rc = -EBUSY;
			continue;
		}
		vulkan_copier_leave(copier, device);
		pthread_mutex_unlock(&copier->lock);
	}
	return rc;
}

static void chunk_lose(struct vulkan_chunk *chunk)
{
	atomic_store(&chunk->base.lost, true);
	vulkan_buffer_free(vulkan_device(chunk->base.device), &chunk->buffer);
}

/* Every chunk leaves the device, and keeps a descriptor. */
static int chunks_leave(struct vulkan_device *device)
{
	struct chunk *base;

	DL_FOREACH (device->base.health.chunks, base) {
		struct vulkan_chunk *chunk = vulkan_chunk(base);
		int rc = chunk->fd >= 0 || !chunk->buffer.memory
			     ? 0
			     : vulkan_chunk_export(base, &chunk->fd);

		if (rc == -EMFILE || rc == -ENOMEM)
			return rc;
		if (rc < 0)
			chunk_lose(chunk);
		vulkan_buffer_free(device, &chunk->buffer);
	}
	return 0;
}

static int chunk_read(struct vulkan_stream *stream, struct vulkan_chunk *chunk,
		      struct vulkan_chunk *scratch)
{
	uint64_t step = scratch->base.bytes, bytes = chunk->base.bytes;
	struct place to = {scratch->buffer.buffer, 0, 0, false},
		     from = {chunk->buffer.buffer, 0, 0, false};
	int rc = 0;

	for (; rc == 0 && from.offset < bytes; from.offset += step) {
		uint64_t remaining = bytes - from.offset;

		rc = vulkan_stream_copy(stream, to, from, remaining < step ? remaining : step,
					COPY_ORDERED);
	}
	int waited = vulkan_stream_wait(stream, stream->enqueued);

	return rc < 0 ? rc : waited;
}

/* 0; or an error, with the chunk just found bad in *lost, or NULL: a later attempt may work. */
static int chunks_return(struct vulkan_device *device, struct vulkan_stream *stream,
			 struct vulkan_chunk *scratch, struct vulkan_chunk **lost)
{
	struct chunk *base;

	DL_FOREACH (device->base.health.chunks, base) {
		struct vulkan_chunk *chunk = vulkan_chunk(base);
		int rc;

		if (atomic_load(&base->lost))
			continue;
		rc = vulkan_memory_import(chunk, chunk->fd);
		if (rc == 0)
			rc = chunk_read(stream, chunk, scratch);
		if (rc < 0) {
			*lost = rc == -ENOMEM || rc == -ENOSPC ? NULL : chunk;
			return rc;
		}
	}
	return 0;
}

/* First tests memory of its own: if the test fails, files are not to blame. */
static int scratch_new(struct vulkan_device *device, struct vulkan_stream *stream,
		       struct chunk **scratch)
{
	int rc = vulkan_chunk_new(&device->base, PLACE_GPU, SCRATCH_BYTES, scratch);

	if (rc == -ENOSPC)
		rc = vulkan_chunk_new(&device->base, PLACE_HOST, CHUNK_ALIGN, scratch);
	if (rc < 0)
		return rc;
	struct place to = {vulkan_chunk(*scratch)->buffer.buffer, 0, 0, false};

	rc = vulkan_stream_zero(stream, to, (*scratch)->bytes);
	if (rc == 0)
		rc = vulkan_stream_wait(stream, stream->enqueued);
	if (rc < 0)
		vulkan_chunk_free(*scratch);
	return rc;
}

static int device_restore(struct vulkan_device *device, struct vulkan_chunk **lost)
{
	struct vulkan_stream stream = {.device = NULL};
	struct chunk *scratch;
	int rc = chunks_leave(device);

	if (rc < 0)
		return rc;
	vulkan_device_destroy(device);
	rc = vulkan_device_create(device);
	if (rc < 0)
		return rc;
	rc = vulkan_stream_open(&stream, device, STREAM_LINK);
	if (rc == 0)
		rc = scratch_new(device, &stream, &scratch);
	if (rc == 0) {
		rc = chunks_return(device, &stream, vulkan_chunk(scratch), lost);
		vulkan_chunk_free(scratch);
	}
	vulkan_stream_close(&stream);
	return rc;
}

int vulkan_reset(struct device *base)
{
	struct vulkan_device *device = vulkan_device(base);
	int rc = copiers_leave(device);

	for (unsigned losses = 0; rc != -EBUSY && losses <= LOST_MAX; losses++) {
		struct vulkan_chunk *lost = NULL;

		rc = device_restore(device, &lost);
		if (!lost)
			break;
		chunk_lose(lost);
	}
	return rc;
}
