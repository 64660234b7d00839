/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
#include "fs/file/old_memory.h"

#include <pthread.h>
#include <stdlib.h>

#include "common/cleanup.h"
#include "fs/file/device.h"
#include "fs/file/export.h"

struct left {
	struct left *next;
	const struct file *file;
	struct volume *volume;
	struct extents extents; /* of a GPU's volume */
	uint64_t bytes;		/* of host/ */
};

/* Few files have any. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct left *all;

static void left_add(struct left *left)
{
	LOCKED(&lock);
	left->next = all;
	all = left;
}

static struct left *left_new(const struct file *file, struct volume *volume)
{
	struct left *left = file_is_loose(file) ? calloc(1, sizeof(*left)) : NULL;

	if (left)
		*left = (struct left){.file = file, .volume = volume};
	return left;
}

/* Without memory for the note the driver alone knows that a process has the chunk: it gives it to
 * nobody else. */
uint64_t file_leave(const struct file *file, struct volume *volume, struct extents *extents)
{
	struct left *left = left_new(file, volume);
	uint32_t rest = 0;

	if (!left)
		return 0;
	EXTENTS_FOREACH (extent, extents) {
		if (atomic_load(&extent->span.chunk->handed_out) &&
		    span_owns_chunk(&extent->span) && extents_reserve(&left->extents, 1) == 0) {
			extents_insert(&left->extents, extent);
			left->bytes += extent->span.bytes;
		} else {
			extents->at[rest++] = *extent;
		}
	}
	extents->count = rest;
	uint64_t bytes = left->bytes;

	if (bytes)
		left_add(left);
	else
		free(left);
	return bytes;
}

bool file_leave_object(const struct file *file, struct volume *volume, uint64_t bytes)
{
	struct left *left = bytes ? left_new(file, volume) : NULL;

	if (!left)
		return false;
	left->bytes = bytes;
	left_add(left);
	return true;
}

static struct left *left_take(const struct file *file)
{
	struct left **at = &all, *taken = NULL;

	LOCKED(&lock);
	while (*at) {
		struct left *left = *at;

		if (left->file != file) {
			at = &left->next;
			continue;
		}
		*at = left->next;
		left->next = taken;
		taken = left;
	}
	return taken;
}

static void left_free(struct left *left)
{
	if (left->volume->pool)
		device_release(left->volume, &left->extents);
	else
		system_account(left->volume->system, -(int64_t)left->bytes);
	free(left);
}

void file_left_end(struct file *file)
{
	struct left *left = NULL;

	/* So that what is given up meanwhile is either found here or not left. */
	guard_lock(&file->guard);
	if (atomic_fetch_sub(&file->loose, 1) == 1)
		left = left_take(file);
	guard_unlock(&file->guard);
	while (left) {
		struct left *next = left->next;

		left_free(left);
		left = next;
	}
}
