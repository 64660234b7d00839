/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* Files in gpuN/: the same bytes in other memory. */
#include "fs/file/device.h"

#include <errno.h>

#include "fs/extents/extents_copy.h"
#include "fs/file/record.h"

int device_fill(const struct file_call *call, const struct extents *fresh,
		const struct extents *from)
{
	return device_wait(call, extents_fill(call->copier, fresh, from));
}

static int ranges_alloc(struct allocation *allocation, const struct device_range kept[2],
			uint64_t limit)
{
	int rc = 0;

	for (int i = 0; i < 2 && rc == 0; i++) {
		if (kept[i].from < kept[i].to)
			rc = alloc_run(allocation, kept[i].from, kept[i].to, kept[i].to);
	}
	if (rc == 0 && allocation->bytes >= limit)
		rc = -ENOSPC;
	return rc;
}

int device_reshape(struct file *file, const struct file_call *call, uint32_t index,
		   const struct device_range kept[2], uint64_t size)
{
	struct volume *volume = atomic_load(&file->volume);
	struct extent old = file->extents.at[index];
	struct extents fresh = {0}, from = {.at = &old, .count = 1};
	struct allocation allocation = allocation_for(volume, call, size);

	allocation.fill = POOL_UNDEFINED;
	allocation.charge = ALLOCATION_UNCHARGED;
	/* A full GPU must not keep a file from becoming shorter. */
	allocation_set_place(&allocation, old.span.chunk->place);
	allocation.target = &fresh;
	allocation.layout.floor = old.offset;
	allocation.layout.ceiling = extent_end(&old);

	int rc = ranges_alloc(&allocation, kept, old.span.bytes);

	if (rc == 0)
		rc = device_fill(call, &fresh, &from);
	if (rc == 0)
		rc = extents_reserve(&file->extents, fresh.count);
	if (rc == 0)
		rc = device_hold_replaced(call, volume, &from);
	if (rc < 0) {
		device_release_unused(volume, call, &fresh);
		return rc;
	}

	int64_t less = (int64_t)(old.span.bytes - allocation.bytes);

	extents_remove(&file->extents, index);
	EXTENTS_FOREACH (extent, &fresh)
		extents_insert(&file->extents, extent);
	file_record_replaced(call, file, old.offset, extent_end(&old), &fresh);
	extents_free(&fresh);
	device_uncharge_places(call, &from);
	span_release(volume, &old.span);
	file_charge(call, -less);
	device_update_accounting(file, -less);
	return 0;
}
