/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* Files in gpuN/: the end of the file. Memory beyond the size always holds zeroes, so that growing
 * is only a change of the size. */
#include "fs/file/device.h"

#include <errno.h>

/* Up to where memory is the file's own and not just taken ahead, for a file of size bytes. */
uint64_t device_kept_end(struct file *file, const struct file_call *call, uint64_t size)
{
	uint64_t reserved = atomic_load(&file->fields->reserved);
	uint64_t end = size > reserved ? size : reserved;

	return align_up(end, layout_unit(call->attrs.page_size, end));
}

/* The extent that lies across keep, if it is a whole chunk; count otherwise. */
static uint32_t chunk_across(const struct extents *extents, uint64_t fdstore)
{
	uint32_t index = extents_find(extents, fdstore);

	if (index < extents->count && extents->at[index].offset < fdstore &&
	    span_owns_chunk(&extents->at[index].span))
		return index;
	return extents->count;
}

/* Gives back what lies beyond keep. The end of a chunk that cannot be replaced by a smaller one
 * stays, and is zeroed where it is not zero already. */
enum shrink_content { SHRINK_ZEROES, SHRINK_DIRTY };

static int shrink(struct file *file, const struct file_call *call, uint64_t fdstore, uint64_t size,
		  enum shrink_content content)
{
	uint32_t index = chunk_across(&file->extents, fdstore);
	int rc = 0;

	if (index < file->extents.count) {
		struct extent *extent = &file->extents.at[index];
		struct device_range ranges[2] = {{extent->offset, fdstore}};
		uint64_t end = extent_end(extent);

		device_reshape(file, call, index, ranges, size);
		if (content == SHRINK_DIRTY)
			rc = device_zero_now(&file->extents, call, fdstore, end);
		fdstore = end;
	}
	return rc < 0 ? rc : device_give(file, call, fdstore, UINT64_MAX);
}

int device_truncate(struct file *file, const struct file_call *call, uint64_t size)
{
	uint64_t old = atomic_load(&file->fields->size);

	if (size > old) {
		atomic_store(&file->fields->size, size);
		return 0;
	}

	uint64_t fdstore = align_up(size, layout_unit(call->attrs.page_size, size));

	/* The size first: who finds it unclean finishes what this does, and what was beyond the
	 * size is never seen again. */
	atomic_store(&file->fields->unclean, size < old);
	atomic_store(&file->fields->size, size);

	int rc = size < old ? device_zero_now(&file->extents, call, size, fdstore) : 0;

	if (rc == 0)
		rc = shrink(file, call, fdstore, size, size < old ? SHRINK_DIRTY : SHRINK_ZEROES);
	if (rc < 0)
		atomic_store(&file->fields->size, old);
	else
		/* As elsewhere, memory reserved beyond the end goes with a truncate. */
		atomic_store(&file->fields->reserved, 0);
	atomic_store(&file->fields->unclean, 0);
	return rc;
}

bool device_has_ahead(struct file *file, const struct file_call *call)
{
	uint64_t fdstore = device_kept_end(file, call, atomic_load(&file->fields->size));

	return extents_end(&file->extents) > fdstore;
}

void device_trim(struct file *file, const struct file_call *call)
{
	uint64_t size = atomic_load(&file->fields->size);

	if (device_has_ahead(file, call))
		shrink(file, call, device_kept_end(file, call, size), size, SHRINK_ZEROES);
}
