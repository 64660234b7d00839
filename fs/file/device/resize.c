/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* Files in gpuN/: truncate(2), fallocate(2), and giving back memory that was taken ahead of the
 * end. Memory beyond the size holds zeroes, so that growing is only a change of the size. Only the
 * holder of a lease can store other bytes there: see device_zero_end. */
#include "fs/file/device/device.h"

#include <errno.h>
#include <fcntl.h>

#include "fs/file/core/record.h"

uint64_t device_kept_end(struct file *file, const struct file_call *call, uint64_t size)
{
	uint64_t reserved = atomic_load(&file->fields->reserved);
	uint64_t end = size > reserved ? size : reserved;

	return align_up(end, layout_unit(call->attrs.page_size, end));
}

/* The index of the extent that lies across kept_end, if the extent is a whole chunk; else count. */
static uint32_t chunk_across(const struct extents *extents, uint64_t kept_end)
{
	uint32_t index = extents_find(extents, kept_end);

	if (index < extents->count && extents->at[index].offset < kept_end &&
	    span_owns_chunk(&extents->at[index].span))
		return index;
	return extents->count;
}

/* Whether memory beyond the size holds zeroes already. */
enum shrink_content { SHRINK_ZEROES, SHRINK_DIRTY };

/* Frees the memory beyond kept_end. If a chunk cannot be replaced by a smaller chunk, its end
 * stays, and is zeroed unless content says that the memory is zero. */
static int memory_shrink(struct file *file, const struct file_call *call, uint64_t kept_end,
			 uint64_t size, enum shrink_content content)
{
	uint32_t index = chunk_across(&file->extents, kept_end);
	int rc = 0;

	if (index < file->extents.count) {
		struct extent *extent = &file->extents.at[index];
		struct device_range ranges[2] = {{extent->offset, kept_end}};
		uint64_t end = extent_end(extent);

		device_reshape(file, call, index, ranges, size);
		if (content == SHRINK_DIRTY)
			rc = device_zero_now(&file->extents, call, kept_end, end);
		kept_end = end;
	}
	return rc < 0 ? rc : device_free_range(file, call, kept_end, UINT64_MAX);
}

int device_truncate(struct file *file, const struct file_call *call, uint64_t size)
{
	uint64_t old = atomic_load(&file->fields->size);

	if (size > old) {
		int error = device_zero_end(file, call, size);

		if (!error)
			atomic_store(&file->fields->size, size);
		return error;
	}

	uint64_t kept_end = align_up(size, layout_unit(call->attrs.page_size, size));

	/* The size first: a restarted daemon that finds the file unclean zeroes the memory beyond
	 * the size, so bytes that were cut off are never seen again. */
	atomic_store(&file->fields->unclean, size < old);
	atomic_store(&file->fields->size, size);

	int rc = size < old ? device_zero_now(&file->extents, call, size, kept_end) : 0;

	if (rc == 0)
		rc = memory_shrink(file, call, kept_end, size,
				   size < old ? SHRINK_DIRTY : SHRINK_ZEROES);
	if (rc < 0)
		atomic_store(&file->fields->size, old);
	else
		/* As in other file systems, truncate gives back memory reserved beyond the end. */
		atomic_store(&file->fields->reserved, 0);
	atomic_store(&file->fields->unclean, 0);
	return rc;
}

bool device_has_ahead(struct file *file, const struct file_call *call)
{
	uint64_t kept_end = device_kept_end(file, call, atomic_load(&file->fields->size));

	return extents_end(&file->extents) > kept_end;
}

void device_trim(struct file *file, const struct file_call *call)
{
	uint64_t size = atomic_load(&file->fields->size);

	if (device_has_ahead(file, call))
		memory_shrink(file, call, device_kept_end(file, call, size), size, SHRINK_ZEROES);
}

/* Memory that leaves the device makes room there, so the sum of all places is what counts. */
int device_check_room(const struct file *file, const struct file_call *call, uint64_t from,
		      uint64_t to)
{
	const struct volume *volume = file_volume(file);
	uint64_t available = 0, pool_room;
	int rc = 0;

	if (call->holds)
		available = call->holds->shelved(call->quota_owner, volume);
	for (enum memory_place place = PLACE_GPU; rc == 0 && place < PLACES;
	     place = volume_place_below(volume, place)) {
		rc = pool_available(volume_pool(volume, place), &pool_room);
		available += rc == 0 ? pool_room : 0;
	}
	if (rc < 0)
		return rc;
	return extents_missing(&file->extents, from, to) > available ? -ENOSPC : 0;
}

int device_allocate(struct file *file, const struct file_call *call, uint64_t from, uint64_t to)
{
	struct volume *volume = atomic_load(&file->volume);
	uint64_t size = atomic_load(&file->fields->size);
	struct allocation allocation = allocation_for(volume, call, size > to ? size : to);
	struct extents new_extents = {0};
	/* Without this check a request that cannot succeed would fill the device for a moment. */
	int rc = device_check_room(file, call, from, to);

	if (rc < 0)
		return rc;
	allocation.target = &file->extents;
	allocation.new_extents = &new_extents;
	rc = alloc_run(&allocation, from, to, to);
	if (rc < 0)
		allocation_undo(&allocation);
	else if (new_extents.count)
		allocation_note_unit(&allocation, file);
	file_record_added(call, file, &new_extents);
	extents_free(&new_extents);
	device_update_accounting(file, (int64_t)allocation.bytes);
	return rc;
}

/* The granularity in which memory of the extent can be freed. */
static uint64_t extent_grain(const struct extent *extent)
{
	if (!span_owns_chunk(&extent->span))
		return POOL_BLOCK_MIN;
	if (extent->offset % LAYOUT_GIB == 0 && extent->span.bytes % LAYOUT_GIB == 0)
		return LAYOUT_GIB;
	return CHUNK_ALIGN;
}

/* Takes [from, to), multiples of the extent's grain, out of the extent at index. */
static int extent_free_inside(struct file *file, const struct file_call *call, uint32_t index,
			      uint64_t from, uint64_t to)
{
	struct extent extent = file->extents.at[index];
	bool whole = from == extent.offset && to == extent_end(&extent);

	if (whole || !span_owns_chunk(&extent.span))
		return device_free_range(file, call, from, to);

	struct device_range ranges[2] = {{extent.offset, from}, {to, extent_end(&extent)}};

	/* device_reshape may leave memory between the two ranges, which must read as zero. */
	device_reshape(file, call, index, ranges, atomic_load(&file->fields->size));
	return device_zero_now(&file->extents, call, from, to);
}

/* [from, to) lies inside the extent at index. */
static int extent_punch(struct file *file, const struct file_call *call, uint32_t index,
			uint64_t from, uint64_t to)
{
	uint64_t grain = extent_grain(&file->extents.at[index]);
	uint64_t first = align_up(from, grain), last = align_down(to, grain);

	if (first >= last)
		return device_zero_now(&file->extents, call, from, to);

	int rc = device_zero_now(&file->extents, call, from, first);

	if (rc == 0)
		rc = device_zero_now(&file->extents, call, last, to);
	if (rc == 0)
		rc = extent_free_inside(file, call, index, first, last);
	return rc;
}

int device_punch(struct file *file, const struct file_call *call, uint64_t from, uint64_t to)
{
	uint64_t kept_end = device_kept_end(file, call, atomic_load(&file->fields->size));
	uint64_t end = extents_end(&file->extents);
	int rc = 0;

	/* Memory beyond the size is zero, so the block that holds the end of the file can go whole.
	 */
	if (to >= kept_end || to > end)
		to = end;
	else if (to >= atomic_load(&file->fields->size))
		to = align_up(to, POOL_BLOCK_MIN);

	while (rc == 0 && from < to) {
		uint32_t index = extents_find(&file->extents, from);

		if (index == file->extents.count || file->extents.at[index].offset >= to)
			break;

		struct extent extent = file->extents.at[index];
		uint64_t start = from > extent.offset ? from : extent.offset;
		uint64_t stop = to < extent_end(&extent) ? to : extent_end(&extent);

		rc = extent_punch(file, call, index, start, stop);
		from = stop;
	}
	if (atomic_load(&file->fields->reserved) > extents_end(&file->extents))
		atomic_store(&file->fields->reserved, extents_end(&file->extents));
	return rc;
}

int device_fallocate(struct file *file, const struct file_call *call, int mode, uint64_t from,
		     uint64_t to)
{
	if (mode & FALLOC_FL_PUNCH_HOLE)
		return device_punch(file, call, from, to);

	int rc = device_allocate(file, call, from, to);

	if (rc == 0 && (mode & FALLOC_FL_ZERO_RANGE))
		rc = device_zero_now(&file->extents, call, from, to);
	if (rc == 0 && !(mode & FALLOC_FL_KEEP_SIZE))
		rc = device_zero_end(file, call, to);
	if (rc < 0)
		return rc;
	if (!(mode & FALLOC_FL_KEEP_SIZE))
		device_raise_size(file, to);
	else if (to > atomic_load(&file->fields->reserved))
		atomic_store(&file->fields->reserved, to);
	return 0;
}
