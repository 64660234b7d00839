/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* Files in gpuN/ whose memory another program allocated. Such a file is read, written, leased and
 * copied as any other, and never gets other memory: its size stays, and its memory stays where it
 * is. The caller holds layout_lock as for the other operations of a kind. */
#ifndef FS_FILE_DEVICE_FOREIGN_H
#define FS_FILE_DEVICE_FOREIGN_H

#include "fs/file/core/adoption.h"
#include "fs/file/core/kind.h"

extern const struct file_kind foreign_kind;

/* Exclusive. As file_adopt. */
int foreign_adopt(struct file *file, const struct file_call *call,
		  const struct file_adoption *from);

/* Whether the file ends with the program: kept in the journal's fields, of which the file uses
 * reserved for nothing else. */
#define FOREIGN_ENDS 1
static inline bool foreign_ends(const struct file *file)
{
	return atomic_load(&file->fields->reserved) == FOREIGN_ENDS;
}

/* The operations that would change the layout: 0 where nothing changes, else -EFBIG for bytes
 * behind the end, -EPERM for another size and -EOPNOTSUPP for holes. */
int foreign_check_room(const struct file *file, const struct file_call *call, uint64_t from,
		       uint64_t to);
int foreign_make_room(struct file *file, const struct file_call *call, uint64_t from, uint64_t to);
int foreign_truncate(struct file *file, const struct file_call *call, uint64_t size);
int foreign_allocate(struct file *file, const struct file_call *call, int mode, uint64_t from,
		     uint64_t to);
bool foreign_has_ahead(struct file *file, const struct file_call *call);
void foreign_trim(struct file *file, const struct file_call *call);
int foreign_make_exportable(struct file *file, const struct file_call *call);
bool foreign_is_exportable(struct file *file, const struct file_call *call);

#endif
