/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* Files in gpuN/: allocating memory from the pool and freeing memory, with the charge. */
#include "fs/file/device/device.h"

#include <errno.h>

#include "backend/bar_cache.h"
#include "fs/file/core/record.h"

enum memory_place device_place_wanted(const struct volume *volume, const struct file_call *call)
{
	bool host = call->attrs.resident == RESIDENT_HOST && volume->spill;
	enum memory_place own = host ? PLACE_HOST : PLACE_GPU;

	return call->place > own ? call->place : own;
}

struct allocation allocation_for(struct volume *volume, const struct file_call *call, uint64_t size)
{
	struct allocation allocation = {
	    .volume = volume,
	    .call = call,
	    .layout = {.unit = layout_unit(call->attrs.page_size, size), .ceiling = FILE_SIZE_MAX},
	};

	allocation_set_place(&allocation, device_place_wanted(volume, call));
	return allocation;
}

int span_take(struct volume *volume, const struct file_call *call, enum memory_place place,
	      uint64_t bytes, enum pool_fill fill, struct span *span)
{
	struct pool *pool = volume_pool(volume, place);
	int rc = span_take_shelved(volume, call, place, bytes, ALLOCATION_UNCHARGED, span);

	if (rc != -ENOENT)
		return rc;
	rc = file_charge_place(call, place, (int64_t)bytes);
	if (rc < 0)
		return rc;
	rc = call->exchanges ? pool_alloc_exchange(pool, bytes, fill, call->copier, span)
			     : pool_alloc(pool, bytes, fill, call->copier, span);
	if (rc < 0)
		file_charge_place(call, place, -(int64_t)bytes);
	return rc;
}

void device_uncharge_places(const struct file_call *call, const struct extents *extents)
{
	EXTENTS_FOREACH (extent, extents)
		file_charge_place(call, extent->span.chunk->place,
				  -(int64_t)span_taken(&extent->span));
}

/* In the next slower place if the owner of the file may have no more in the allocation's. */
static int span_take_below(const struct allocation *allocation, uint64_t bytes, struct span *span)
{
	enum memory_place place = allocation->place;
	int rc;

	do {
		rc = span_take(allocation->volume, allocation->call, place, bytes, allocation->fill,
			       span);
		place = volume_place_below(allocation->volume, place);
	} while (rc == -EDQUOT && place < PLACES);
	return rc;
}

static int span_alloc(struct allocation *allocation, uint64_t bytes, struct span *span)
{
	const struct file_call *call = allocation->call;
	bool charged = allocation->charge == ALLOCATION_CHARGED;
	/* Before the charges, whose limits count the chunk already. */
	int rc = span_take_shelved(allocation->volume, call, allocation->place, bytes,
				   allocation->charge, span);

	if (rc != -ENOENT)
		return rc;
	rc = charged ? file_charge(call, (int64_t)bytes) : 0;
	if (rc < 0)
		return rc;
	rc = span_take_below(allocation, bytes, span);
	if (rc < 0 && charged)
		file_charge(call, -(int64_t)bytes);
	return rc;
}

static uint64_t piece_next_bytes(uint64_t bytes, const struct layout_piece *piece)
{
	if (bytes > piece->min_bytes)
		return piece->min_bytes;

	uint64_t half = align_up(bytes / 2, piece->step);

	return half < bytes ? half : 0;
}

/* Frees memory that is kept for the next files. */
static bool shelf_drop(const struct allocation *allocation)
{
	const struct file_call *call = allocation->call;

	return call->holds &&
	       call->holds->drop(call->quota_owner, allocation->volume, allocation->place);
}

/* Allocates as much of the piece as the pool has, from the start of the piece. */
static int piece_alloc_once(struct allocation *allocation, const struct layout_piece *piece,
			    struct extent *extent)
{
	int rc = -ENOSPC;

	for (uint64_t bytes = piece->bytes; bytes; bytes = piece_next_bytes(bytes, piece)) {
		rc = span_alloc(allocation, bytes, &extent->span);
		if (rc == 0)
			break;
		if (rc != -ENOSPC && rc != -EDQUOT)
			break;
	}
	extent->offset = piece->offset;
	return rc;
}

static int piece_alloc(struct allocation *allocation, const struct layout_piece *piece,
		       struct extent *extent)
{
	int rc = piece_alloc_once(allocation, piece, extent);

	return rc == -ENOSPC && shelf_drop(allocation) ? piece_alloc_once(allocation, piece, extent)
						       : rc;
}

int alloc_run(struct allocation *allocation, uint64_t from, uint64_t end, uint64_t prealloc_end)
{
	struct layout_piece piece;
	struct extent extent;

	while (
	    layout_next(allocation->target, &allocation->layout, from, end, prealloc_end, &piece)) {
		if (extents_reserve(allocation->target, 1) < 0 ||
		    (allocation->new_extents && extents_reserve(allocation->new_extents, 1) < 0))
			return -ENOMEM;

		int rc = piece_alloc(allocation, &piece, &extent);

		if (rc < 0)
			return rc;
		extents_insert(allocation->target, &extent);
		if (allocation->new_extents)
			extents_insert(allocation->new_extents, &extent);
		struct extents new_extents = {.at = &extent, .count = 1};

		if (allocation->recorded) {
			allocation_note_unit(allocation, allocation->recorded);
			file_record_added(allocation->call, allocation->recorded, &new_extents);
		}
		device_apply_mapping(&new_extents, allocation->call);
		allocation->bytes += extent.span.bytes;
		from = extent_end(&extent) > from ? extent_end(&extent) : from;
	}
	return 0;
}

void allocation_undo(struct allocation *allocation)
{
	EXTENTS_FOREACH (extent, allocation->new_extents)
		extents_remove(allocation->target,
			       extents_find(allocation->target, extent->offset));

	uint64_t bytes =
	    device_release_unused(allocation->volume, allocation->call, allocation->new_extents);

	if (allocation->charge == ALLOCATION_CHARGED)
		file_charge(allocation->call, -(int64_t)bytes);
	allocation->bytes -= bytes;
}

void span_release(struct volume *volume, const struct span *span)
{
	pool_free_span(volume_pool(volume, span->chunk->place), span);
}

uint64_t device_release(struct volume *volume, struct extents *extents)
{
	uint64_t bytes = 0;

	EXTENTS_FOREACH (extent, extents) {
		bytes += span_taken(&extent->span);
		span_release(volume, &extent->span);
	}
	extents_free(extents);
	return bytes;
}

uint64_t device_release_unused(struct volume *volume, const struct file_call *call,
			       struct extents *extents)
{
	device_hold(call, volume, extents);
	device_uncharge_places(call, extents);
	return device_release(volume, extents);
}

void device_update_accounting(struct file *file, int64_t bytes)
{
	const struct extents *extents = &file->extents;

	atomic_fetch_add(&file->allocated, (uint64_t)bytes);
	if (!extents->count) {
		extents_free(&file->extents);
		atomic_store(&file->memory.tail_blocks, 0);
		atomic_store(&file->memory.tail_end, 0);
		return;
	}
	const struct extent *last = &extents->at[extents->count - 1];

	atomic_store(&file->memory.tail_blocks, (uint32_t)(last->span.bytes / POOL_BLOCK_MIN));
	atomic_store(&file->memory.tail_end, extent_end(last));
}

int device_free_range(struct file *file, const struct file_call *call, uint64_t from, uint64_t to)
{
	struct extents cut = {0};
	int rc = extents_cut(&file->extents, from, to, &cut);

	if (rc < 0)
		return rc;
	struct volume *volume = atomic_load(&file->volume);
	int64_t bytes = 0;

	device_hold(call, volume, &cut);
	if (cut.count)
		file_record_cut(call, from, to);
	EXTENTS_FOREACH (extent, &cut)
		bytes += (int64_t)span_taken(&extent->span);
	device_uncharge_places(call, &cut);
	device_shelve(file, call, volume, &cut);
	device_release(volume, &cut);
	file_charge(call, -bytes);
	device_update_accounting(file, -bytes);
	return 0;
}

int device_make_room(struct file *file, const struct file_call *call, uint64_t from, uint64_t end)
{
	struct volume *volume = atomic_load(&file->volume);
	uint64_t size = atomic_load(&file->fields->size);
	struct allocation allocation = allocation_for(volume, call, size > end ? size : end);
	uint64_t prealloc_end =
	    layout_prealloc_end(end, size, atomic_load(&file->allocated), volume->max_chunk);

	allocation.target = &file->extents;
	allocation.recorded = file;
	int rc = alloc_run(&allocation, from, end, prealloc_end);

	device_update_accounting(file, (int64_t)allocation.bytes);
	return rc;
}

void device_apply_mapping(const struct extents *extents, const struct file_call *call)
{
	static const enum map_policy policies[] = {
	    [MAPPING_AUTO] = MAP_AUTO,
	    [MAPPING_PERSISTENT] = MAP_PERSISTENT,
	    [MAPPING_TRANSIENT] = MAP_TRANSIENT,
	};
	enum map_policy policy = policies[call->attrs.mapping];

	EXTENTS_FOREACH (extent, extents) {
		struct chunk *chunk = extent->span.chunk;
		enum map_policy now = (enum map_policy)atomic_load(&chunk->bar_policy);

		/* If several files share the chunk, persistent wins. */
		if (now == policy || (now == MAP_PERSISTENT && !span_owns_chunk(&extent->span)))
			continue;
		bar_set_policy(chunk, policy);
	}
}
