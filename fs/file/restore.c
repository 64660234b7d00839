/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
#include "fs/file/restore.h"

#include <errno.h>
#include <stdlib.h>

#include "fs/file/core/missing.h"
#include "fs/file/internal.h"
#include "fs/journal/journal.h"

/* Until file_restore_extents, a span has the journal's number of its chunk in place of the chunk,
 * and journal_into in place of the offset. */
static struct chunk *chunk_number(uint64_t chunk)
{
	return (struct chunk *)(uintptr_t)chunk;
}

static uint64_t number_of(const struct span *span)
{
	return (uint64_t)(uintptr_t)span->chunk;
}

/* Any part of memory that another program allocated. */
static bool is_foreign_extent(const struct journal_extent *extent)
{
	uint64_t into = extent->into & JOURNAL_INTO_MASK,
		 chunk_bytes = journal_foreign_bytes(extent->into);

	return extent->bytes && into < chunk_bytes && extent->bytes <= chunk_bytes - into &&
	       journal_chunk_id(extent->chunk) && journal_chunk_place(extent->chunk) == PLACE_GPU &&
	       extent->offset < FILE_SIZE_MAX && extent->bytes <= FILE_SIZE_MAX - extent->offset;
}

static bool is_extent(const struct journal_extent *extent)
{
	uint64_t bytes = extent->bytes;
	bool whole = bytes >= CHUNK_ALIGN;
	uint64_t unit = whole ? CHUNK_ALIGN : POOL_BLOCK_MIN;

	if (journal_chunk_is_foreign(extent->chunk))
		return is_foreign_extent(extent);
	return bytes && bytes % unit == 0 && extent->offset % unit == 0 &&
	       journal_chunk_id(extent->chunk) && journal_chunk_place(extent->chunk) < PLACES &&
	       extent->offset < FILE_SIZE_MAX && bytes <= FILE_SIZE_MAX - extent->offset &&
	       (whole ? extent->into == 0
		      : extent->into % POOL_BLOCK_MIN == 0 && extent->into <= CHUNK_ALIGN - bytes);
}

static int extents_drop(struct file *file, uint64_t from, uint64_t to)
{
	struct extents removed_extents = {0};
	int rc = extents_cut(&file->extents, from, to, &removed_extents);

	extents_free(&removed_extents);
	return rc;
}

static int extent_add(struct file *file, const struct journal_extent *image)
{
	struct extent extent = {
	    .offset = image->offset,
	    .span = {chunk_number(image->chunk), image->into, image->bytes},
	};
	int rc =
	    is_extent(image) ? extents_drop(file, extent.offset, extent_end(&extent)) : -EUCLEAN;

	return rc ? rc : extents_insert(&file->extents, &extent);
}

/* A corrupt record of a file makes the memory of this file missing, and affects no other file. */
static int file_tolerate_corrupt(struct file *file, int rc)
{
	if (rc == -EUCLEAN)
		file_set_corrupt(file, true);
	return rc == -EUCLEAN ? 0 : rc;
}

int file_restore_record(struct file *file, struct volume *volume, enum journal_kind kind,
			const struct journal_file *image, const struct journal_extent *extents)
{
	int rc = 0;

	if (kind == JOURNAL_FILE)
		file_set_corrupt(file, false);
	if (image->tail_shift > 63 || image->object_shift > 63 ||
	    (image->n_extents && !volume->pool))
		return file_tolerate_corrupt(file, -EUCLEAN);
	atomic_store(&file->volume, volume);
	if (kind == JOURNAL_FILE || !volume->pool)
		extents_free(&file->extents);
	file_set_object_id(file, volume->pool ? 0 : image->object);
	atomic_store(&file->memory.tail_shift, image->tail_shift);
	atomic_store(&file->object.shift, image->object_shift);
	for (uint32_t i = 0; rc == 0 && i < image->n_extents; i++)
		rc = extent_add(file, &extents[i]);
	return file_tolerate_corrupt(file, rc);
}

int file_restore_cut(struct file *file, const struct journal_cut *image)
{
	if (image->from == 0 && image->to == UINT64_MAX)
		file_set_corrupt(file, false);
	/* Extents are cut only where memory blocks begin. */
	if (image->from % POOL_BLOCK_MIN || (image->to % POOL_BLOCK_MIN && image->to != UINT64_MAX))
		return file_tolerate_corrupt(file, -EUCLEAN);
	return extents_drop(file, image->from, image->to);
}

void file_restore_state(struct file *file, uint32_t leases, enum file_restore_mount mount)
{
	atomic_store(&file->leases.count, leases);
	atomic_store(&file->leases.held, leases);
	if (mount == FILE_RESTORE_MOUNT_KEPT && atomic_load(&file->object.backing_id))
		atomic_store(&file->object.mapped, 1);
	if (atomic_load(&file->fields->missing) || atomic_load(&file->fields->size) > FILE_SIZE_MAX)
		file_set_corrupt(file, true);
}

static int missing_note(struct file *file, uint32_t found)
{
	uint32_t n = file->extents.count;
	struct file_missing *missing =
	    calloc(1, sizeof(*missing) + n * sizeof(struct journal_extent));

	if (!missing)
		return -ENOMEM;
	missing->n_extents = n;
	for (uint32_t i = 0; i < n; i++) {
		const struct extent *extent = &file->extents.at[i];
		const struct span *span = &extent->span;

		missing->extents[i] = (struct journal_extent){
		    .offset = extent->offset,
		    .bytes = span->bytes,
		    .chunk = i < found ? journal_chunk(span->chunk) : number_of(span),
		    .into = i < found ? journal_into(span) : span->offset,
		};
	}
	atomic_store(&file->journaled.missing, missing);
	return 0;
}

static int span_lose(struct file *file, const struct file_restore_finder *finder, uint64_t number,
		     uint32_t found, int error)
{
	int rc = finder->lose(finder->context, number, error);

	return rc || file_missing(file) ? rc : missing_note(file, found);
}

static int extents_find_chunks(struct file *file, const struct file_restore_finder *finder,
			       int *missing)
{
	struct extents *extents = &file->extents;
	uint32_t n = extents->count, found = 0;
	uint64_t bytes = 0;
	int rc = 0;

	for (uint32_t i = 0; rc == 0 && i < n; i++) {
		struct extent extent = extents->at[i];
		uint64_t number = number_of(&extent.span);
		int error = finder->find(finder->context, file_volume(file), number, &extent.span);

		if (error < 0) {
			rc = span_lose(file, finder, number, found, error);
			if (rc == 0 && *missing != -EUCLEAN)
				*missing = error;
			continue;
		}
		bytes += span_taken(&extent.span);
		extents->at[found++] = extent;
		if (extent.span.chunk->place != PLACE_GPU)
			file_note_left(file);
	}
	extents->count = found;
	device_update_accounting(file, (int64_t)bytes);
	return rc;
}

int file_restore_extents(struct file *file, const struct file_restore_finder *finder, int *missing)
{
	EXTENTS_FOREACH (extent, &file->extents)
		if (journal_chunk_is_foreign(number_of(&extent->span)))
			atomic_fetch_or(&file->memory.leased, FILE_OF_FOREIGN);
	if (!file_is_corrupt(file))
		return extents_find_chunks(file, finder, missing);
	extents_free(&file->extents);
	*missing = -EUCLEAN;
	return 0;
}

enum file_restore_end file_restore_end(const struct file *file)
{
	if (file_is_foreign(file) || file_size(file) >= extents_end(&file->extents))
		return FILE_RESTORE_END_NONE;
	return atomic_load(&file->fields->unclean) ? FILE_RESTORE_END_UNCLEAN
						   : FILE_RESTORE_END_ZERO;
}

int file_restore_clean_end(struct file *file, const struct file_call *call)
{
	int rc = call ? device_zero_now(&file->extents, call, file_size(file),
					extents_end(&file->extents))
		      : 0;

	if (rc == 0)
		atomic_store(&file->fields->unclean, 0);
	return rc;
}

int file_restore_object_id(const struct file *file, uint64_t *id)
{
	*id = file_object_id(file);
	return file_is_corrupt(file) ? -EUCLEAN : 0;
}

int file_restore_no_object(struct file *file)
{
	return missing_note(file, 0);
}

void file_restore_object(struct file *file, int fd)
{
	atomic_store(&file->object.handed_out, true);
	atomic_store(&file->object.bounded, system_object_tmpfs(fd) == SYSTEM_TMPFS_OWN);

	uint64_t charge = host_due(file, fd);

	atomic_store(&file->object.fd, fd);
	atomic_store(&file->allocated, charge);
	system_account_force(file_volume(file)->system, file_tmpfs(file), (int64_t)charge);
}

uint64_t file_restored_bytes(const struct file *file)
{
	return atomic_load(&file->allocated);
}

bool file_restored_tmpfs(const struct file *file, enum system_tmpfs *tmpfs)
{
	*tmpfs = file_tmpfs(file);
	return atomic_load(&file->object.fd) >= 0;
}

int file_restored_spans(const struct file *file,
			int (*each)(void *context, const struct span *span), void *context)
{
	int rc = 0;

	EXTENTS_FOREACH (extent, &file->extents)
		if (rc == 0)
			rc = each(context, &extent->span);
	return rc;
}

void file_restore_forget(struct file *file)
{
	extents_free(&file->extents);
}

void file_restore_release(struct file *file)
{
	if (file_is_device(file))
		device_release(file_volume(file), &file->extents);
}
