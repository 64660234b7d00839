/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* What a file's memory is, and where. */
#include <errno.h>

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

#define ALL_PLACES (~0U)

/* The bytes in places, bits 1 << enum memory_place, whose chunk is so; NULL: whatever the chunk.
 * False: the layout is being changed, and the caller does not wait. */
static bool bytes_where(struct file *file, enum file_wait wait, unsigned places,
			bool (*is_so)(const struct chunk *chunk), uint64_t *bytes)
{
	brlock_token token;

	*bytes = 0;
	if (wait == FILE_MAY_WAIT)
		token = brlock_read_lock(&file->layout_lock);
	else if (!brlock_read_trylock(&file->layout_lock, &token))
		return false;
	EXTENTS_FOREACH (extent, &file->extents) {
		const struct chunk *chunk = extent->span.chunk;

		if (places >> chunk->place & 1 && (!is_so || is_so(chunk)))
			*bytes += extent->span.bytes;
	}
	brlock_read_unlock(&file->layout_lock, token);
	return true;
}

static uint64_t file_bytes_where(struct file *file, enum file_wait wait, unsigned places,
				 bool (*is_so)(const struct chunk *chunk))
{
	uint64_t bytes;

	bytes_where(file, wait, places, is_so, &bytes);
	return bytes;
}

static bool chunk_is_mapped(const struct chunk *chunk)
{
	return atomic_load(&chunk->bar);
}

uint64_t file_mapped(struct file *file)
{
	return file_bytes_where(file, FILE_MAY_WAIT, 1U << PLACE_GPU, chunk_is_mapped);
}

uint64_t file_bytes_in_places(struct file *file, unsigned places)
{
	return file_bytes_where(file, FILE_MAY_WAIT, places, NULL);
}

uint64_t file_bytes_in(struct file *file, enum memory_place place)
{
	return file_bytes_in_places(file, 1U << place);
}

bool file_try_bytes_in(struct file *file, enum memory_place place, uint64_t *bytes)
{
	return bytes_where(file, FILE_NO_WAIT, 1U << place, NULL, bytes);
}

uint64_t file_drained(struct file *file)
{
	return file_bytes_where(file, FILE_NO_WAIT, ALL_PLACES, chunk_is_drained);
}

static bool chunk_is_lost(const struct chunk *chunk)
{
	return atomic_load(&chunk->lost);
}

uint64_t file_lost(struct file *file)
{
	return file_bytes_where(file, FILE_MAY_WAIT, ALL_PLACES, chunk_is_lost);
}

int file_describe(struct file *file, FILE *out)
{
	brlock_token token = brlock_read_lock(&file->layout_lock);

	file_kind(file)->describe(file, out);
	brlock_read_unlock(&file->layout_lock, token);
	return ferror(out) ? -ENOMEM : 0;
}
