/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
#include "fs/holders/holds.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <unistd.h>
#include <utlist.h>

#include "common/cleanup.h"
#include "fs/extents/extents.h"
#include "fs/file/core/record.h"
#include "fs/file/export.h"
#include "fs/holders/internal.h"
#include "fs/tree/inode.h"
#include "fs/tree/inode_table.h"
#include "fs/tree/quota.h"

/* A search for a chunk takes as many steps. */
#define SHELF_MAX 1024

/* Under the lock. The store need not tell any more who pays for the chunk. */
static void taken_end(struct holds *holds, const struct chunk *memory)
{
	struct held_chunk *held;

	DL_SEARCH_SCALAR(holds->taken_chunks, held, memory, memory);
	if (!held)
		return;
	held_store_remove(holds->store, HELD_CHUNK, held->slot);
	DL_DELETE(holds->taken_chunks, held);
	atomic_fetch_sub(&holds->n_taken, 1);
	DL_APPEND(holds->ended, held);
}

/* Under topology and the lock. */
static int chunk_hold(struct fs *fs, struct inode *inode, struct volume *volume,
		      const struct span *span, enum file_hold mode)
{
	struct holds *holds = holds_of(fs);
	struct held_file *file = held_file_find(holds, inode->ino);
	struct inode *dir = inode->quota_dir ?: inode_find(fs, volume->root_ino);
	struct held_chunk *held;
	struct held_image image = {
	    .chunk = span->chunk->id,
	    .bytes = span_taken(span),
	    .ino = inode->ino,
	    .sequence = ++holds->sequence,
	    .dir = dir->ino,
	    .volume = volume->root_ino,
	    .place = span->chunk->place,
	    .uid = atomic_load(&inode->uid),
	};

	if (!file)
		return 0;
	int error = held_chunk_new(holds, file, &image, &held);

	if (error)
		return error;
	held->volume = volume;
	held->memory = span->chunk;
	held->dir = dir;
	error = held_chunk_charge(fs, held, mode);
	if (error) {
		held_chunk_remove(fs, held);
		free(held);
		return error;
	}
	inode_ref(dir);
	return 1;
}

static int holds_hold(void *owner, struct volume *volume, const struct span *span,
		      enum file_hold mode)
{
	struct inode_call *call = owner;
	struct holds *holds = holds_of(call->fs);

	if (!atomic_load(&holds->n_files) && !atomic_load(&holds->n_taken))
		return 0;
	if (call->unasked)
		mode = FILE_HOLD_ALWAYS;
	brlock_token token = brlock_read_lock(&call->fs->topology);

	pthread_mutex_lock(&holds->lock);
	int held = chunk_hold(call->fs, call->inode, volume, span, mode);

	taken_end(holds, span->chunk);
	pthread_mutex_unlock(&holds->lock);
	brlock_read_unlock(&call->fs->topology, token);
	return held;
}

/* Under the lock. The address of a chunk that was freed may be another chunk's by now: the last one
 * counts. */
static struct held_chunk *held_find(const struct holds *holds, uint64_t ino,
				    const struct chunk *memory)
{
	struct held_file *file = held_file_find(holds, ino);
	struct held_chunk *last = file && file->chunks ? file->chunks->prev : NULL;

	while (last && last->memory != memory)
		last = last == file->chunks ? NULL : last->prev;
	return last;
}

/* Under topology and the lock. Later, under no lock, the reference of the directory is put. */
static bool chunk_unhold(struct fs *fs, uint64_t ino, const struct chunk *memory)
{
	struct holds *holds = holds_of(fs);
	struct held_chunk *held = held_find(holds, ino, memory);

	if (!held)
		return false;
	held_chunk_remove(fs, held);
	held_chunk_uncharge(fs, held);
	DL_APPEND(holds->ended, held);
	return true;
}

static void holds_unhold(void *owner, const struct span *span)
{
	struct inode_call *call = owner;
	struct holds *holds = holds_of(call->fs);
	struct volume *volume = file_volume(call->inode->file);
	brlock_token token = brlock_read_lock(&call->fs->topology);

	pthread_mutex_lock(&holds->lock);
	bool held = chunk_unhold(call->fs, call->inode->ino, span->chunk);

	pthread_mutex_unlock(&holds->lock);
	brlock_read_unlock(&call->fs->topology, token);
	/* The process has ended, and the pool counts the chunk no more. */
	if (!held)
		pool_held_restore(volume_pool(volume, span->chunk->place), span_taken(span));
}

static bool holds_shelve(void *owner, struct volume *volume, const struct span *span)
{
	struct inode_call *call = owner;
	struct holds *holds = holds_of(call->fs);

	if (atomic_load(&span->chunk->lost) || atomic_load(&volume->device->failed) ||
	    atomic_load(&holds->n_shelved) >= SHELF_MAX)
		return false;
	scoped_lock(&holds->lock);
	struct held_chunk *held = held_find(holds, call->inode->ino, span->chunk);

	return held && held_chunk_shelve(call->fs, held, span);
}

/* Under the lock. Who had the chunk of one file has the chunk of another. */
static int receipts_inherit(struct fs *fs, const struct held_chunk *held, uint64_t ino)
{
	struct receipt *receipt;
	int error = 0;

	DL_FOREACH (held->file->receipts, receipt) {
		if (receipt->sequence > held->image.sequence)
			break;
		error = receipt_add(fs, receipt->receiver, ino);
		if (error)
			break;
	}
	return error;
}

/* Under the lock. The file is charged for the chunk, and the next daemon will charge who is stored,
 * until a record says that the file has the chunk. */
static void shelf_give(struct fs *fs, struct held_chunk *held, uint64_t ino)
{
	struct holds *holds = holds_of(fs);
	struct held_file *file = held->file;

	held_chunk_unlist(fs, held);
	held_store_give(holds->store, held->slot, ino, ++holds->sequence);
	DL_APPEND(holds->taken_chunks, held);
	atomic_fetch_add(&holds->n_taken, 1);
	if (!file->chunks && file->ended)
		receipts_forget(fs, file);
}

/* Under topology and the lock. The charges of the chunk end first: a limit must not see the bytes
 * twice. */
static int shelf_take(const struct file_call *call, const struct held_image *like,
		      struct volume *volume, int64_t charged, struct span *span)
{
	struct inode_call *inode_call = call->quota_owner;
	struct fs *fs = inode_call->fs;
	struct held_chunk *held = held_chunk_shelved(holds_of(fs), like, volume);

	if (!held || receipts_inherit(fs, held, inode_call->inode->ino))
		return -ENOENT;
	held_chunk_uncharge(fs, held);
	int error =
	    quota_charge_span(call, (enum memory_place)like->place, (int64_t)like->bytes, charged);

	if (error) {
		held_chunk_charge(fs, held, FILE_HOLD_ALWAYS);
		return error;
	}
	*span = held->span;
	shelf_give(fs, held, inode_call->inode->ino);
	return 0;
}

static int holds_take(const struct file_call *call, struct volume *volume, enum memory_place place,
		      uint64_t bytes, int64_t charged, struct span *span)
{
	struct inode_call *inode_call = call->quota_owner;
	struct fs *fs = inode_call->fs;
	struct holds *holds = holds_of(fs);
	struct held_image like = {
	    .uid = atomic_load(&inode_call->inode->uid), .place = place, .bytes = bytes};

	if (!atomic_load(&holds->n_shelved) || file_is_unclean(inode_call->inode->file))
		return -ENOENT;
	brlock_token token = brlock_read_lock(&fs->topology);

	pthread_mutex_lock(&holds->lock);
	int error = shelf_take(call, &like, volume, charged, span);

	pthread_mutex_unlock(&holds->lock);
	brlock_read_unlock(&fs->topology, token);
	if (error)
		return error;
	/* A checkpoint since the chunk's way to the shelf has left the chunk out. */
	file_record_handed_out(call->journal, &span->chunk->id, 1);
	atomic_store(&span->chunk->handed_out, CHUNK_HANDED_OUT);
	return 0;
}

static void holds_recorded(void *owner, const struct extents *extents)
{
	struct inode_call *call = owner;
	struct holds *holds = holds_of(call->fs);

	if (!atomic_load(&holds->n_taken))
		return;
	scoped_lock(&holds->lock);
	EXTENTS_FOREACH (extent, extents)
		taken_end(holds, extent->span.chunk);
}

uint64_t holds_shelved(struct fs *fs, uid_t uid, const struct volume *volume)
{
	struct holds *holds = holds_of(fs);
	struct held_chunk *held;
	uint64_t bytes = 0;

	if (!holds || !atomic_load(&holds->n_shelved))
		return 0;
	scoped_lock(&holds->lock);
	DL_FOREACH2(holds->shelf, held, shelf_next)
	{
		if (held->volume == volume && held->image.uid == uid)
			bytes += held->image.bytes;
	}
	return bytes;
}

static uint64_t holds_shelved_of(void *owner, const struct volume *volume)
{
	struct inode_call *call = owner;

	return holds_shelved(call->fs, atomic_load(&call->inode->uid), volume);
}

/* Takes a chunk of this place off the shelf, which stays held. */
static bool shelf_pop(struct fs *fs, const struct volume *volume, enum memory_place place,
		      struct span *span)
{
	struct holds *holds = holds_of(fs);
	struct held_chunk *held;

	scoped_lock(&holds->lock);
	DL_FOREACH2(holds->shelf, held, shelf_next)
	{
		if (held->volume == volume && held->image.place == place)
			break;
	}
	if (!held)
		return false;
	*span = held->span;
	held_chunk_unshelve(fs, held);
	held->span.chunk = NULL;
	return true;
}

static bool holds_drop(void *owner, struct volume *volume, enum memory_place place)
{
	struct inode_call *call = owner;
	struct holds *holds = holds_of(call->fs);
	struct span span;
	bool dropped = false;

	while (atomic_load(&holds->n_shelved) && shelf_pop(call->fs, volume, place, &span)) {
		pool_free_span(volume_pool(volume, place), &span);
		dropped = true;
	}
	return dropped;
}

static struct held_chunk *file_forget(struct fs *fs, uint64_t ino)
{
	struct holds *holds = holds_of(fs);

	scoped_lock(&holds->lock);
	struct held_file *file = held_file_find(holds, ino);
	struct held_chunk *ended = holds->ended;

	holds->ended = NULL;
	if (file)
		file->ended = true;
	if (file && !file->chunks)
		receipts_forget(fs, file);
	return ended;
}

static void holds_forget(void *owner)
{
	struct inode_call *call = owner;
	struct fs *fs = call->fs;

	if (atomic_load(&holds_of(fs)->n_files))
		held_chunks_free(fs, file_forget(fs, call->inode->ino));
}

int holds_fd(const struct fs *fs)
{
	return holds_of(fs)->epoll_fd;
}

static struct volume *volume_find(const struct fs *fs, uint64_t root_ino)
{
	for (unsigned i = 0; i < fs->n_volumes; i++)
		if (fs->volumes[i].pool && fs->volumes[i].root_ino == root_ino)
			return &fs->volumes[i];
	return NULL;
}

/* The directory, or the volume's if the directory is gone. */
static struct inode *dir_find(const struct fs *fs, const struct held_image *stored)
{
	struct inode *dir = inode_table_find(fs->inodes, stored->dir);

	return dir && S_ISDIR(dir->mode) ? dir : inode_table_find(fs->inodes, stored->volume);
}

/* Whether the bytes are to be charged: false if nobody has the chunk any more. */
static int chunk_restore(struct fs *fs, const struct held_image *stored, uint32_t slot)
{
	struct holds *holds = holds_of(fs);
	struct held_file *file = held_file_find(holds, stored->ino);
	struct volume *volume = volume_find(fs, stored->volume);
	struct pool *pool = volume && stored->place < PLACES
				? volume_pool(volume, (enum memory_place)stored->place)
				: NULL;
	struct inode *dir = dir_find(fs, stored);

	if (!file || file->receipts->sequence > stored->sequence || !pool || !dir ||
	    !stored->bytes || stored->bytes % CHUNK_ALIGN || stored->bytes > FILE_SIZE_MAX)
		return -ENOENT;
	struct held_chunk *held = calloc(1, sizeof(*held));

	if (!held)
		return -ENOMEM;
	*held = (struct held_chunk){
	    .file = file, .volume = volume, .dir = dir, .image = *stored, .slot = slot};
	DL_APPEND(file->chunks, held);
	if (stored->sequence > holds->sequence)
		holds->sequence = stored->sequence;
	inode_ref(dir);
	pool_held_restore(pool, stored->bytes);
	held_chunk_charge(fs, held, FILE_HOLD_ALWAYS);
	return 0;
}

static int chunk_by_sequence(const struct held_chunk *a, const struct held_chunk *b)
{
	return (a->image.sequence > b->image.sequence) - (a->image.sequence < b->image.sequence);
}

/* Receipts for files that are gone and of which nothing is held end. */
static void files_restore(struct fs *fs)
{
	struct held_file *file, *next;

	HASH_ITER (hh, holds_of(fs)->by_ino, file, next) {
		DL_SORT(file->chunks, chunk_by_sequence);
		file->ended = !inode_table_find(fs->inodes, file->ino);
		if (file->ended && !file->chunks)
			receipts_forget(fs, file);
	}
}

int holds_restore(struct fs *fs, bool (*is_used)(void *context, uint64_t chunk), void *context)
{
	struct holds *holds = holds_of(fs);
	const struct held_image *stored;
	uint32_t slot = 0;
	int error = 0;

	while ((stored = held_store_next(holds->store, HELD_CHUNK, &slot))) {
		error =
		    is_used(context, stored->chunk) ? -ENOENT : chunk_restore(fs, stored, slot - 1);
		if (error == -ENOMEM)
			return error;
		if (error)
			held_store_remove(holds->store, HELD_CHUNK, slot - 1);
	}
	files_restore(fs);
	return 0;
}

int holds_open(struct fs *fs)
{
	struct holds *holds = calloc(1, sizeof(*holds));

	if (!holds)
		return -ENOMEM;
	*holds = (struct holds){.calls = {.hold = holds_hold,
					  .unhold = holds_unhold,
					  .shelve = holds_shelve,
					  .take = holds_take,
					  .recorded = holds_recorded,
					  .shelved = holds_shelved_of,
					  .drop = holds_drop,
					  .forget = holds_forget},
				.epoll_fd = epoll_create1(EPOLL_CLOEXEC)};
	pthread_mutex_init(&holds->lock, NULL);
	fs->states[FS_HOLDS] = holds;
	int error = holds->epoll_fd < 0 ? -errno : held_store_open(fs->fdstore, &holds->store);

	if (!error)
		error = receivers_restore(fs);
	if (error)
		holds_close(fs);
	return error;
}

void holds_end(struct fs *fs)
{
	struct holds *holds = holds_of(fs);

	/* The next daemon reads the store as it is. */
	held_store_close(holds->store);
	holds->store = NULL;
	receivers_free(fs);
	DL_CONCAT(holds->ended, holds->taken_chunks);
	held_chunks_free(fs, holds->ended);
	holds->ended = holds->taken_chunks = NULL;
}

void holds_close(struct fs *fs)
{
	struct holds *holds = holds_of(fs);

	if (holds->store)
		holds_end(fs);
	if (holds->epoll_fd >= 0)
		close(holds->epoll_fd);
	pthread_mutex_destroy(&holds->lock);
	free(holds);
	fs->states[FS_HOLDS] = NULL;
}
