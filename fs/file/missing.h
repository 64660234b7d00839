/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* Files whose memory, or some of it, a daemon could not bring back: all that needs bytes is -EIO,
 * until the file is emptied or gone. The journal goes on having what it had of them, so that
 * another daemon may find the memory; but where that made no sense the file stays as it is. */
#ifndef FS_FILE_MISSING_H
#define FS_FILE_MISSING_H

#include <stdbool.h>
#include <stdint.h>

#include "fs/file/file.h"
#include "fs/journal/format.h"

/* What the journal has of it; allocated. */
struct file_missing {
	uint32_t n_extents;
	struct journal_extent extents[];
};

bool file_is_missing(const struct file *file);
/* The bytes are there again: none. Guard held, exclusive. */
void file_missing_empty(struct file *file, const struct file_call *call);

#endif
