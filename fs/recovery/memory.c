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
#include "fs/file/export.h"
#include "fs/file/restore.h"
#include "fs/holders/holds.h"
#include "fs/recovery/internal.h"
#include "fs/tree/inode.h"
#include "fs/tree/inode_hooks.h"
#include "fs/tree/owner.h"
#include "fs/tree/quota.h"

int restore_file(struct restore *restore, struct inode *inode, const struct journal_view *view)
{
	const struct journal_file *image = view->fixed;

	if (!S_ISREG(inode->mode) || image->volume >= restore->n_volumes)
		return -EUCLEAN;
	int rc = file_restore_record(inode->file, restore->volumes[image->volume], view->kind,
				     image, (const void *)view->tail);

	inode->volume = file_volume(inode->file);
	return rc;
}

int restore_cut(struct inode *inode, const struct journal_cut *image)
{
	return S_ISREG(inode->mode) ? file_restore_cut(inode->file, image) : -EUCLEAN;
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

/* bytes: of the span, or of the whole chunk of another program. */
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
	int rc = journal_chunk_is_foreign(number)
		     ? chunk_import_foreign(volume->device, bytes, fd, CHUNK_FOREIGN_LATER, chunk)
		     : chunk_import(volume->device, place,
				    kind == POOL_SHARED ? CHUNK_ALIGN : bytes, fd, chunk);

	if (rc < 0) {
		close(fd);
		return rc;
	}
	(*chunk)->id = id;
	/* The other chunks have blocks of several files, and were never handed out. */
	if (kind == POOL_WHOLE && ((*chunk)->foreign || restore_was_handed_out(restore, id)))
		atomic_store(&(*chunk)->handed_out, CHUNK_HANDED_OUT);
	rc = pool_adopt(pool, *chunk, kind);
	if (rc < 0)
		chunk_free(*chunk);
	return rc;
}

/* file_restore_finder.find: the first span of a chunk imports the chunk. */
static int span_resolve(void *context, struct volume *volume, uint64_t number, struct span *span)
{
	struct restore *restore = context;
	uint64_t id = last_id_raise(restore, journal_chunk_id(number));
	const struct restore_held *held = held_find(restore, fdstore_id(FDSTORE_CHUNK, id));
	struct chunk *chunk = held ? held->chunk : NULL;
	int rc = 0;

	bool foreign = journal_chunk_is_foreign(number);
	uint64_t bytes = foreign ? journal_foreign_bytes(span->offset) : span->bytes;

	if (chunk && (!chunk->pool_private || chunk->device != volume->device ||
		      chunk->place != journal_chunk_place(number)))
		return -EUCLEAN;
	/* The import failed for another file already. */
	if (held && !chunk)
		return -EIO;
	if (!chunk) {
		rc = chunk_take(restore, volume, number, bytes, &chunk);
		if (rc < 0)
			return rc;
		rc = held_claim(restore, fdstore_id(FDSTORE_CHUNK, id), chunk);
		if (rc < 0 && !chunk->pool_private)
			pool_free_span(volume_pool(volume, chunk->place),
				       &(struct span){chunk, 0, chunk->bytes});
		if (rc < 0)
			return rc;
	}
	span->chunk = chunk;
	if (foreign)
		span->offset &= JOURNAL_INTO_MASK;
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
	enum file_restore_end end = file_restore_end(inode->file);
	struct inode_call call;

	if (end != FILE_RESTORE_END_UNCLEAN &&
	    (end == FILE_RESTORE_END_NONE || !inode->uses.writers || inode->uses.leases))
		return file_restore_clean_end(inode->file, NULL);
	inode_call_init(&call, restore->fs, inode, worker_copier(restore->fs));
	return call.call.copier ? file_restore_clean_end(inode->file, &call.call) : -ENOMEM;
}

/* file_restore_finder.lose: the descriptor stays held, because a later daemon may be able to import
 * the chunk. */
static int span_lose(void *context, uint64_t number, int error)
{
	struct restore *restore = context;
	uint64_t id = fdstore_id(FDSTORE_CHUNK, journal_chunk_id(number));

	if (!restore_is_missing(error))
		return error;
	return held_find(restore, id) ? 0 : held_claim(restore, id, NULL);
}

static int restore_extents(struct restore *restore, struct inode *inode, int *missing)
{
	struct file_restore_finder finder = {
	    .context = restore, .find = span_resolve, .lose = span_lose};
	int rc = file_restore_extents(inode->file, &finder, missing);

	return rc || *missing ? rc : file_clean_end(restore, inode);
}

static int restore_object(struct restore *restore, struct file *file, int *missing)
{
	const struct fdstore_ops *fdstore = &restore->journal->fdstore;
	uint64_t id;
	int fd, error = file_restore_object_id(file, &id);

	if (!id && !error)
		return 0;
	id = fdstore_id(FDSTORE_HOST, last_id_raise(restore, id));
	if (error || held_find(restore, id)) {
		*missing = -EUCLEAN;
		return 0;
	}
	fd = fdstore->take(fdstore->context, id);
	if (restore_is_missing(fd)) {
		*missing = fd;
		return file_restore_no_object(file);
	}
	if (fd < 0)
		return fd;
	/* The last daemon may have been killed while it held a file lease to check for writers. */
	fcntl(fd, F_SETLEASE, F_UNLCK);
	file_restore_object(file, fd);
	return held_claim(restore, id, NULL);
}

struct span_payer {
	struct fs *fs;
	struct inode *inode;
};

/* The owner may have more than an owner may take now. */
static int span_charge(void *context, const struct span *span)
{
	struct span_payer *payer = context;

	return owner_take_span(payer->fs, payer->inode, span->chunk->place, span_taken(span),
			       OWNER_ALWAYS, OWNER_ALWAYS);
}

static int file_charge_owner(struct restore *restore, struct inode *inode)
{
	struct span_payer payer = {.fs = restore->fs, .inode = inode};
	enum system_tmpfs tmpfs;
	int rc = 0;

	if (file_restored_tmpfs(inode->file, &tmpfs))
		rc = owner_take_object(restore->fs, inode, tmpfs, OWNER_ALWAYS);
	return rc ? rc : file_restored_spans(inode->file, span_charge, &payer);
}

int restore_memory(struct restore *restore, struct inode *inode)
{
	if (!S_ISREG(inode->mode)) {
		atomic_store(&inode->recorded, true);
		return 0;
	}
	struct file *file = inode->file;
	int missing = 0;

	file_restore_state(file, inode->uses.leases,
			   restore->fs->mount == FS_MOUNT_KEPT ? FILE_RESTORE_MOUNT_KEPT
							       : FILE_RESTORE_MOUNT_NEW);
	int rc = volume_is_device(file_volume(file)) ? restore_extents(restore, inode, &missing)
						     : restore_object(restore, file, &missing);

	if (missing && !file_adopted_has_ended(file))
		restore_missing(restore, inode, missing);
	if (rc == 0)
		rc = file_charge_owner(restore, inode);
	int error = owner_charge_bytes(restore->fs, inode, (int64_t)file_restored_bytes(file));
	rc = rc ? rc : error;
	/* From here on restore_abandon gives the file's memory back. */
	atomic_store(&inode->recorded, true);
	if (rc == 0 && (!inode->uses.leases || file_adopted_has_ended(file)))
		inode_notify_producer_ended(restore->fs, inode);
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
	/* A file that restoring did not reach has ids in place of chunks. */
	if (atomic_load(&inode->recorded))
		file_restore_release(inode->file);
	else
		file_restore_forget(inode->file);
	return 0;
}
