/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* Journal records of a file's memory. */
#include <stdlib.h>

#include "common/cleanup.h"
#include "fs/file/core/missing.h"
#include "fs/file/core/record.h"
#include "fs/file/core/state.h"

/* Records with at most this many extents need no allocation. */
#define FEW 8

static void extents_to_journal(const struct extents *extents, struct journal_extent *to)
{
	EXTENTS_FOREACH (extent, extents)
		*to++ = (struct journal_extent){
		    .offset = extent->offset,
		    .bytes = extent->span.bytes,
		    .chunk = journal_chunk(extent->span.chunk),
		    .into = journal_into(&extent->span),
		};
}

struct journal_extent *file_record_extents(const struct extents *extents)
{
	struct journal_extent *journal_extents =
	    extents->count ? malloc(extents->count * sizeof(*journal_extents)) : NULL;

	if (journal_extents)
		extents_to_journal(extents, journal_extents);
	return journal_extents;
}

static struct journal_file file_image(const struct file_call *call, const struct file *file,
				      uint32_t n_extents)
{
	return (struct journal_file){
	    .ino = call->ino,
	    .object = file_object_id(file),
	    .volume = file_volume(file)->index,
	    .tail_shift = file->memory.tail_shift,
	    .object_shift = file->object.shift,
	    .n_extents = n_extents,
	};
}

static struct journal_piece cut_piece(const struct journal_cut *cut)
{
	return (struct journal_piece){.kind = JOURNAL_CUT, .bytes = sizeof(*cut), .fixed = cut};
}

static struct journal_piece more_piece(const struct journal_file *image,
				       const struct journal_extent *extents)
{
	return (struct journal_piece){
	    .kind = JOURNAL_EXTENTS,
	    .bytes = sizeof(*image),
	    .fixed = image,
	    .tail = {{extents, image->n_extents * (uint32_t)sizeof(*extents)}},
	};
}

/* Several records if there are many extents: each allocation is a valid state by itself. */
void file_record_added(const struct file_call *call, const struct file *file,
		       const struct extents *new_extents)
{
	struct journal_extent buffer[FEW];

	for (uint32_t at = 0; call->journal && at < new_extents->count; at += FEW) {
		uint32_t n = new_extents->count - at < FEW ? new_extents->count - at : FEW;
		struct extents part = {.at = new_extents->at + at, .count = n};
		struct journal_file image = file_image(call, file, n);
		struct journal_piece piece = more_piece(&image, buffer);

		extents_to_journal(&part, buffer);
		journal_append(call->journal, &piece, 1, NULL);
	}
	file_recorded(call, new_extents);
}

void file_record_cut(const struct file_call *call, uint64_t from, uint64_t to)
{
	struct journal_cut cut = {.ino = call->ino, .from = from, .to = to};
	struct journal_piece piece = cut_piece(&cut);

	journal_append(call->journal, &piece, 1, NULL);
}

static void record_replaced(const struct file_call *call, const struct file *file, uint64_t from,
			    uint64_t to, const struct extents *new_extents)
{
	struct journal_extent buffer[FEW], *extents = buffer;
	struct journal_cut cut = {.ino = call->ino, .from = from, .to = to};

	if (!call->journal)
		return;
	if (new_extents->count > FEW)
		extents = file_record_extents(new_extents);
	else
		extents_to_journal(new_extents, buffer);
	if (!extents) {
		journal_fail(call->journal, new_extents->count * sizeof(*extents));
		return;
	}

	struct journal_file image = file_image(call, file, new_extents->count);
	struct journal_piece pieces[2] = {cut_piece(&cut), more_piece(&image, extents)};

	journal_append(call->journal, pieces, 2, NULL);
	if (extents != buffer)
		free(extents);
}

void file_record_replaced(const struct file_call *call, const struct file *file, uint64_t from,
			  uint64_t to, const struct extents *new_extents)
{
	record_replaced(call, file, from, to, new_extents);
	file_recorded(call, new_extents);
}

void file_record_object(const struct file_call *call, const struct file *file)
{
	struct journal_file image = file_image(call, file, 0);
	struct journal_piece piece = {
	    .kind = JOURNAL_FILE, .bytes = sizeof(image), .fixed = &image};

	journal_append(call->journal, &piece, 1, NULL);
}

void file_record_handed_out(struct journal *journal, const uint64_t *chunks, uint32_t n_chunks)
{
	struct journal_handed_out image = {.n_chunks = n_chunks};
	struct journal_piece piece = {
	    .kind = JOURNAL_HANDED_OUT,
	    .bytes = sizeof(image),
	    .fixed = &image,
	    .tail = {{chunks, n_chunks * (uint32_t)sizeof(*chunks)}},
	};

	if (journal && journal_is_raised(journal))
		journal_append(journal, &piece, 1, NULL);
}

/* Ids for file_record_handed_out, some at a time. */
struct handed_out {
	struct journal *journal;
	uint64_t ids[FEW];
	uint32_t n;
};

static void handed_out_flush(struct handed_out *handed_out)
{
	if (handed_out->n)
		file_record_handed_out(handed_out->journal, handed_out->ids, handed_out->n);
	handed_out->n = 0;
}

static void handed_out_add(struct handed_out *handed_out, uint64_t id)
{
	handed_out->ids[handed_out->n++] = id;
	if (handed_out->n == FEW)
		handed_out_flush(handed_out);
}

/* Of chunks that recovery did not find, the state is not kept: all may have been handed out. */
static void record_all_handed_out(const struct file_call *call, const struct file *file)
{
	const struct file_missing *missing = file_missing(file);
	struct handed_out handed_out = {.journal = call->journal};

	EXTENTS_FOREACH (extent, &file->extents)
		if (atomic_load(&extent->span.chunk->handed_out) != CHUNK_KEPT)
			handed_out_add(&handed_out, extent->span.chunk->id);
	for (uint32_t i = 0; missing && i < missing->n_extents; i++)
		if (missing->extents[i].bytes >= CHUNK_ALIGN)
			handed_out_add(&handed_out, journal_chunk_id(missing->extents[i].chunk));
	handed_out_flush(&handed_out);
}

/* Records the extents that recovery did not find, which another daemon may find. */
static void record_missing(const struct file_call *call, const struct file *file,
			   const struct file_missing *missing)
{
	struct journal_file image = file_image(call, file, missing->n_extents);
	struct journal_piece piece = more_piece(&image, missing->extents);

	piece.kind = JOURNAL_FILE;
	journal_append(call->journal, &piece, 1, NULL);
}

static void record_all(const struct file_call *call, const struct file *file)
{
	const struct file_missing *missing = file_missing(file);

	if (missing) {
		record_missing(call, file, missing);
		return;
	}
	AUTO_FREE struct journal_extent *extents = file_record_extents(&file->extents);
	struct journal_file image = file_image(call, file, file->extents.count);
	struct journal_piece piece = more_piece(&image, extents);

	piece.kind = JOURNAL_FILE;
	/* A new file has the same state without a record. */
	if (!image.n_extents && !image.object && !image.tail_shift)
		return;
	if (image.n_extents && !extents)
		journal_fail(call->journal, image.n_extents * sizeof(*extents));
	else
		journal_append(call->journal, &piece, 1, NULL);
}

/* lock: a host/ file's object can be created without layout_lock. */
void file_record_all(const struct file_call *call, struct file *file, pthread_mutex_t *lock)
{
	brlock_token token = brlock_read_lock(&file->layout_lock);

	pthread_mutex_lock(lock);
	record_all(call, file);
	record_all_handed_out(call, file);
	pthread_mutex_unlock(lock);
	brlock_read_unlock(&file->layout_lock, token);
}
