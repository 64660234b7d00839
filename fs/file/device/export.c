/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* Files in gpuN/: the chunks that leases hand out. */
#include <errno.h>

#include "fs/file/core/record.h"
#include "fs/file/device/place.h"

/* Replaces the small pieces of a granule by a chunk: other files' bytes share the memory around
 * small pieces, and must not be exported. */
static int granule_to_chunk(struct file *file, const struct file_call *call, uint64_t granule)
{
	struct volume *volume = atomic_load(&file->volume);
	struct extent extent = {.offset = granule};
	struct extents new_extents = {.at = &extent, .count = 1}, old = {0};
	uint64_t end = granule + CHUNK_ALIGN;
	int64_t growth = (int64_t)extents_missing(&file->extents, granule, end);
	int rc = file_charge(call, growth);

	if (rc < 0)
		return rc;
	rc = span_take(volume, call, device_place_wanted(volume, call), CHUNK_ALIGN, POOL_UNDEFINED,
		       &extent.span);
	if (rc < 0)
		goto uncharge;
	rc = device_fill(call, &new_extents, &file->extents);
	if (rc == 0)
		rc = extents_reserve(&file->extents, 1);
	if (rc == 0)
		rc = extents_cut(&file->extents, granule, end, &old);
	if (rc < 0)
		goto give;
	extents_insert(&file->extents, &extent);
	file_record_replaced(call, file, granule, end, &new_extents);
	device_apply_mapping(&new_extents, call);
	device_uncharge_places(call, &old);
	device_release(volume, &old);
	device_update_accounting(file, growth);
	return 0;

give:
	span_release_unused(volume, call, &extent.span);
uncharge:
	file_charge(call, -growth);
	return rc;
}

int device_make_exportable(struct file *file, const struct file_call *call)
{
	struct volume *volume = atomic_load(&file->volume);
	uint64_t size = atomic_load(&file->fields->size), end = align_up(size, CHUNK_ALIGN);
	struct file_call ordinary = *call;
	struct allocation allocation = allocation_for(volume, &ordinary, end);
	int rc = 0;

	/* An exchange made room for small pieces, not for what the file lacks. */
	ordinary.exchanges = false;
	for (uint64_t at = 0; rc == 0 && at < end;) {
		uint32_t index = extents_find(&file->extents, at);

		if (index == file->extents.count)
			break;

		struct extent *extent = &file->extents.at[index];

		at = extent_end(extent);
		if (!span_owns_chunk(&extent->span) && extent->offset < end) {
			uint64_t granule = align_down(extent->offset, CHUNK_ALIGN);

			rc = granule_to_chunk(file, call, granule);
			at = granule + CHUNK_ALIGN;
		}
	}
	if (rc < 0)
		return rc;
	allocation.layout.unit = CHUNK_ALIGN;
	allocation.target = &file->extents;
	allocation.recorded = file;
	rc = alloc_run(&allocation, 0, end, end);
	device_update_accounting(file, (int64_t)allocation.bytes);
	return rc;
}

/* Whether chunks of this file alone back all bytes of the file. */
static bool chunks_are_exportable(const struct file *file)
{
	uint64_t end = align_up(atomic_load(&file->fields->size), CHUNK_ALIGN), at = 0;

	if (file->extents.count > FILE_QUICK_CHUNKS)
		return false;
	EXTENTS_FOREACH (extent, &file->extents) {
		if (at >= end)
			break;
		if (extent->offset != at || !span_owns_chunk(&extent->span))
			return false;
		at = extent_end(extent);
	}
	return at >= end;
}

bool device_is_exportable(struct file *file, const struct file_call *call)
{
	return (file_is_held(file) || !device_has_ahead(file, call)) &&
	       chunks_are_exportable(file) && device_is_placed(file, call);
}

static int extent_export(const struct extent *extent, struct file_chunk *chunk)
{
	/* Before the file, if the file begins inside another program's memory. */
	*chunk = (struct file_chunk){.offset = extent->offset - extent->span.offset,
				     .bytes = extent->span.chunk->bytes};
	return chunk_export(extent->span.chunk, &chunk->fd);
}

/* The number of extents from number first on that back bytes below end, up to the first extent that
 * is not exportable. The file may have grown, or been emptied and rewritten, since file_lease made
 * the file exportable; and other files' bytes share the memory around its small pieces. */
static uint32_t extents_exportable(const struct extents *extents, uint64_t end, uint32_t first,
				   uint32_t max)
{
	uint64_t at = first && first <= extents->count ? extent_end(&extents->at[first - 1]) : 0;
	uint32_t count = 0;

	for (uint32_t i = first; i < extents->count && count < max; i++) {
		const struct extent *extent = &extents->at[i];

		if (extent->offset >= end || extent->offset != at ||
		    !span_owns_chunk(&extent->span))
			break;
		at = extent_end(extent);
		count++;
	}
	return count;
}

/* One record names at most this many chunks. */
#define HAND_OUT_MAX 32

/* Stores that other processes have the chunks, for the next daemon too, which must give the memory
 * to no other file. A checkpoint that writes the file's extents meanwhile reads the state, so the
 * state is set before the record; and a concurrent export relies on the record only once the record
 * is complete. */
static void chunks_hand_out(struct journal *journal, const struct extent *extents, uint32_t count)
{
	uint64_t ids[HAND_OUT_MAX];
	uint32_t n = 0;

	for (uint32_t i = 0; i < count; i++) {
		struct chunk *chunk = extents[i].span.chunk;

		if (atomic_load(&chunk->handed_out) == CHUNK_HANDED_OUT)
			continue;
		atomic_store(&chunk->handed_out, CHUNK_HANDING_OUT);
		ids[n++] = chunk->id;
	}
	if (!n)
		return;
	file_record_handed_out(journal, ids, n);
	for (uint32_t i = 0; i < count; i++)
		atomic_store(&extents[i].span.chunk->handed_out, CHUNK_HANDED_OUT);
}

int device_export(struct file *file, struct journal *journal, enum file_share_access access,
		  uint64_t size, uint32_t first, struct file_chunk *chunks, uint32_t max)
{
	const struct extents *extents = &file->extents;
	uint32_t count = extents_exportable(extents, size, first, max);

	(void)access;
	for (uint32_t at = 0; at < count; at += HAND_OUT_MAX)
		chunks_hand_out(journal, &extents->at[first + at],
				count - at < HAND_OUT_MAX ? count - at : HAND_OUT_MAX);
	for (uint32_t i = 0; i < count; i++) {
		int rc = extent_export(&extents->at[first + i], &chunks[i]);

		if (rc < 0) {
			file_chunks_close(chunks, i);
			return rc;
		}
	}
	return (int)count;
}
