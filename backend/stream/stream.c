/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
#include "backend/stream/stream.h"

#include <stdatomic.h>
#include <stdint.h>
#include <string.h>

#include "backend/stream/stream_arch.h"

/* Runs on every processor: memcpy and memset for all bytes. */
static const struct stream_variant stream_plain = {.name = "plain"};

/* Set at the first use. Threads that race find the same answer. */
static _Atomic(const struct stream_variant *) chosen;

/* The index-th variant for this processor; NULL past the last. */
static const struct stream_variant *stream_find(unsigned index)
{
	const struct stream_variant *variant = stream_arch;
	for (; variant->name; variant++)
		if (variant->usable() && index-- == 0)
			return variant;
	return index == 0 ? &stream_plain : NULL;
}

static const struct stream_variant *stream_variant(void)
{
	const struct stream_variant *variant = atomic_load_explicit(&chosen, memory_order_relaxed);
	if (!variant) {
		variant = stream_find(0);
		atomic_store_explicit(&chosen, variant, memory_order_relaxed);
	}
	return variant;
}

const char *stream_name(void)
{
	return stream_variant()->name;
}

const char *stream_select(unsigned index)
{
	const struct stream_variant *variant = stream_find(index);
	if (!variant)
		return NULL;
	atomic_store_explicit(&chosen, variant, memory_order_relaxed);
	return variant->name;
}

static size_t stream_min(size_t a, size_t b)
{
	return a < b ? a : b;
}

/* Bytes from the address to the next line; 0 on a line. */
static size_t stream_head(const void *device)
{
	return -(uintptr_t)device % STREAM_LINE;
}

void stream_store(void *to_device, const void *from, size_t bytes)
{
	const struct stream_variant *variant = stream_variant();
	char *to = to_device;
	const char *source = from;
	size_t head = stream_min(stream_head(to), bytes);
	size_t lines = (bytes - head) / STREAM_LINE;

	if (!variant->store || !lines) {
		memcpy(to, source, bytes);
		return;
	}
	/* Another thread may be writing its bytes in the first or last line right now: store
	 * exactly these bytes, and never write back bytes read before. */
	memcpy(to, source, head);
	variant->store(to + head, source + head, lines);
	size_t tail = head + lines * STREAM_LINE;
	memcpy(to + tail, source + tail, bytes - tail);
}

void stream_zero(void *to_device, size_t bytes)
{
	const struct stream_variant *variant = stream_variant();
	char *to = to_device;
	size_t head = stream_min(stream_head(to), bytes);
	size_t lines = (bytes - head) / STREAM_LINE;

	if (!variant->zero || !lines) {
		memset(to, 0, bytes);
		return;
	}
	memset(to, 0, head);
	variant->zero(to + head, lines);
	size_t tail = head + lines * STREAM_LINE;
	memset(to + tail, 0, bytes - tail);
}

/* Reads a part of a line by a streaming load of the whole line: each ordinary load would cross the
 * bus. The rest of the line is in the same page, hence mapped. */
static void stream_load_part(const struct stream_variant *variant, char *to, const char *line,
			     size_t skip, size_t bytes)
{
	_Alignas(STREAM_LINE) char whole[STREAM_LINE];
	variant->load(whole, line, 1);
	memcpy(to, whole + skip, bytes);
}

void stream_load(void *to, const void *from_device, size_t bytes)
{
	const struct stream_variant *variant = stream_variant();
	char *target = to;
	const char *from = from_device;
	size_t head = stream_min(stream_head(from), bytes);

	if (!bytes)
		return;
	/* A single fence is enough: no line is fetched twice below. */
	stream_fence_loads();
	if (!variant->load) {
		memcpy(target, from, bytes);
		return;
	}
	if (head) {
		size_t skip = (uintptr_t)from % STREAM_LINE;
		stream_load_part(variant, target, from - skip, skip, head);
	}
	size_t lines = (bytes - head) / STREAM_LINE;
	variant->load(target + head, from + head, lines);
	size_t tail = head + lines * STREAM_LINE;
	if (tail < bytes)
		stream_load_part(variant, target + tail, from + tail, 0, bytes - tail);
}

void stream_fence(void)
{
	stream_fence_stores();
}
