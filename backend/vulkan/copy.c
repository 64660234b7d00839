/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* Copiers, and the copies of backend_ops. */
#include <errno.h>
#include <utlist.h>

#include "backend/vulkan/copier.h"
#include "common/cacheline.h"
#include "common/cleanup.h"

/* vkCmdFillBuffer's unit. */
#define FILL_UNIT 4

int vulkan_copier_new(struct backend *backend, struct copier **copier)
{
	struct vulkan *vulkan = vulkan_of(backend);
	struct vulkan_copier *new_copier = cacheline_calloc(
	    sizeof(*new_copier) + backend->n_devices * sizeof(new_copier->streams[0]));

	if (!new_copier)
		return -ENOMEM;
	new_copier->base.backend = backend;
	pthread_mutex_init(&new_copier->lock, NULL);
	scoped_lock(&vulkan->lock);
	DL_APPEND(vulkan->copiers, new_copier);
	*copier = &new_copier->base;
	return 0;
}

static bool stream_is_busy(const struct vulkan_stream *stream)
{
	return stream->device && stream->enqueued > stream->complete;
}

static void streams_close(struct vulkan_streams *streams)
{
	vulkan_stream_close(&streams->link);
	vulkan_stream_close(&streams->inside);
}

void vulkan_copier_leave(struct vulkan_copier *copier, struct vulkan_device *device)
{
	struct vulkan_streams *streams = &copier->streams[device->base.slot];

	if ((stream_is_busy(&streams->link) || stream_is_busy(&streams->inside)) &&
	    copier->error == 0)
		copier->error = -EIO;
	vulkan_pins_leave(copier, device);
	streams_close(streams);
}

void vulkan_copier_free(struct copier *base)
{
	struct vulkan_copier *copier = vulkan_copier(base);
	struct vulkan *vulkan = vulkan_of(base->backend);

	vulkan_wait(base);
	/* Held to the end: a reset that misses the copier would end the device under its streams.
	 */
	pthread_mutex_lock(&vulkan->lock);
	DL_DELETE(vulkan->copiers, copier);
	vulkan_pins_close(copier);
	for (unsigned i = 0; i < base->backend->n_devices; i++)
		streams_close(&copier->streams[i]);
	pthread_mutex_unlock(&vulkan->lock);
	pthread_mutex_destroy(&copier->lock);
	free(copier);
}

int vulkan_wait(struct copier *base)
{
	struct vulkan_copier *copier = vulkan_copier(base);

	scoped_lock(&copier->lock);
	return vulkan_streams_wait(copier);
}

/* copier->lock is held: the chunk keeps its buffer meanwhile (reset.c). */
static int chunk_place(struct vulkan_copier *copier, struct chunk *chunk, uint64_t offset,
		       enum stream_kind kind, struct vulkan_stream **stream, struct place *place)
{
	struct vulkan_device *device = vulkan_device(chunk->device);
	int rc = vulkan_stream_use(copier, device, kind, stream);

	if (rc < 0)
		return rc;
	const struct vulkan_buffer *buffer = &vulkan_chunk(chunk)->buffer;

	*place = (struct place){.buffer = buffer->buffer,
				.offset = offset,
				.address = chunk->place == PLACE_GPU ? buffer->address : 0,
				.mapped = device->types.places[chunk->place].direct};
	return atomic_load_explicit(&chunk->lost, memory_order_relaxed) ? -EIO : 0;
}

int vulkan_dma_in(struct copier *base, struct chunk *chunk, uint64_t offset, const void *from,
		  size_t bytes)
{
	struct vulkan_copier *copier = vulkan_copier(base);
	struct vulkan_stream *stream;
	struct place to, pinned;

	scoped_lock(&copier->lock);
	int rc = chunk_place(copier, chunk, offset, STREAM_LINK, &stream, &to);
	if (rc < 0)
		return rc;
	if (!vulkan_pinned(copier, stream->device, from, bytes, &pinned))
		return vulkan_stage_in(stream, to, from, bytes);
	return vulkan_stream_copy(stream, to, pinned, bytes, COPY_ORDERED);
}

int vulkan_dma_out(struct copier *base, void *to, struct chunk *chunk, uint64_t offset,
		   size_t bytes)
{
	struct vulkan_copier *copier = vulkan_copier(base);
	struct vulkan_stream *stream;
	struct place from, pinned;

	scoped_lock(&copier->lock);
	int rc = chunk_place(copier, chunk, offset, STREAM_LINK, &stream, &from);
	if (rc < 0)
		return rc;
	if (!vulkan_pinned(copier, stream->device, to, bytes, &pinned))
		return vulkan_stage_out(stream, to, from, bytes);
	return vulkan_stream_copy(stream, pinned, from, bytes, COPY_ORDERED);
}

int vulkan_dma_across(struct copier *base, struct chunk *to_chunk, uint64_t to_offset,
		      struct chunk *from_chunk, uint64_t from_offset, uint64_t bytes)
{
	struct vulkan_copier *copier = vulkan_copier(base);
	bool inside = to_chunk->device == from_chunk->device && to_chunk->place == PLACE_GPU &&
		      from_chunk->place == PLACE_GPU;
	enum stream_kind kind = inside ? STREAM_INSIDE : STREAM_LINK;
	struct vulkan_stream *to_stream, *from_stream;
	struct place to, from;

	scoped_lock(&copier->lock);
	int rc = chunk_place(copier, to_chunk, to_offset, kind, &to_stream, &to);
	if (rc == 0)
		rc = chunk_place(copier, from_chunk, from_offset, kind, &from_stream, &from);
	if (rc < 0)
		return rc;
	if (to_stream == from_stream)
		return vulkan_stream_copy_inside(to_stream, to, from, bytes);
	return vulkan_stage_across(to_stream, to, from_stream, from, bytes);
}

int vulkan_dma_zero(struct copier *base, struct chunk *chunk, uint64_t offset, uint64_t bytes)
{
	static const char zeros[FILL_UNIT];
	struct vulkan_copier *copier = vulkan_copier(base);
	uint64_t head = (FILL_UNIT - offset % FILL_UNIT) % FILL_UNIT;
	struct vulkan_stream *stream;
	struct place to;

	scoped_lock(&copier->lock);
	int rc = chunk_place(copier, chunk, offset, STREAM_INSIDE, &stream, &to);
	if (rc < 0)
		return rc;
	head = head < bytes ? head : bytes;
	if (head)
		rc = vulkan_stage_in(stream, to, zeros, head);
	to.offset += head;
	bytes -= head;
	uint64_t whole = bytes / FILL_UNIT * FILL_UNIT;
	if (rc == 0 && whole)
		rc = vulkan_stream_zero(stream, to, whole);
	to.offset += whole;
	if (rc == 0 && bytes > whole)
		rc = vulkan_stage_in(stream, to, zeros, bytes - whole);
	return rc;
}
