/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* Staging through two pinned slots. The driver never gets unpinned memory: such copies have a sixth
 * of the rate, and block in the call. */
#include <errno.h>
#include <string.h>

#include "backend/cuda/dma.h"

/* Waits until no stream uses the slot: 0, or the error of the copy that used it. */
static int slot_wait(struct cuda_copier *copier, unsigned index)
{
	struct dma_slot *slot = &copier->slots[index];
	struct dma_stream *user = slot->user;

	if (!user)
		return 0;
	slot->user = NULL;
	int rc = dma_context_use(user->device);
	if (rc < 0)
		return rc;
	return dma_result(user->device,
			  user->device->cuda->cu.cuEventSynchronize(user->staged[index]),
			  "waiting for a staged copy");
}

/* The stream's context is current. */
static int slot_open(struct cuda_copier *copier, unsigned index, struct dma_stream *stream)
{
	struct dma_slot *slot = &copier->slots[index];

	if (slot->memory)
		return 0;
	void *memory;
	int rc = dma_result(stream->device,
			    stream->device->cuda->cu.cuMemHostAlloc(&memory, STAGE_BYTES,
								    GM_CU_MEMHOSTALLOC_PORTABLE),
			    "cuMemHostAlloc");
	if (rc < 0)
		return rc;
	slot->memory = memory;
	slot->device = stream->device;
	return 0;
}

/* The next slot, free; the stream's context is current. */
static int slot_next(struct cuda_copier *copier, struct dma_stream *stream, unsigned *index)
{
	unsigned next = copier->next_slot++ % STAGE_SLOTS;

	/* An error of the slot's last copy belongs to the batch, not to this copy. */
	int rc = slot_wait(copier, next);
	if (copier->error == 0)
		copier->error = rc;
	rc = dma_context_use(stream->device);
	if (rc == 0)
		rc = slot_open(copier, next, stream);
	if (rc < 0)
		return rc;
	*index = next;
	return 0;
}

/* The stream has the slot until all work enqueued so far is complete. */
static int slot_lend(struct cuda_copier *copier, unsigned index, struct dma_stream *stream)
{
	int rc = dma_result(
	    stream->device,
	    stream->device->cuda->cu.cuEventRecord(stream->staged[index], stream->stream),
	    "cuEventRecord");
	if (rc == 0)
		copier->slots[index].user = stream;
	else
		/* There is no event to wait for: wait for the whole stream. */
		stream->device->cuda->cu.cuStreamSynchronize(stream->stream);
	return rc;
}

static int enqueue_in(struct cuda_copier *copier, unsigned index, struct dma_stream *stream,
		      gm_CUdeviceptr to, size_t bytes)
{
	stream->busy = true;
	int rc = dma_result(stream->device,
			    stream->device->cuda->cu.cuMemcpyHtoDAsync(
				to, copier->slots[index].memory, bytes, stream->stream),
			    "cuMemcpyHtoDAsync");
	return rc < 0 ? rc : slot_lend(copier, index, stream);
}

static int enqueue_out(struct cuda_copier *copier, unsigned index, struct dma_stream *stream,
		       gm_CUdeviceptr from, size_t bytes)
{
	stream->busy = true;
	int rc = dma_result(stream->device,
			    stream->device->cuda->cu.cuMemcpyDtoHAsync(copier->slots[index].memory,
								       from, bytes, stream->stream),
			    "cuMemcpyDtoHAsync");
	return rc < 0 ? rc : slot_lend(copier, index, stream);
}

static size_t piece_bytes(uint64_t bytes)
{
	return bytes < STAGE_BYTES ? bytes : STAGE_BYTES;
}

int dma_stage_in(struct cuda_copier *copier, struct dma_stream *stream, gm_CUdeviceptr to,
		 const char *from, size_t bytes)
{
	for (size_t at = 0; at < bytes;) {
		size_t now = piece_bytes(bytes - at);
		unsigned index;
		int rc = slot_next(copier, stream, &index);
		if (rc < 0)
			return rc;
		memcpy(copier->slots[index].memory, from + at, now);
		rc = enqueue_in(copier, index, stream, to + at, now);
		if (rc < 0)
			return rc;
		at += now;
	}
	return 0;
}

/* Waits for the piece in the slot and copies it to host memory. */
static int slot_copy_out(struct cuda_copier *copier, unsigned index, char *to, size_t bytes)
{
	int rc = slot_wait(copier, index);
	if (rc == 0)
		memcpy(to, copier->slots[index].memory, bytes);
	return rc;
}

/* The CPU empties a slot while the GPU fills the other. */
int dma_stage_out(struct cuda_copier *copier, struct dma_stream *stream, char *to,
		  gm_CUdeviceptr from, size_t bytes)
{
	unsigned oldest = copier->next_slot; /* slots are used in turn */
	size_t enqueued = 0;

	for (size_t at = 0; at < bytes; at += piece_bytes(bytes - at)) {
		while (enqueued < bytes && enqueued < at + STAGE_SLOTS * STAGE_BYTES) {
			size_t now = piece_bytes(bytes - enqueued);
			unsigned index;
			int rc = slot_next(copier, stream, &index);
			if (rc == 0)
				rc = enqueue_out(copier, index, stream, from + enqueued, now);
			if (rc < 0)
				return rc;
			enqueued += now;
		}
		int rc =
		    slot_copy_out(copier, oldest++ % STAGE_SLOTS, to + at, piece_bytes(bytes - at));
		if (rc < 0)
			return rc;
	}
	return 0;
}

int dma_stage_across(struct cuda_copier *copier, struct dma_stream *to_stream, gm_CUdeviceptr to,
		     struct dma_stream *from_stream, gm_CUdeviceptr from, uint64_t bytes)
{
	for (uint64_t at = 0; at < bytes;) {
		size_t now = piece_bytes(bytes - at);
		unsigned index;
		int rc = slot_next(copier, from_stream, &index);
		if (rc == 0)
			rc = enqueue_out(copier, index, from_stream, from + at, now);
		if (rc == 0)
			rc = dma_order(from_stream, to_stream);
		if (rc == 0)
			rc = enqueue_in(copier, index, to_stream, to + at, now);
		if (rc < 0)
			return rc;
		at += now;
	}
	return 0;
}

void dma_stage_close(struct cuda_copier *copier, struct cuda_device *device)
{
	for (unsigned i = 0; i < STAGE_SLOTS; i++) {
		struct dma_slot *slot = &copier->slots[i];
		if (!slot->memory || (device && slot->device != device))
			continue;
		slot_wait(copier, i);
		cuda_context_for_giving(slot->device);
		slot->device->cuda->cu.cuMemFreeHost(slot->memory);
		*slot = (struct dma_slot){0};
	}
}
