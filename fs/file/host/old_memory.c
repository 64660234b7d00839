/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
#include "fs/file/host/old_memory.h"

#include <pthread.h>
#include <stdlib.h>

#include "common/cleanup.h"

struct old_memory {
	struct old_memory *next;
	const struct file *file;
	struct volume *volume;
	uint64_t bytes;
	enum system_tmpfs tmpfs;
};

/* Few files have old memory. */
static pthread_mutex_t old_memory_lock = PTHREAD_MUTEX_INITIALIZER;
static struct old_memory *old_memories;

static void old_memory_add(struct old_memory *old_memory)
{
	scoped_lock(&old_memory_lock);
	old_memory->next = old_memories;
	old_memories = old_memory;
}

static struct old_memory *old_memory_new(const struct file *file, struct volume *volume)
{
	struct old_memory *old_memory = file_is_loose(file) ? calloc(1, sizeof(*old_memory)) : NULL;

	if (old_memory)
		*old_memory = (struct old_memory){.file = file, .volume = volume};
	return old_memory;
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
	struct old_memory **at = &old_memories, *list = NULL;

	scoped_lock(&old_memory_lock);
	while (*at) {
		struct old_memory *old_memory = *at;

		if (old_memory->file != file) {
			at = &old_memory->next;
			continue;
		}
		*at = old_memory->next;
		old_memory->next = list;
		list = old_memory;
	}
	return list;
}

static void old_memory_free(struct old_memory *old_memory)
{
	system_account(old_memory->volume->system, old_memory->tmpfs, -(int64_t)old_memory->bytes);
	free(old_memory);
}

void file_old_memory_end(struct file *file)
{
	struct old_memory *old_memory = NULL;

	/* Under layout_lock: memory that the file frees concurrently is either found here or never
	 * added. */
	file_lock_layout(file);
	if (atomic_fetch_sub(&file->leases.loose, 1) == 1)
		old_memory = old_memory_take(file);
	brlock_write_unlock(&file->layout_lock);
	while (old_memory) {
		struct old_memory *next = old_memory->next;

		old_memory_free(old_memory);
		old_memory = next;
	}
}
