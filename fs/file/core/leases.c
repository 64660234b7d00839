/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
#include "fs/file/core/leases.h"

#include <unistd.h>

#include "fs/file/core/state.h"

void file_unlease(struct file *file, uint32_t leases)
{
	file_note_use(file, file_volume(file));
	atomic_fetch_sub(&file->leases.count, leases);
	atomic_fetch_sub(&file->leases.held, leases);
}

void file_lease_loosen(struct file *file)
{
	/* Raise loose first: if both counts were 0 for a moment, a concurrent truncate would free
	 * the memory. */
	atomic_fetch_add(&file->leases.loose, 1);
	atomic_fetch_sub(&file->leases.held, 1);
}

void file_lease_drop(struct file *file, enum file_lease_kind kind)
{
	if (kind == FILE_LEASE_HOLDS)
		file_lease_loosen(file);
	if (kind != FILE_LEASE_DROPPED)
		atomic_fetch_sub(&file->leases.count, 1);
}

uint32_t file_leases(const struct file *file)
{
	return atomic_load(&file->leases.count);
}

bool file_is_held(const struct file *file)
{
	return atomic_load(&file->leases.held) > 0;
}

bool file_was_leased(const struct file *file)
{
	return atomic_load_explicit(&file->memory.leased, memory_order_relaxed) & FILE_LEASED;
}

void file_set_was_leased(struct file *file)
{
	atomic_fetch_or(&file->memory.leased, FILE_LEASED | FILE_UNCLEAN);
}

void file_set_unclean(struct file *file)
{
	atomic_fetch_or(&file->memory.leased, FILE_UNCLEAN);
}

bool file_is_unclean(const struct file *file)
{
	return atomic_load(&file->memory.leased) & FILE_UNCLEAN;
}

bool file_is_loose(const struct file *file)
{
	return atomic_load(&file->leases.loose) > 0;
}

void file_chunks_close(struct file_chunk *chunks, uint32_t count)
{
	for (uint32_t i = 0; i < count; i++)
		close(chunks[i].fd);
}
