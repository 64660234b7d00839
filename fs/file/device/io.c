/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* Files in gpuN/: read, write, seek. */
#include "fs/file/device/device.h"

#include <errno.h>
#include <unistd.h>

#include "fs/extents/extents_copy.h"

_Static_assert((int)COPYING_AUTO == (int)COPY_AUTO && (int)COPYING_BAR == (int)COPY_BAR &&
		   (int)COPYING_DMA == (int)COPY_DMA,
	       "the attribute's values are the copy paths");

enum copy_path device_copy_path(const struct file_call *call)
{
	return (enum copy_path)call->attrs.copy;
}

int device_wait(const struct file_call *call, int rc)
{
	int waited = copier_wait(call->copier);

	return rc < 0 ? rc : waited;
}

void device_raise_size(struct file *file, uint64_t size)
{
	uint64_t now = atomic_load(&file->fields->size);

	while (now < size && !atomic_compare_exchange_weak(&file->fields->size, &now, size))
		;
}

/* Enqueues copies. The number of bytes, or -errno. */
static ssize_t device_copy_out(struct file *file, struct copier *copier, enum copy_path path,
			       void *to, size_t bytes, uint64_t offset)
{
	uint64_t size = atomic_load(&file->fields->size);

	if (offset >= size)
		return 0;
	if (bytes > size - offset)
		bytes = size - offset;

	int rc = extents_out(copier, to, &file->extents, offset, bytes, path);

	return rc < 0 ? rc : (ssize_t)bytes;
}

ssize_t device_read(struct file *file, const struct file_call *call, void *to, size_t bytes,
		    uint64_t offset)
{
	ssize_t n = device_copy_out(file, call->copier, device_copy_path(call), to, bytes, offset);
	int waited = copier_wait(call->copier);

	return n >= 0 && waited < 0 ? waited : n;
}

ssize_t device_copy_ahead(void *file, struct copier *copier, void *to, size_t bytes,
			  uint64_t offset)
{
	return device_copy_out(file, copier, COPY_DMA, to, bytes, offset);
}

ssize_t device_write(struct file *file, const struct file_call *call, const void *from,
		     size_t bytes, uint64_t offset, int refused)
{
	uint64_t covered = extents_covered(&file->extents, offset, offset + bytes) - offset;

	if (covered < bytes && !refused)
		return 0;
	if (covered == 0)
		return refused;

	int rc = device_wait(call, extents_in(call->copier, &file->extents, offset, from, covered,
					      device_copy_path(call)));

	if (rc < 0)
		return rc;
	device_raise_size(file, offset + covered);
	return (ssize_t)covered;
}

int device_zero_now(const struct extents *extents, const struct file_call *call, uint64_t from,
		    uint64_t to)
{
	if (from >= to || extents_missing(extents, from, to) == to - from)
		return 0;
	return device_wait(call, extents_zero(call->copier, extents, from, to));
}

/* Only up to the next multiple of CHUNK_ALIGN: stores behind the end are in the last page of a
 * mapping, and memory further on may be many GiB that fallocate reserved. */
int device_zero_end(struct file *file, const struct file_call *call, uint64_t to)
{
	uint64_t size = atomic_load(&file->fields->size), end = align_up(size, CHUNK_ALIGN);

	if (to <= size || !(atomic_load(&file->memory.leased) & FILE_LEASED) ||
	    !file_zeroes_end(file))
		return 0;
	return device_zero_now(&file->extents, call, size, to < end ? to : end);
}

int64_t device_seek(struct file *file, uint64_t offset, int whence)
{
	uint64_t size = atomic_load(&file->fields->size);

	if (offset >= size)
		return -ENXIO;
	if (whence == SEEK_HOLE)
		return (int64_t)extents_covered(&file->extents, offset, size);

	uint32_t index = extents_find(&file->extents, offset);

	if (index == file->extents.count || file->extents.at[index].offset >= size)
		return -ENXIO;

	uint64_t start = file->extents.at[index].offset;

	return (int64_t)(start > offset ? start : offset);
}

uint64_t device_size(const struct file *file)
{
	return atomic_load(&file->fields->size);
}

static uint64_t device_allocated(const struct file *file)
{
	uint64_t unit = 1ULL << atomic_load(&file->memory.tail_shift);
	uint64_t data_end = atomic_load(&file->fields->size),
		 reserved = atomic_load(&file->fields->reserved);
	uint64_t end = atomic_load(&file->memory.tail_end);
	uint64_t start = end - atomic_load(&file->memory.tail_blocks) * POOL_BLOCK_MIN;
	uint64_t allocated = atomic_load(&file->allocated);

	data_end = align_up(data_end > reserved ? data_end : reserved, unit);
	if (data_end < start)
		data_end = start;

	uint64_t ahead = end > data_end ? end - data_end : 0;

	return allocated > ahead ? allocated - ahead : 0;
}

struct object_stat device_stat(const struct file *file)
{
	return (struct object_stat){.size = device_size(file), .allocated = device_allocated(file)};
}

bool device_next_run(struct file *file, uint64_t offset, uint64_t end, struct data_run *run)
{
	if (offset >= end)
		return false;

	uint64_t covered = extents_covered(&file->extents, offset, end);
	uint32_t index = extents_find(&file->extents, offset);

	*run = (struct data_run){.from = offset, .to = covered, .data = covered > offset};
	if (run->data)
		return true;
	run->to = end;
	if (index < file->extents.count && file->extents.at[index].offset < end)
		run->to = file->extents.at[index].offset;
	return true;
}
