/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* Staging through two slots of mapped system memory, for host memory that is not pinned. */
#include <errno.h>
#include <string.h>

#include "backend/vulkan/copier.h"

static int slot_open(struct vulkan_stream *stream, struct stage_slot *slot)
{
	struct vulkan_device *device = stream->device;
	void *address;

	if (slot->address)
		return 0;
	VkResult result =
	    vulkan_buffer_new(device, device->types.stage, STAGE_BYTES, 0, NULL, &slot->buffer);

	if (result == VK_SUCCESS)
		result = device->vk.vkMapMemory(device->handle, slot->buffer.memory, 0,
						VK_WHOLE_SIZE, 0, &address);
	if (result == VK_SUCCESS)
		slot->address = address;
	else
		vulkan_buffer_free(device, &slot->buffer);
	int rc = vulkan_result(device, result, "staging memory");

	return rc == -ENOSPC ? -ENOMEM : rc;
}

/* The next slot, which no copy uses. */
static int slot_next(struct vulkan_stream *stream, struct stage_slot **slot)
{
	struct stage_slot *next = &stream->slots[stream->next_slot];
	int rc = vulkan_stream_wait(stream, next->busy);

	if (rc == 0)
		rc = slot_open(stream, next);
	if (rc < 0)
		return rc;
	stream->next_slot = (stream->next_slot + 1) % STAGE_SLOTS;
	*slot = next;
	return 0;
}

static struct place slot_place(const struct stage_slot *slot)
{
	return (struct place){slot->buffer.buffer, 0, 0, true};
}

/* To or from the slot. */
static int slot_copy(struct vulkan_stream *stream, struct stage_slot *slot, struct place to,
		     struct place from, size_t bytes)
{
	int rc = vulkan_stream_copy(stream, to, from, bytes, COPY_ORDERED);

	slot->busy = stream->enqueued;
	return rc;
}

static size_t piece_bytes(uint64_t bytes)
{
	return bytes < STAGE_BYTES ? bytes : STAGE_BYTES;
}

int vulkan_stage_in(struct vulkan_stream *stream, struct place to, const char *from, size_t bytes)
{
	while (bytes) {
		size_t now = piece_bytes(bytes);
		struct stage_slot *slot;
		int rc = slot_next(stream, &slot);

		if (rc < 0)
			return rc;
		memcpy(slot->address, from, now);
		rc = slot_copy(stream, slot, to, slot_place(slot), now);
		if (rc < 0)
			return rc;
		from += now;
		to.offset += now;
		bytes -= now;
	}
	return 0;
}

/* A piece on its way from the device. */
struct piece {
	struct stage_slot *slot;
	size_t bytes;
};

static int piece_begin(struct vulkan_stream *stream, struct place *from, size_t *remaining,
		       struct piece *piece)
{
	piece->bytes = piece_bytes(*remaining);
	if (!piece->bytes)
		return 0;
	int rc = slot_next(stream, &piece->slot);
	if (rc == 0)
		rc = slot_copy(stream, piece->slot, slot_place(piece->slot), *from, piece->bytes);
	from->offset += piece->bytes;
	*remaining -= piece->bytes;
	return rc;
}

/* The CPU empties a slot while the GPU fills the other. */
int vulkan_stage_out(struct vulkan_stream *stream, char *to, struct place from, size_t bytes)
{
	struct piece piece, next;
	int rc = piece_begin(stream, &from, &bytes, &piece);

	while (rc == 0 && piece.bytes) {
		rc = piece_begin(stream, &from, &bytes, &next);
		if (rc == 0)
			rc = vulkan_stream_wait(stream, piece.slot->busy);
		if (rc == 0)
			memcpy(to, piece.slot->address, piece.bytes);
		to += piece.bytes;
		piece = next;
	}
	return rc;
}

/* Between two devices: from the slot of one into the slot of the other. */
int vulkan_stage_across(struct vulkan_stream *to_stream, struct place to,
			struct vulkan_stream *from_stream, struct place from, uint64_t bytes)
{
	int rc = 0;

	while (rc == 0 && bytes) {
		size_t remaining = piece_bytes(bytes), step = remaining;
		struct piece piece;

		rc = piece_begin(from_stream, &from, &remaining, &piece);
		if (rc == 0)
			rc = vulkan_stream_wait(from_stream, piece.slot->busy);
		if (rc == 0)
			rc = vulkan_stage_in(to_stream, to, piece.slot->address, step);
		to.offset += step;
		bytes -= step;
	}
	return rc;
}
