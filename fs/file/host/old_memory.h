/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* Old memory: the object of a file that moved from host/ to a GPU while readers with loose leases
 * may still have the object mapped. Old memory belongs to no file, but stays in the volume's
 * account until the last of these leases has ended, so that the free memory shown for host/ is
 * really available. */
#ifndef FS_FILE_HOST_OLD_MEMORY_H
#define FS_FILE_HOST_OLD_MEMORY_H

#include "fs/file/core/state.h"

/* layout_lock is held, exclusive. The file gives up its object in host/: returns whether the bytes
 * stay in the volume's account. */
bool file_keep_old_object(const struct file *file, struct volume *volume, uint64_t bytes);

/* Ends a loose lease; frees the file's old memory with the last loose lease. May wait for the
 * layout_lock. */
void file_old_memory_end(struct file *file);

#endif
