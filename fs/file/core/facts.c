/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
#include "fs/file/core/facts.h"

#include "common/clock.h"
#include "fs/file/core/state.h"

struct volume *file_volume(const struct file *file)
{
	return atomic_load(&file->volume);
}

void file_set_paged(struct file *file, bool paged)
{
	atomic_store(&file->fields->unpaged, !paged);
}

bool file_is_paged(const struct file *file)
{
	return !atomic_load(&file->fields->unpaged);
}

_Atomic int32_t *file_backing_id(struct file *file)
{
	return &file->object.backing_id;
}

uint32_t file_used_now(void)
{
	return (uint32_t)(clock_ns_of(CLOCK_MONOTONIC_COARSE) / (CLOCK_SECOND / FILE_USED_TICKS));
}

uint32_t file_used(const struct file *file)
{
	return atomic_load_explicit(&file->used, memory_order_relaxed);
}

enum file_away file_away(const struct file *file)
{
	return (enum file_away)atomic_load_explicit(&file->memory.away, memory_order_relaxed);
}
