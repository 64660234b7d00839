/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* Chunks that files gave up and processes may still have: their lists, charges, and the shelf. */
#include <errno.h>
#include <stdlib.h>
#include <utlist.h>

#include "fs/holders/internal.h"
#include "fs/ledger/ledger.h"
#include "fs/tree/inode.h"
#include "fs/tree/owner.h"
#include "fs/tree/quota.h"

struct held_file *held_file_find(const struct holds *holds, uint64_t ino)
{
	struct held_file *file;

	HASH_FIND(hh, holds->by_ino, &ino, sizeof(ino), file);
	return file;
}

struct held_file *held_file_find_or_new(struct holds *holds, uint64_t ino)
{
	struct held_file *file = held_file_find(holds, ino);

	if (file)
		return file;
	file = calloc(1, sizeof(*file));
	if (!file)
		return NULL;
	file->ino = ino;
	if (HASH_ADD_NEW(hh, holds->by_ino, ino, sizeof(file->ino), file)) {
		atomic_fetch_add(&holds->n_files, 1);
		return file;
	}
	free(file);
	return NULL;
}

void held_file_free(struct holds *holds, struct held_file *file)
{
	HASH_DEL(holds->by_ino, file);
	atomic_fetch_sub(&holds->n_files, 1);
	free(file);
}

void held_file_settle(struct fs *fs, struct held_file *file, struct held_chunk **ended)
{
	struct held_chunk *chunk;

	while ((chunk = file->chunks) &&
	       (!file->receipts || file->receipts->sequence > chunk->image.sequence)) {
		held_chunk_remove(fs, chunk);
		DL_APPEND(*ended, chunk);
	}
}

int held_chunk_new(struct holds *holds, struct held_file *file, const struct held_image *image,
		   struct held_chunk **new_chunk)
{
	struct held_chunk *chunk = calloc(1, sizeof(*chunk));

	if (!chunk)
		return -ENOMEM;
	chunk->file = file;
	chunk->image = *image;
	chunk->slot = held_store_add(holds->store, HELD_CHUNK, image);
	DL_APPEND(file->chunks, chunk);
	*new_chunk = chunk;
	return 0;
}

void held_chunk_unlist(struct fs *fs, struct held_chunk *chunk)
{
	DL_DELETE(chunk->file->chunks, chunk);
	if (chunk->span.chunk)
		held_chunk_unshelve(fs, chunk);
}

void held_chunk_remove(struct fs *fs, struct held_chunk *chunk)
{
	held_store_remove(holds_of(fs)->store, HELD_CHUNK, chunk->slot);
	held_chunk_unlist(fs, chunk);
}

bool held_chunk_shelve(struct fs *fs, struct held_chunk *chunk, const struct span *span)
{
	struct holds *holds = holds_of(fs);
	uint64_t descriptors = ledger_span_descriptors(span->bytes);

	if (ledger_take(fs, chunk->image.uid, LEDGER_DESCRIPTORS, descriptors))
		return false;
	chunk->descriptors = descriptors;
	chunk->span = *span;
	DL_APPEND2(holds->shelf, chunk, shelf_prev, shelf_next);
	atomic_fetch_add(&holds->n_shelved, 1);
	return true;
}

void held_chunk_unshelve(struct fs *fs, struct held_chunk *chunk)
{
	struct holds *holds = holds_of(fs);

	DL_DELETE2(holds->shelf, chunk, shelf_prev, shelf_next);
	atomic_fetch_sub(&holds->n_shelved, 1);
	ledger_give(fs, chunk->image.uid, LEDGER_DESCRIPTORS, chunk->descriptors);
	chunk->descriptors = 0;
}

struct held_chunk *held_chunk_shelved(const struct holds *holds, const struct held_image *like,
				      const struct volume *volume)
{
	struct held_chunk *chunk;

	DL_FOREACH2(holds->shelf, chunk, shelf_next)
	{
		if (chunk->volume == volume && chunk->image.uid == like->uid &&
		    chunk->image.place == like->place && chunk->image.bytes == like->bytes)
			return chunk;
	}
	return NULL;
}

#define CHARGES 5

/* What the user of a held chunk is charged for. */
static void charges_of(const struct held_chunk *chunk, struct ledger_charge charges[CHARGES])
{
	const struct held_image *image = &chunk->image;
	enum memory_place place = (enum memory_place)image->place;

	charges[0] = (struct ledger_charge){owner_place_kind(place), image->bytes, true};
	charges[1] = (struct ledger_charge){LEDGER_BYTES, image->bytes, true};
	charges[2] = (struct ledger_charge){LEDGER_HELD, image->bytes, true};
	charges[3] = (struct ledger_charge){LEDGER_DESCRIPTORS, chunk->descriptors, true};
	charges[4] = (struct ledger_charge){LEDGER_HELD_CHUNKS, 1, true};
}

int held_chunk_charge(struct fs *fs, struct held_chunk *chunk, enum file_hold mode)
{
	const struct held_image *image = &chunk->image;
	struct ledger_charge charges[CHARGES];
	int error = 0;

	if (mode == FILE_HOLD_ALWAYS)
		quota_force(chunk->dir, (int64_t)image->bytes, 0);
	else
		error = quota_add(chunk->dir, (int64_t)image->bytes, 0);
	if (error)
		return error;
	chunk->descriptors = chunk->span.chunk ? ledger_span_descriptors(image->bytes) : 0;
	charges_of(chunk, charges);
	chunk->user_charged = ledger_take_all(fs, image->uid, charges, CHARGES) == 0;
	return 0;
}

void held_chunk_uncharge(struct fs *fs, struct held_chunk *chunk)
{
	const struct held_image *image = &chunk->image;
	struct ledger_charge charges[CHARGES];

	quota_force(chunk->dir, -(int64_t)image->bytes, 0);
	charges_of(chunk, charges);
	if (chunk->user_charged)
		ledger_give_all(fs, image->uid, charges, CHARGES);
	chunk->descriptors = 0;
}

/* The memory of a chunk on the shelf is freed here, and the pool counts the chunk no longer. */
static void memory_end(struct held_chunk *held)
{
	struct pool *pool = volume_pool(held->volume, (enum memory_place)held->image.place);
	struct chunk *chunk = held->span.chunk;

	if (!chunk) {
		pool_held_end(pool, held->image.bytes);
		return;
	}
	atomic_store(&chunk->handed_out, CHUNK_HANDED_OUT);
	pool_free_span(pool, &held->span);
}

void held_chunks_end(struct fs *fs, struct held_chunk *ended)
{
	struct held_chunk *chunk;

	DL_FOREACH (ended, chunk) {
		memory_end(chunk);
		brlock_token token = brlock_read_lock(&fs->topology);

		held_chunk_uncharge(fs, chunk);
		brlock_read_unlock(&fs->topology, token);
	}
}

void held_chunks_free(struct fs *fs, struct held_chunk *ended)
{
	while (ended) {
		struct held_chunk *chunk = ended;

		DL_DELETE(ended, chunk);
		inode_put(fs, chunk->dir, 1);
		free(chunk);
	}
}
