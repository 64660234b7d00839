/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* Memory that a file gave up while processes whose leases did not keep it may have it mapped. It is
 * no file's, and its volume has it until the last of those leases has ended, so that what a GPU or
 * host/ is said to have free can be had. */
#ifndef FS_FILE_OLD_MEMORY_H
#define FS_FILE_OLD_MEMORY_H

#include "fs/file/internal.h"

/* Guard held exclusive. Takes out of extents, which the file does not have any more, what sharers
 * may have mapped: how many bytes. The rest is the caller's to give back. */
uint64_t file_keep_old_memory(const struct file *file, struct volume *volume,
			      struct extents *extents);
/* Guard held exclusive. The object of a file in host/ is not the file's any more: whether its bytes
 * stay on the volume's account. */
bool file_keep_old_object(const struct file *file, struct volume *volume, uint64_t bytes);

/* A loose lease has ended: gives back what the last one leaves. May wait for the file. */
void file_old_memory_end(struct file *file);

#endif
