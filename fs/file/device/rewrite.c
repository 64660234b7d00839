/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* Files in gpuN/: the same bytes in other memory. */
#include "fs/file/device/device.h"

#include <errno.h>

#include "fs/extents/extents_copy.h"
#include "fs/file/core/record.h"

int device_fill(const struct file_call *call, const struct extents *target,
		const struct extents *from)
{
	return device_wait(call, extents_fill(call->copier, target, from));
}

static int ranges_alloc(struct allocation *allocation, const struct device_range ranges[2],
			uint64_t limit)
{
	int rc = 0;

	for (int i = 0; i < 2 && rc == 0; i++) {
		if (ranges[i].from < ranges[i].to)
			rc = alloc_run(allocation, ranges[i].from, ranges[i].to, ranges[i].to);
	}
	if (rc == 0 && allocation->bytes >= limit)
		rc = -ENOSPC;
	return rc;
}

int device_reshape(struct file *file, const struct file_call *call, uint32_t index,
		   const struct device_range ranges[2], uint64_t size)
{
	struct volume *volume = atomic_load(&file->volume);
	struct extent old = file->extents.at[index];
	struct extents new_extents = {0}, from = {.at = &old, .count = 1};
	struct allocation allocation = allocation_for(volume, call, size);

	allocation.fill = POOL_UNDEFINED;
	allocation.charge = ALLOCATION_UNCHARGED;
	/* A full GPU must not keep a file from becoming shorter. */
	allocation_set_place(&allocation, old.span.chunk->place);
	allocation.target = &new_extents;
	allocation.layout.floor = old.offset;
	allocation.layout.ceiling = extent_end(&old);

	int rc = ranges_alloc(&allocation, ranges, old.span.bytes);

	if (rc == 0)
		rc = device_fill(call, &new_extents, &from);
	if (rc == 0)
		rc = extents_reserve(&file->extents, new_extents.count);
	if (rc == 0)
		rc = device_hold_replaced(call, volume, &from);
	if (rc < 0) {
		device_release_unused(volume, call, &new_extents);
		return rc;
	}

	int64_t bytes_freed = (int64_t)(old.span.bytes - allocation.bytes);

	extents_remove(&file->extents, index);
	EXTENTS_FOREACH (extent, &new_extents)
		extents_insert(&file->extents, extent);
	file_record_replaced(call, file, old.offset, extent_end(&old), &new_extents);
	extents_free(&new_extents);
	device_uncharge_places(call, &from);
	span_release(volume, &old.span);
	file_charge(call, -bytes_freed);
	device_update_accounting(file, -bytes_freed);
	return 0;
}
