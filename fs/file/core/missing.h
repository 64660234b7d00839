/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* Files with memory that a restarted daemon could not restore, in whole or in part. All operations
 * that need the bytes of such a file are -EIO until the file is emptied or removed. The journal
 * keeps its records of the file, so that a later daemon may find the memory; but if the records
 * were inconsistent, the file never gets the memory back. */
#ifndef FS_FILE_CORE_MISSING_H
#define FS_FILE_CORE_MISSING_H

#include <stdbool.h>
#include <stdint.h>

#include "fs/file/core/call.h"
#include "fs/journal/format.h"

/* The extents that the journal has of the file; allocated. */
struct file_missing {
	uint32_t n_extents;
	struct journal_extent extents[];
};

bool file_is_missing(const struct file *file);

/* For recovery: marks a file whose memory could not be restored because of error. After -EUCLEAN
 * the memory is lost for good, because other files may get the memory. */
void file_missing_mark(struct file *file, int error);

/* The file is empty again, so no memory is missing. layout_lock is held, exclusive. */
void file_missing_empty(struct file *file, const struct file_call *call);

#endif
