/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* Files in gpuN/: fallocate(2). */
#include "fs/file/device.h"

#include <errno.h>

#include "fs/file/record.h"

int device_allocate(struct file *file, const struct file_call *call, uint64_t from, uint64_t to)
{
	struct volume *volume = atomic_load(&file->volume);
	uint64_t size = atomic_load(&file->fields->size), available;
	struct allocation allocation = allocation_for(volume, call, size > to ? size : to);
	struct extents fresh = {0};
	int rc = pool_available(volume->pool, &available);

	if (rc < 0)
		return rc;
	/* Without this a request that cannot succeed would fill the device for a moment. */
	if (extents_missing(&file->extents, from, to) > available)
		return -ENOSPC;

	allocation.into = &file->extents;
	allocation.fresh = &fresh;
	rc = alloc_run(&allocation, from, to, to);
	if (rc < 0)
		allocation_undo(&allocation);
	else if (fresh.count)
		allocation_note_unit(&allocation, file);
	file_record_added(call, file, &fresh);
	extents_free(&fresh);
	device_update_accounting(file, (int64_t)allocation.bytes);
	return rc;
}

/* In which multiples the memory of an extent can be given back. */
static uint64_t grain_of(const struct extent *extent)
{
	if (!span_owns_chunk(&extent->span))
		return POOL_BLOCK_MIN;
	if (extent->offset % LAYOUT_GIB == 0 && extent->span.bytes % LAYOUT_GIB == 0)
		return LAYOUT_GIB;
	return CHUNK_ALIGN;
}

/* Takes [from, to), multiples of its grain, out of the extent at index. */
static int free_inside(struct file *file, const struct file_call *call, uint32_t index,
		       uint64_t from, uint64_t to)
{
	struct extent extent = file->extents.at[index];
	bool whole = from == extent.offset && to == extent_end(&extent);

	if (whole || !span_owns_chunk(&extent.span))
		return device_give(file, call, from, to);

	struct device_range fdstore[2] = {{extent.offset, from}, {to, extent_end(&extent)}};

	/* What stays although it lies between the two must read as zero. */
	device_reshape(file, call, index, fdstore, atomic_load(&file->fields->size));
	return device_zero_now(&file->extents, call, from, to);
}

/* [from, to) lies inside the extent at index. */
static int punch_extent(struct file *file, const struct file_call *call, uint32_t index,
			uint64_t from, uint64_t to)
{
	uint64_t grain = grain_of(&file->extents.at[index]);
	uint64_t first = align_up(from, grain), last = align_down(to, grain);

	if (first >= last)
		return device_zero_now(&file->extents, call, from, to);

	int rc = device_zero_now(&file->extents, call, from, first);

	if (rc == 0)
		rc = device_zero_now(&file->extents, call, last, to);
	if (rc == 0)
		rc = free_inside(file, call, index, first, last);
	return rc;
}

int device_punch(struct file *file, const struct file_call *call, uint64_t from, uint64_t to)
{
	uint64_t kept = device_kept_end(file, call, atomic_load(&file->fields->size));
	uint64_t end = extents_end(&file->extents);
	int rc = 0;

	/* Beyond the size everything is zero: the last block need not stay for its end. */
	if (to >= kept || to > end)
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

		rc = punch_extent(file, call, index, start, stop);
		from = stop;
	}
	if (atomic_load(&file->fields->reserved) > extents_end(&file->extents))
		atomic_store(&file->fields->reserved, extents_end(&file->extents));
	return rc;
}
