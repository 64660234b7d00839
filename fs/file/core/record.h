/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* Journal records of a file's memory: a function for each kind of change. The journal and the inode
 * number come with the struct file_call; without a journal the functions do nothing.
 *
 * The caller holds the file's layout_lock, exclusive. Added memory is recorded after the memory has
 * its content; removed memory is recorded before another file can get the memory. */
#ifndef FS_FILE_CORE_RECORD_H
#define FS_FILE_CORE_RECORD_H

#include <pthread.h>
#include <stdint.h>

#include "fs/extents/extents.h"
#include "fs/file/core/call.h"
#include "fs/journal/journal.h"

/* The file has the extents of added, besides its other memory. */
void file_record_added(const struct file_call *call, const struct file *file,
		       const struct extents *added);
/* The file has no memory in [from, to) any more. */
void file_record_cut(const struct file_call *call, uint64_t from, uint64_t to);
/* The file has new_extents in place of its memory in [from, to): a single record for both
 * changes. */
void file_record_replaced(const struct file_call *call, const struct file *file, uint64_t from,
			  uint64_t to, const struct extents *new_extents);
/* The file has its present object (host/), or no object. */
void file_record_object(const struct file_call *call, const struct file *file);
/* Other processes may have the chunks with these ids. No lock is needed. */
void file_record_handed_out(struct journal *journal, const uint64_t *chunks, uint32_t n_chunks);
/* All memory of the file, for a checkpoint. The caller holds no lock. The function takes
 * layout_lock, shared, and then lock, which callers of file_object hold. */
void file_record_all(const struct file_call *call, struct file *file, pthread_mutex_t *lock);

/* After a record that the file has the extents; those above call it. */
static inline void file_recorded(const struct file_call *call, const struct extents *extents)
{
	if (call->holds)
		call->holds->recorded(call->quota_owner, extents);
}

/* Extents in the journal's format, extents->count of them, in memory that the caller frees. NULL:
 * out of memory, or there are no extents. */
struct journal_extent *file_record_extents(const struct extents *extents);

#endif
