/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
#include "fs/file/old_memory.h"

#include <pthread.h>
#include <stdlib.h>

#include "common/cleanup.h"
#include "fs/file/device.h"
#include "fs/file/export.h"

struct old_memory {
	struct old_memory *next;
	const struct file *file;
	struct volume *volume;
	struct extents extents; /* on a GPU */
	uint64_t bytes;		/* in host/ */
	enum system_tmpfs tmpfs;
};

/* Few files have old memory. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct old_memory *all;

static void old_memory_add(struct old_memory *old_memory)
{
	scoped_lock(&lock);
	old_memory->next = all;
	all = old_memory;
}

static struct old_memory *old_memory_new(const struct file *file, struct volume *volume)
{
	struct old_memory *old_memory = file_is_loose(file) ? calloc(1, sizeof(*old_memory)) : NULL;

	if (old_memory)
		*old_memory = (struct old_memory){.file = file, .volume = volume};
	return old_memory;
}

/* Without memory for the entry the extents stay with the caller. The driver knows that a process
 * has the chunk, and gives the memory to no other process. */
uint64_t file_keep_old_memory(const struct file *file, struct volume *volume,
			      struct extents *extents)
{
	struct old_memory *old_memory = old_memory_new(file, volume);
	uint32_t rest = 0;

	if (!old_memory)
		return 0;
	EXTENTS_FOREACH (extent, extents) {
		if (atomic_load(&extent->span.chunk->handed_out) != CHUNK_KEPT &&
		    span_owns_chunk(&extent->span) &&
		    extents_reserve(&old_memory->extents, 1) == 0) {
			extents_insert(&old_memory->extents, extent);
			old_memory->bytes += extent->span.bytes;
		} else {
			extents->at[rest++] = *extent;
		}
	}
	extents->count = rest;
	uint64_t bytes = old_memory->bytes;

	if (bytes)
		old_memory_add(old_memory);
	else
		free(old_memory);
	return bytes;
}

bool file_keep_old_object(const struct file *file, struct volume *volume, uint64_t bytes)
{
	struct old_memory *old_memory = bytes ? old_memory_new(file, volume) : NULL;

	if (!old_memory)
		return false;
	old_memory->bytes = bytes;
	old_memory->tmpfs = file_tmpfs(file);
	old_memory_add(old_memory);
	return true;
}

static struct old_memory *old_memory_take(const struct file *file)
{
	struct old_memory **at = &all, *taken = NULL;

	scoped_lock(&lock);
	while (*at) {
		struct old_memory *old_memory = *at;

		if (old_memory->file != file) {
			at = &old_memory->next;
			continue;
		}
		*at = old_memory->next;
		old_memory->next = taken;
		taken = old_memory;
	}
	return taken;
}

static void old_memory_free(struct old_memory *old_memory)
{
	if (old_memory->volume->pool)
		device_release(old_memory->volume, &old_memory->extents);
	else
		system_account(old_memory->volume->system, old_memory->tmpfs,
			       -(int64_t)old_memory->bytes);
	free(old_memory);
}

void file_old_memory_end(struct file *file)
{
	struct old_memory *old_memory = NULL;

	/* Under layout_lock: memory that the file frees concurrently is either found here or never
	 * added. */
	file_lock_layout(file);
	if (atomic_fetch_sub(&file->loose, 1) == 1)
		old_memory = old_memory_take(file);
	brlock_write_unlock(&file->layout_lock);
	while (old_memory) {
		struct old_memory *next = old_memory->next;

		old_memory_free(old_memory);
		old_memory = next;
	}
}
