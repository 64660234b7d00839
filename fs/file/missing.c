/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
#include "fs/file/missing.h"

#include <stdlib.h>

#include "fs/file/internal.h"
#include "fs/file/record.h"
#include "fs/journal/journal.h"

bool file_is_missing(const struct file *file)
{
	return file_missing(file) ||
	       atomic_load_explicit(&file->fields->missing, memory_order_relaxed);
}

static bool has_chunk(const struct file *file, uint64_t id)
{
	EXTENTS_FOREACH (extent, &file->extents)
		if (extent->span.chunk->id == id)
			return true;
	return false;
}

/* Chunks that nobody found are nobody's from now on; those that others may have parts of are left
 * to the next daemon. */
static void drop_chunks(struct file *file, const struct file_call *call,
			const struct file_missing *missing)
{
	for (uint32_t i = 0; i < missing->n_extents; i++)
		if (missing->extents[i].bytes >= CHUNK_ALIGN &&
		    !has_chunk(file, missing->extents[i].chunk))
			journal_drop(call->journal, FDSTORE_CHUNK, missing->extents[i].chunk);
}

void file_missing_empty(struct file *file, const struct file_call *call)
{
	struct file_missing *missing = file_missing(file);

	if (file_is_device(file)) {
		file_record_cut(call, 0, UINT64_MAX);
	} else if (atomic_load(&file->fd) < 0) {
		file_set_object_id(file, 0);
		file_record_object(call, file);
	}
	atomic_store(&file->fields->missing, 0);
	if (!missing)
		return;
	drop_chunks(file, call, missing);
	atomic_store(&file->missing, NULL);
	free(missing);
}
