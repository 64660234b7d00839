/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* Restores the memory of files: extents from the journal's records, chunks and objects from the
 * held descriptors. */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/log.h"
#include "common/vector.h"
#include "fs/core/worker.h"
#include "fs/file/core/missing.h"
#include "fs/file/device/device.h"
#include "fs/file/host/host.h"
#include "fs/holders/holds.h"
#include "fs/recovery/internal.h"
#include "fs/tree/inode.h"
#include "fs/tree/owner.h"
#include "fs/tree/quota.h"

/* Until span_resolve, a span has the journal's number of its chunk in place of the chunk. */
static struct chunk *chunk_number(uint64_t chunk)
{
	return (struct chunk *)(uintptr_t)chunk;
}

static uint64_t number_of(const struct span *span)
{
	return (uint64_t)(uintptr_t)span->chunk;
}

static bool is_extent(const struct journal_extent *extent)
{
	uint64_t bytes = extent->bytes;
	bool whole = bytes >= CHUNK_ALIGN;
	uint64_t unit = whole ? CHUNK_ALIGN : POOL_BLOCK_MIN;

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

static int file_add_extent(struct file *file, const struct journal_extent *image)
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

int restore_file(struct restore *restore, struct inode *inode, const struct journal_view *view)
{
	const struct journal_file *image = view->fixed;
	const struct journal_extent *extents = (const void *)view->tail;
	int rc = 0;

	if (!S_ISREG(inode->mode) || image->volume >= restore->n_volumes)
		return -EUCLEAN;
	struct file *file = inode->file;
	struct volume *volume = restore->volumes[image->volume];

	if (view->kind == JOURNAL_FILE)
		file_set_corrupt(file, false);
	if (image->tail_shift > 63 || image->object_shift > 63 ||
	    (image->n_extents && !volume->pool))
		return file_tolerate_corrupt(file, -EUCLEAN);
	inode->volume = volume;
	atomic_store(&file->volume, volume);
	if (view->kind == JOURNAL_FILE || !volume->pool)
		extents_free(&file->extents);
	file_set_object_id(file, volume->pool ? 0 : image->object);
	atomic_store(&file->memory.tail_shift, image->tail_shift);
	atomic_store(&file->object.shift, image->object_shift);
	for (uint32_t i = 0; rc == 0 && i < image->n_extents; i++)
		rc = file_add_extent(file, &extents[i]);
	return file_tolerate_corrupt(file, rc);
}

int restore_cut(struct inode *inode, const struct journal_cut *image)
{
	if (!S_ISREG(inode->mode))
		return -EUCLEAN;
	struct file *file = inode->file;

	if (image->from == 0 && image->to == UINT64_MAX)
		file_set_corrupt(file, false);
	/* Extents are cut only where memory blocks begin. */
	if (image->from % POOL_BLOCK_MIN || (image->to % POOL_BLOCK_MIN && image->to != UINT64_MAX))
		return file_tolerate_corrupt(file, -EUCLEAN);
	return extents_drop(file, image->from, image->to);
}

static uint64_t last_id_raise(struct restore *restore, uint64_t id)
{
	if (id > restore->last_id)
		restore->last_id = id;
	return id;
}

static struct restore_held *held_find(const struct restore *restore, uint64_t id)
{
	struct restore_held *held;

	HASH_FIND(hh, restore->held, &id, sizeof(id), held);
	return held;
}

/* Remembers the chunk under the id of its held descriptor. */
static int held_claim(struct restore *restore, uint64_t id, struct chunk *chunk)
{
	struct restore_held *held = calloc(1, sizeof(*held));

	if (!held)
		return -ENOMEM;
	held->id = id;
	held->chunk = chunk;
	if (HASH_ADD_NEW(hh, restore->held, id, sizeof(held->id), held))
		return 0;
	free(held);
	return -ENOMEM;
}

/* A daemon without -o spill= restores files with memory off the device too: the pool takes the
 * chunks beyond its limits. */
static int pool_find(struct restore *restore, struct volume *volume, enum memory_place place,
		     struct pool **pool)
{
	int rc = 0;

	if (place >= PLACES)
		return -EUCLEAN;
	if (!volume_pool(volume, place))
		rc = volume_open_place(volume, place, &restore->fs->budgets[place]);
	*pool = volume_pool(volume, place);
	return rc;
}

static int chunk_take(struct restore *restore, struct volume *volume, uint64_t number,
		      uint64_t bytes, struct chunk **chunk)
{
	const struct fdstore_ops *fdstore = &restore->journal->fdstore;
	enum pool_adopted kind = bytes < CHUNK_ALIGN ? POOL_SHARED : POOL_WHOLE;
	uint64_t id = journal_chunk_id(number);
	enum memory_place place = journal_chunk_place(number);
	struct pool *pool;
	int fd = pool_find(restore, volume, place, &pool);

	if (fd == 0)
		fd = fdstore->take(fdstore->context, fdstore_id(FDSTORE_CHUNK, id));

	if (fd < 0)
		return fd;
	int rc = chunk_import(volume->device, place, kind == POOL_SHARED ? CHUNK_ALIGN : bytes, fd,
			      chunk);

	if (rc < 0) {
		close(fd);
		return rc;
	}
	(*chunk)->id = id;
	/* The other chunks have blocks of several files, and were never handed out. */
	if (kind == POOL_WHOLE && restore_was_handed_out(restore, id))
		atomic_store(&(*chunk)->handed_out, CHUNK_HANDED_OUT);
	rc = pool_adopt(pool, *chunk, kind);
	if (rc < 0)
		chunk_free(*chunk);
	return rc;
}

/* Replaces the id in the span by the chunk, which the first of its extents imports. */
static int span_resolve(struct restore *restore, struct volume *volume, struct span *span)
{
	uint64_t number = number_of(span), id = last_id_raise(restore, journal_chunk_id(number));
	const struct restore_held *held = held_find(restore, fdstore_id(FDSTORE_CHUNK, id));
	struct chunk *chunk = held ? held->chunk : NULL;
	int rc = 0;

	if (chunk && (!chunk->pool_private || chunk->device != volume->device ||
		      chunk->place != journal_chunk_place(number)))
		return -EUCLEAN;
	/* The import failed for another file already. */
	if (held && !chunk)
		return -EIO;
	if (!chunk) {
		rc = chunk_take(restore, volume, number, span->bytes, &chunk);
		if (rc < 0)
			return rc;
		rc = held_claim(restore, fdstore_id(FDSTORE_CHUNK, id), chunk);
		if (rc < 0 && !chunk->pool_private)
			span_release(volume, &(struct span){chunk, 0, chunk->bytes});
		if (rc < 0)
			return rc;
	}
	span->chunk = chunk;
	if (span_owns_chunk(span))
		return 0;
	rc = span->bytes < CHUNK_ALIGN ? pool_adopt_block(volume_pool(volume, chunk->place), span)
				       : -EUCLEAN;
	return rc == -EEXIST || rc == -EINVAL ? -EUCLEAN : rc;
}

/* Zeroes the memory beyond the size: growing the file would show the bytes of an unfinished write
 * or of a truncated end. Sharers with a lease write beyond the size first and set the size
 * afterwards, so leased memory stays unchanged, except in a file that was being truncated: only
 * leases that keep no memory allow a truncation. */
static int file_clean_end(struct restore *restore, struct inode *inode)
{
	struct file *file = inode->file;
	uint64_t size = file_size(file), end = extents_end(&file->extents);
	struct inode_call call;
	int rc = 0;

	if (size < end &&
	    (atomic_load(&file->fields->unclean) || (inode->uses.writers && !inode->uses.leases))) {
		inode_call_init(&call, restore->fs, inode, worker_copier(restore->fs));
		rc = call.call.copier ? device_zero_now(&file->extents, &call.call, size, end)
				      : -ENOMEM;
	}
	if (rc == 0)
		atomic_store(&file->fields->unclean, 0);
	return rc;
}

/* The descriptor stays held, because a later daemon may be able to import the chunk. */
static int held_claim_missing(struct restore *restore, struct file *file, uint32_t found,
			      uint64_t number)
{
	int rc = file_missing(file) ? 0 : file_missing_note(file, found);
	uint64_t id = fdstore_id(FDSTORE_CHUNK, journal_chunk_id(number));

	return rc || held_find(restore, id) ? rc : held_claim(restore, id, NULL);
}

/* Imports the file's extents. Imported extents stay in the file, so that no other file gets their
 * memory; of the other extents the file_missing has the ids. */
static int file_find_extents(struct restore *restore, struct file *file, int *missing)
{
	struct extents *extents = &file->extents;
	uint32_t n = extents->count, found = 0;
	uint64_t bytes = 0;
	int rc = 0;

	for (uint32_t i = 0; rc == 0 && i < n; i++) {
		struct extent extent = extents->at[i];
		uint64_t number = number_of(&extent.span);
		int error = span_resolve(restore, file_volume(file), &extent.span);

		if (error == 0) {
			bytes += extent.span.bytes;
			extents->at[found++] = extent;
			if (extent.span.chunk->place != PLACE_GPU)
				file_note_left(file);
		} else if (restore_is_missing(error)) {
			*missing = *missing == -EUCLEAN ? *missing : error;
			rc = held_claim_missing(restore, file, found, number);
		} else {
			rc = error;
		}
	}
	extents->count = found;
	device_update_accounting(file, (int64_t)bytes);
	return rc;
}

static int file_restore_extents(struct restore *restore, struct inode *inode, int *missing)
{
	struct file *file = inode->file;

	if (file_is_corrupt(file)) {
		extents_free(&file->extents);
		*missing = -EUCLEAN;
		return 0;
	}
	int rc = file_find_extents(restore, file, missing);

	return rc || *missing ? rc : file_clean_end(restore, inode);
}

static int file_restore_object(struct restore *restore, struct file *file, int *missing)
{
	const struct fdstore_ops *fdstore = &restore->journal->fdstore;

	if (!file_object_id(file) && !file_is_corrupt(file))
		return 0;
	uint64_t id = fdstore_id(FDSTORE_HOST, last_id_raise(restore, file_object_id(file)));

	if (file_is_corrupt(file) || held_find(restore, id)) {
		*missing = -EUCLEAN;
		return 0;
	}
	int fd = fdstore->take(fdstore->context, id);

	if (restore_is_missing(fd)) {
		*missing = fd;
		return file_missing_note(file, 0);
	}
	if (fd < 0)
		return fd;
	/* The last daemon may have been killed while it held a file lease to check for writers. */
	fcntl(fd, F_SETLEASE, F_UNLCK);
	atomic_store(&file->object.handed_out, true);
	atomic_store(&file->object.bounded, system_object_tmpfs(fd) == SYSTEM_TMPFS_OWN);

	uint64_t charge = host_due(file, fd);

	atomic_store(&file->object.fd, fd);
	atomic_store(&file->allocated, charge);
	system_account_force(file_volume(file)->system, file_tmpfs(file), (int64_t)charge);
	return held_claim(restore, id, NULL);
}

/* The owner may have more than an owner may take now. */
static int file_charge_places(struct restore *restore, struct inode *inode)
{
	int rc = 0;

	EXTENTS_FOREACH (extent, &inode->file->extents)
		if (rc == 0)
			rc = owner_take_span(restore->fs, inode, extent->span.chunk->place,
					     extent->span.bytes, OWNER_ALWAYS, OWNER_ALWAYS);
	return rc;
}

int restore_memory(struct restore *restore, struct inode *inode)
{
	if (!S_ISREG(inode->mode)) {
		atomic_store(&inode->recorded, true);
		return 0;
	}
	struct file *file = inode->file;

	int missing = 0;

	atomic_store(&file->leases.count, inode->uses.leases);
	atomic_store(&file->leases.held, inode->uses.leases);
	if (restore->fs->mount == FS_MOUNT_KEPT && atomic_load(&file->object.backing_id))
		atomic_store(&file->object.mapped, 1);
	if (atomic_load(&file->fields->missing) || atomic_load(&file->fields->size) > FILE_SIZE_MAX)
		file_set_corrupt(file, true);
	int rc = file_is_device(file) ? file_restore_extents(restore, inode, &missing)
				      : file_restore_object(restore, file, &missing);

	if (missing)
		restore_missing(restore, inode, missing);
	if (rc == 0 && atomic_load(&file->object.fd) >= 0)
		rc = owner_take_object(restore->fs, inode, file_tmpfs(file), OWNER_ALWAYS);
	if (rc == 0)
		rc = file_charge_places(restore, inode);
	int error = owner_charge_bytes(restore->fs, inode, (int64_t)atomic_load(&file->allocated));
	rc = rc ? rc : error;
	/* From here on restore_abandon gives the file's memory back. */
	atomic_store(&inode->recorded, true);
	return rc;
}

static bool chunk_is_used(void *restore, uint64_t chunk)
{
	return held_find(restore, fdstore_id(FDSTORE_CHUNK, chunk));
}

int restore_given_up(struct restore *restore)
{
	return file_holds_of(restore->fs) ? holds_restore(restore->fs, chunk_is_used, restore) : 0;
}

struct unclaimed {
	struct restore *restore;
	uint64_t *ids;
	size_t n;
	int rc;
};

static int unclaimed_collect(uint64_t id, int fd, void *arg)
{
	struct unclaimed *unclaimed = arg;
	enum fdstore_kind kind = fdstore_kind_of(id);

	(void)fd;
	if ((kind != FDSTORE_CHUNK && kind != FDSTORE_HOST) ||
	    (id & ((1ULL << FDSTORE_NUMBER_BITS) - 1)) < JOURNAL_FIRST_ID ||
	    held_find(unclaimed->restore, id))
		return 0;
	uint64_t *ids = vector_grow(unclaimed->ids, unclaimed->n, sizeof(*ids));

	if (!ids)
		return -ENOMEM;
	last_id_raise(unclaimed->restore, id & ((1ULL << FDSTORE_NUMBER_BITS) - 1));
	unclaimed->ids = ids;
	ids[unclaimed->n++] = id;
	return 0;
}

int restore_unclaimed(struct restore *restore)
{
	const struct fdstore_ops *fdstore = &restore->journal->fdstore;
	struct unclaimed unclaimed = {.restore = restore};
	int rc = fdstore->each(fdstore->context, unclaimed_collect, &unclaimed);

	for (size_t i = 0; rc == 0 && i < unclaimed.n; i++)
		fdstore->drop(fdstore->context, unclaimed.ids[i]);
	free(unclaimed.ids);
	return rc;
}

void restore_held_free(struct restore *restore)
{
	struct restore_held *held, *next;

	HASH_ITER (hh, restore->held, held, next) {
		HASH_DEL(restore->held, held);
		free(held);
	}
}

int restore_abandon(struct restore *restore, struct inode *inode)
{
	(void)restore;
	if (!S_ISREG(inode->mode))
		return 0;
	struct file *file = inode->file;
	struct volume *volume = file_volume(file);

	/* A file that restoring did not reach has ids in place of chunks. */
	if (!atomic_load(&inode->recorded))
		extents_free(&file->extents);
	else if (volume->pool)
		device_release(volume, &file->extents);
	return 0;
}
