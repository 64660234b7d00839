/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* Files whose memory, in whole or in part, a restarted daemon could not bring back. Every operation
 * that needs the bytes of such a file is -EIO until the file is emptied or removed. The journal
 * keeps what the journal had of the file, so that a later daemon may find the memory; but a file
 * whose records made no sense stays without memory for good. */
#ifndef FS_FILE_MISSING_H
#define FS_FILE_MISSING_H

#include <stdbool.h>
#include <stdint.h>

#include "fs/file/file.h"
#include "fs/journal/format.h"

/* The extents that the journal has of the file; allocated. */
struct file_missing {
	uint32_t n_extents;
	struct journal_extent extents[];
};

bool file_is_missing(const struct file *file);

/* Restoring: keeps a copy of the file's extents for the journal, before the extents that were not
 * found are taken out of file->extents. The first found of them have a chunk, all others only a
 * chunk's number in place of the pointer. 0 or -ENOMEM. */
int file_missing_note(struct file *file, uint32_t found);

/* Restoring: marks the file, whose memory could not be had for this error. -EUCLEAN: for good,
 * because other files may get the memory. */
void file_missing_mark(struct file *file, int error);

/* The file is without bytes again, and so nothing of the file is missing. Guard held, exclusive. */
void file_missing_empty(struct file *file, const struct file_call *call);

#endif
