/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* Private copies of a file, for readers that may not have the file's memory. A copy is a file
 * without a name, owned by the reader, and is therefore charged, counted and recovered like any
 * file. */
#ifndef FS_SHARE_COPY_H
#define FS_SHARE_COPY_H

#include <sys/types.h>

struct fs;
struct inode;

/* A copy of the file as it is now, on the file's GPU, with a reference; the memory is freed with
 * the last reference or the last lease. -ENOTSUP: the file is in host/, where readers get the
 * shared-memory object. -ENOSPC or -EDQUOT, before a byte is copied: the GPU, or the quota of the
 * GPU's directory, has no room. */
int share_copy(struct fs *fs, struct inode *from, uid_t uid, struct inode **copy);

#endif
