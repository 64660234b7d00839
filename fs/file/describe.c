/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* What a file's memory is, and where. */
#include <errno.h>
#include <linux/limits.h>

#include "fs/file/host.h"
#include "fs/file/internal.h"

uint64_t file_data_bytes(struct file *file, uint64_t unit)
{
	brlock_token token = brlock_read_lock(&file->layout_lock);
	uint64_t size = file_size(file), sum = 0, counted = 0; /* units before counted are in sum */
	struct data_run run;

	for (uint64_t at = 0; file_next_run(file, at, size, &run); at = run.to) {
		uint64_t from = run.from / unit * unit, to = (run.to + unit - 1) / unit * unit;

		if (!run.data)
			continue;
		sum += to - (from > counted ? from : counted);
		counted = to;
	}
	brlock_read_unlock(&file->layout_lock, token);
	return sum;
}

static uint64_t extents_bytes_where(const struct extents *extents,
				    bool (*is_so)(const struct chunk *chunk))
{
	uint64_t bytes = 0;

	EXTENTS_FOREACH (extent, extents)
		bytes += is_so(extent->span.chunk) ? extent->span.bytes : 0;
	return bytes;
}

static uint64_t file_bytes_where(struct file *file, bool (*is_so)(const struct chunk *chunk))
{
	brlock_token token = brlock_read_lock(&file->layout_lock);
	uint64_t bytes = extents_bytes_where(&file->extents, is_so);

	brlock_read_unlock(&file->layout_lock, token);
	return bytes;
}

static bool chunk_is_mapped(const struct chunk *chunk)
{
	return chunk->place == PLACE_GPU && atomic_load(&chunk->bar);
}

uint64_t file_mapped(struct file *file)
{
	return file_bytes_where(file, chunk_is_mapped);
}

static uint64_t extents_bytes_in(const struct extents *extents, enum memory_place place)
{
	uint64_t bytes = 0;

	EXTENTS_FOREACH (extent, extents)
		bytes += extent->span.chunk->place == place ? extent->span.bytes : 0;
	return bytes;
}

uint64_t file_bytes_in(struct file *file, enum memory_place place)
{
	brlock_token token = brlock_read_lock(&file->layout_lock);
	uint64_t bytes = extents_bytes_in(&file->extents, place);

	brlock_read_unlock(&file->layout_lock, token);
	return bytes;
}

uint64_t file_bytes_in_now(struct file *file, enum memory_place place)
{
	brlock_token token;
	uint64_t bytes;

	if (!brlock_read_trylock(&file->layout_lock, &token))
		return 0;
	bytes = extents_bytes_in(&file->extents, place);
	brlock_read_unlock(&file->layout_lock, token);
	return bytes;
}

uint64_t file_drained(struct file *file)
{
	brlock_token token;
	uint64_t bytes;

	if (!brlock_read_trylock(&file->layout_lock, &token))
		return 0;
	bytes = extents_bytes_where(&file->extents, chunk_is_drained);
	brlock_read_unlock(&file->layout_lock, token);
	return bytes;
}

static bool chunk_is_lost(const struct chunk *chunk)
{
	return atomic_load(&chunk->lost);
}

uint64_t file_lost(struct file *file)
{
	return file_bytes_where(file, chunk_is_lost);
}

static void object_describe(int fd, FILE *out)
{
	uint64_t end = fd < 0 ? 0 : object_size(fd);
	struct data_run run;

	for (uint64_t at = 0; object_next_run(fd, at, end, &run); at = run.to) {
		if (run.data)
			fprintf(out, "%lu %lu %lu object\n", run.from, run.to - run.from, run.from);
	}
}

int file_describe(struct file *file, FILE *out)
{
	static const char *const prefixes[PLACES] = {"", "host-", "disk-"};
	brlock_token token = brlock_read_lock(&file->layout_lock);

	EXTENTS_FOREACH (extent, &file->extents) {
		/* An attribute cannot be longer, so do not use more memory for the text. */
		if (ftell(out) > XATTR_SIZE_MAX)
			break;
		fprintf(out, "%lu %lu %lu %s%s\n", extent->offset, extent->span.bytes,
			extent->span.offset, prefixes[extent->span.chunk->place],
			span_owns_chunk(&extent->span) ? "chunk" : "block");
	}
	if (!file_is_device(file))
		object_describe(atomic_load(&file->fd), out);
	brlock_read_unlock(&file->layout_lock, token);
	return ferror(out) ? -ENOMEM : 0;
}
