/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* Questions about a file that both kinds answer. */
#include "fs/file/internal.h"

/* Gets a value from the object of a host/ file. False if a move has made the file a device file,
 * because the object may be empty by now. The fd stays open as long as the file exists. */
static bool object_query(const struct file *file, uint64_t (*ask)(int fd), uint64_t *value)
{
	if (file_is_device(file))
		return false;

	int fd = atomic_load(&file->fd);

	*value = fd < 0 ? 0 : ask(fd);
	return !file_is_device(file);
}

uint64_t file_size(const struct file *file)
{
	uint64_t size;

	return object_query(file, object_size, &size) ? size : atomic_load(&file->fields->size);
}

static uint64_t device_allocated(const struct file *file)
{
	uint64_t unit = 1ULL << atomic_load(&file->tail_shift);
	uint64_t data_end = atomic_load(&file->fields->size),
		 reserved = atomic_load(&file->fields->reserved);
	uint64_t end = atomic_load(&file->tail_end);
	uint64_t start = end - atomic_load(&file->tail_blocks) * POOL_BLOCK_MIN;
	uint64_t allocated = atomic_load(&file->allocated);

	data_end = align_up(data_end > reserved ? data_end : reserved, unit);
	if (data_end < start)
		data_end = start;

	uint64_t ahead = end > data_end ? end - data_end : 0;

	return allocated > ahead ? allocated - ahead : 0;
}

uint64_t file_allocated(struct file *file)
{
	uint64_t bytes;

	return object_query(file, object_taken, &bytes) ? bytes : device_allocated(file);
}

int64_t file_written(const struct file *file)
{
	uint64_t ns;

	return object_query(file, object_mtime, &ns) ? (int64_t)ns : 0;
}

struct object_stat file_stat(const struct file *file)
{
	if (!file_is_device(file)) {
		struct object_stat found = object_stat(atomic_load(&file->fd));

		/* As in object_query: after a move the object may be empty. */
		if (!file_is_device(file))
			return found;
	}
	return (struct object_stat){.size = atomic_load(&file->fields->size),
				    .allocated = device_allocated(file)};
}

bool file_is_bounded(const struct file *file)
{
	return atomic_load(&file->bounded);
}

bool file_is_unbounded(const struct file *file)
{
	const struct volume *volume = file_volume(file);

	return volume->system && atomic_load(&file->fd) >= 0 && !file_is_bounded(file) &&
	       system_has_own_tmpfs(volume->system);
}

bool file_is_out(const struct file *file)
{
	return !file_is_device(file) && atomic_load(&file->fd) >= 0 &&
	       atomic_load(&file->handed_out) &&
	       (file_is_held(file) || (!atomic_load(&file->mapped) && !atomic_load(&file->leases)));
}

bool file_is_sparse(const struct file *file)
{
	uint64_t size, allocated;

	return object_query(file, object_size, &size) &&
	       object_query(file, object_taken, &allocated) && allocated < size;
}

bool file_next_run(struct file *file, uint64_t offset, uint64_t end, struct data_run *run)
{
	if (!file_is_device(file))
		return host_file_next_run(file, offset, end, run);
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
