/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
#include "fs/file/core/missing.h"

#include <errno.h>
#include <stdlib.h>

#include "fs/file/core/state.h"
#include "fs/journal/journal.h"

bool file_is_missing(const struct file *file)
{
	return file_missing(file) ||
	       atomic_load_explicit(&file->fields->missing, memory_order_relaxed);
}

void file_missing_mark(struct file *file, int error)
{
	if (error == -EUCLEAN)
		atomic_store(&file->fields->missing, MISSING_LOST);
	if (atomic_load(&file->fields->size) > FILE_SIZE_MAX)
		atomic_store(&file->fields->size, 0);
}

static bool file_has_chunk(const struct file *file, uint64_t chunk)
{
	EXTENTS_FOREACH (extent, &file->extents)
		if (journal_chunk(extent->span.chunk) == chunk)
			return true;
	return false;
}

/* Drops the held descriptors of whole chunks that were not found. Chunks that other files may share
 * are left to the next daemon. */
static void missing_chunks_drop(struct file *file, const struct file_call *call,
				const struct file_missing *missing)
{
	for (uint32_t i = 0; i < missing->n_extents; i++)
		if (missing->extents[i].bytes >= CHUNK_ALIGN &&
		    !file_has_chunk(file, missing->extents[i].chunk))
			journal_drop(call->journal, FDSTORE_CHUNK,
				     journal_chunk_id(missing->extents[i].chunk));
}

void file_missing_empty(struct file *file, const struct file_call *call)
{
	struct file_missing *missing = file_missing(file);

	atomic_store(&file->fields->missing, 0);
	if (!missing)
		return;
	missing_chunks_drop(file, call, missing);
	atomic_store(&file->journaled.missing, NULL);
	free(missing);
}
