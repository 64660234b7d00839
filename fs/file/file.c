/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* The common part of gpuN/ and host/ files: layout_lock, the limits of offsets, and the choice of
 * the kind (core/kind.h). A move can change a file's volume whenever layout_lock is free, so the
 * choice is made under layout_lock. */
#include "fs/file/file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <unistd.h>

#include "fs/file/core/missing.h"
#include "fs/file/internal.h"
#include "fs/journal/journal.h"

size_t file_struct_bytes(void)
{
	return sizeof(struct file);
}

struct file *file_make(void *memory, struct volume *volume)
{
	struct file *file = memory;

	brlock_init(&file->layout_lock);
	atomic_init(&file->volume, volume);
	atomic_init(&file->object.fd, -1);
	file->fields = &file->own_fields;
	return file;
}

int file_new(struct volume *volume, struct file **file)
{
	void *memory = calloc(1, sizeof(struct file));

	if (!memory)
		return -ENOMEM;
	*file = file_make(memory, volume);
	return 0;
}

void file_free(struct file *file, const struct file_call *call)
{
	file_end(file, call);
	free(file);
}

void file_end(struct file *file, const struct file_call *call)
{
	int fd = atomic_load(&file->object.fd);

	file_drop_ahead(file);
	file_kind(file)->free_memory(file, call);
	/* An object that recovery did not find is left to the next daemon. */
	if (file_object_id(file) && fd >= 0)
		journal_drop(call->journal, FDSTORE_HOST, file_object_id(file));
	if (fd >= 0) {
		close(fd);
		file_count_object(call, -1, file_tmpfs(file));
	}
	free(file_missing(file));
	brlock_destroy(&file->layout_lock);
	if (call->holds)
		call->holds->forget(call->quota_owner);
}

void file_hold(struct file *file, const struct file_call *call)
{
	device_hold(call, file_volume(file), &file->extents);
}

void file_set_fields(struct file *file, struct file_fields *fields)
{
	file->fields = fields;
	file->journaled = (struct file_journaled){0};
}

void file_restore_free(struct file *file)
{
	int fd = atomic_load(&file->object.fd);

	if (fd >= 0)
		close(fd);
	extents_free(&file->extents);
	free(file_missing(file));
	brlock_destroy(&file->layout_lock);
	free(file);
}

ssize_t file_read(struct file *file, const struct file_call *call, void *to, size_t bytes,
		  uint64_t offset)
{
	if (file_is_missing(file))
		return -EIO;
	if (offset >= FILE_SIZE_MAX)
		return 0;
	if (bytes > FILE_SIZE_MAX - offset)
		bytes = FILE_SIZE_MAX - offset;

	file_note_use(file, atomic_load(&file->volume));
	brlock_token token = brlock_read_lock(&file->layout_lock);
	ssize_t n = file_kind(file)->read(file, call, to, bytes, offset);

	brlock_read_unlock(&file->layout_lock, token);
	return n;
}

struct ahead_block *file_read_ahead(struct file *file, const struct file_call *call, size_t bytes,
				    uint64_t offset, const char **at)
{
	struct volume *volume = atomic_load(&file->volume);
	struct ahead *ahead = volume->ahead;
	struct ahead_block *block = NULL;

	if (!ahead || file_is_missing(file) || bytes > FILE_SIZE_MAX ||
	    offset > FILE_SIZE_MAX - bytes || call->attrs.copy == COPYING_BAR)
		return NULL;
	brlock_token token = brlock_read_lock(&file->layout_lock);
	const struct file_kind *kind = file_kind(file);

	if (kind->copy_ahead && !file_was_leased(file))
		block = ahead_read(ahead,
				   &(struct ahead_file){.blocks = &file->memory.ahead,
							.copy = kind->copy_ahead,
							.file = file},
				   offset, bytes, at);
	brlock_read_unlock(&file->layout_lock, token);
	if (block)
		file_note_use(file, volume);
	return block;
}

static int file_make_room(struct file *file, const struct file_call *call, uint64_t from,
			  uint64_t end)
{
	struct file_call own_call = *call;
	int rc;

	if (journal_room(call->journal))
		return -ENOSPC;
	do {
		file_lock_layout(file);
		rc = file_kind(file)->make_room(file, &own_call, from, end);
		brlock_write_unlock(&file->layout_lock);
	} while (rc == -ENOSPC && file_find_room(file_volume(file), &own_call, end - from));
	return rc;
}

ssize_t file_write(struct file *file, const struct file_call *call, const void *from, size_t bytes,
		   uint64_t offset)
{
	int refused = 0;

	if (bytes == 0)
		return 0;
	if (file_is_missing(file))
		return -EIO;
	if (offset >= FILE_SIZE_MAX)
		return -EFBIG;
	if (bytes > FILE_SIZE_MAX - offset)
		bytes = FILE_SIZE_MAX - offset;
	file_note_use(file, atomic_load(&file->volume));

	for (;;) {
		brlock_token token = brlock_read_lock(&file->layout_lock);
		ssize_t n = file_kind(file)->write(file, call, from, bytes, offset, refused);

		file_drop_ahead(file);
		brlock_read_unlock(&file->layout_lock, token);
		if (n != 0)
			return n;
		/* Another thread may punch the memory away before the next try. */
		refused = file_make_room(file, call, offset, offset + bytes);
	}
}

int file_truncate(struct file *file, const struct file_call *call, uint64_t size)
{
	if (size > FILE_SIZE_MAX)
		return -EFBIG;
	if (size && file_is_missing(file))
		return -EIO;
	file_lock_layout(file);

	/* A file that sharers have mapped only grows. */
	bool leased = file_is_held(file) && size <= file_size(file);
	int rc = 0;

	if (!leased && file_is_missing(file)) {
		file_kind(file)->record_empty(file, call);
		file_missing_empty(file, call);
	}
	if (leased)
		rc = size < file_size(file) ? -EBUSY : 0;
	else
		rc = file_kind(file)->truncate(file, call, size);
	brlock_write_unlock(&file->layout_lock);
	return rc;
}

static int file_allocate_step(struct file *file, const struct file_call *call, int mode,
			      uint64_t offset, uint64_t bytes)
{
	struct file_call own_call = *call;
	int rc;

	do {
		file_lock_layout(file);
		if (mode & FALLOC_FL_PUNCH_HOLE && file_is_held(file))
			rc = -EBUSY;
		else
			rc = file_kind(file)->allocate(file, &own_call, mode, offset,
						       offset + bytes);
		brlock_write_unlock(&file->layout_lock);
	} while (rc == -ENOSPC && file_find_room(file_volume(file), &own_call, bytes));
	return rc;
}

static int file_check_room(struct file *file, const struct file_call *call, uint64_t from,
			   uint64_t to)
{
	brlock_token token = brlock_read_lock(&file->layout_lock);
	int rc = file_kind(file)->check_room(file, call, from, to);

	brlock_read_unlock(&file->layout_lock, token);
	return rc;
}

int file_allocate(struct file *file, const struct file_call *call, int mode, uint64_t offset,
		  uint64_t bytes)
{
	int kind = mode & ~FALLOC_FL_KEEP_SIZE;
	bool keep_size = mode & FALLOC_FL_KEEP_SIZE;

	if (kind != 0 && kind != FALLOC_FL_ZERO_RANGE &&
	    !(kind == FALLOC_FL_PUNCH_HOLE && keep_size))
		return -EOPNOTSUPP;
	if (bytes == 0)
		return 0;
	if (file_is_missing(file))
		return -EIO;
	if (offset >= FILE_SIZE_MAX || bytes > FILE_SIZE_MAX - offset) {
		if (kind != FALLOC_FL_PUNCH_HOLE)
			return -EFBIG;
		if (offset >= FILE_SIZE_MAX)
			return 0;
		bytes = FILE_SIZE_MAX - offset;
	}
	if (kind != FALLOC_FL_PUNCH_HOLE && journal_room(call->journal))
		return -ENOSPC;
	uint64_t end = offset + bytes, step = bytes;
	int rc = 0;

	/* In steps, so that a file larger than the device can drive out its own first extents. */
	if (volume_is_tiered(file_volume(file)) && kind != FALLOC_FL_PUNCH_HOLE) {
		rc = file_check_room(file, call, offset, end);
		step = file_volume(file)->max_chunk;
	}
	for (; rc == 0 && offset < end; offset += step)
		rc = file_allocate_step(file, call, mode, offset,
					end - offset < step ? end - offset : step);
	return rc;
}

int64_t file_seek(struct file *file, uint64_t offset, int whence)
{
	if (whence != SEEK_DATA && whence != SEEK_HOLE)
		return -EINVAL;
	if (file_is_missing(file))
		return -EIO;
	if (offset >= FILE_SIZE_MAX)
		return -ENXIO;

	brlock_token token = brlock_read_lock(&file->layout_lock);
	int64_t found = file_kind(file)->seek(file, offset, whence);

	brlock_read_unlock(&file->layout_lock, token);
	return found;
}

static int file_promise_bounded(struct file *file, const struct file_call *call)
{
	brlock_write_lock(&file->layout_lock);
	int rc = file_kind(file)->promise_mapping(file, call);

	brlock_write_unlock(&file->layout_lock);
	return rc;
}

int file_promise(struct file *file, const struct file_call *call)
{
	brlock_token token = brlock_read_lock(&file->layout_lock);
	bool bounded = atomic_load(&file->object.bounded);
	int rc = bounded ? 0 : file_kind(file)->promise_mapping(file, call);

	brlock_read_unlock(&file->layout_lock, token);
	return bounded ? file_promise_bounded(file, call) : rc;
}

void file_update_accounting(struct file *file, const struct file_call *call)
{
	brlock_token token = brlock_read_lock(&file->layout_lock);

	file_kind(file)->update_accounting(file, call);
	brlock_read_unlock(&file->layout_lock, token);
}

void file_unpromise(struct file *file)
{
	atomic_fetch_sub(&file->object.mapped, 1);
}

void file_trim(struct file *file, const struct file_call *call)
{
	if (file_is_missing(file))
		return;
	brlock_token token = brlock_read_lock(&file->layout_lock);
	const struct file_kind *kind = file_kind(file);
	bool ahead = kind->has_ahead(file, call);

	kind->update_accounting(file, call);
	brlock_read_unlock(&file->layout_lock, token);
	if (!ahead)
		return;
	file_lock_layout(file);
	if (!file_is_held(file))
		file_kind(file)->trim(file, call);
	brlock_write_unlock(&file->layout_lock);
}

void file_apply_mapping(struct file *file, const struct file_call *call)
{
	brlock_token token = brlock_read_lock(&file->layout_lock);

	device_apply_mapping(&file->extents, call);
	brlock_read_unlock(&file->layout_lock, token);
}

/* Without layout_lock: callers hold a lock that a rename takes while a move holds layout_lock. */
int file_object(struct file *file, const struct file_call *call)
{
	struct volume *volume = atomic_load(&file->volume);

	if (volume->pool)
		return -ENOTSUP;
	if (file_is_missing(file))
		return -EIO;

	int rc = host_make_object(file, volume, call);

	return rc < 0 ? rc : atomic_load(&file->object.fd);
}
