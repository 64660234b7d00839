/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* Questions about a file that both kinds answer. */
#include "fs/file/internal.h"

/* A move may change the kind meanwhile: then the object of a file that moved to a GPU may be empty
 * by now, so ask again. The object's descriptor stays open as long as the file exists. */
uint64_t file_size(const struct file *file)
{
	const struct file_kind *kind;
	uint64_t size;

	do {
		kind = file_kind(file);
		size = kind->size(file);
	} while (kind != file_kind(file));
	return size;
}

struct object_stat file_stat(const struct file *file)
{
	const struct file_kind *kind;
	struct object_stat stat;

	do {
		kind = file_kind(file);
		stat = kind->stat(file);
	} while (kind != file_kind(file));
	return stat;
}

uint64_t file_allocated(struct file *file)
{
	return file_stat(file).allocated;
}

int64_t file_written(const struct file *file)
{
	return (int64_t)file_stat(file).mtime;
}

bool file_is_sparse(const struct file *file)
{
	struct object_stat stat = file_stat(file);

	return !file_is_device(file) && stat.allocated < stat.size;
}

bool file_next_run(struct file *file, uint64_t offset, uint64_t end, struct data_run *run)
{
	return file_kind(file)->next_run(file, offset, end, run);
}

bool file_is_bounded(const struct file *file)
{
	return atomic_load(&file->object.bounded);
}

bool file_is_unbounded(const struct file *file)
{
	return host_is_unbounded(file);
}

bool file_is_out(const struct file *file)
{
	return !file_is_device(file) && atomic_load(&file->object.fd) >= 0 &&
	       atomic_load(&file->object.handed_out) &&
	       (file_is_held(file) ||
		(!atomic_load(&file->object.mapped) && !atomic_load(&file->leases.count)));
}
