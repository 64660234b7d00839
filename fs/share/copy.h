/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* Private copies, for readers of a file whose memory they are not trusted with. A copy is a file
 * without a name and of the reader's, and so is charged, counted and recovered as any file is. */
#ifndef FS_SHARE_COPY_H
#define FS_SHARE_COPY_H

#include <sys/types.h>

struct fs;
struct inode;

/* A copy of the file as it is now, on its GPU, with a reference; the memory goes with the last
 * reference, or with the last lease. -ENOTSUP: the file is in host/, where readers get its object.
 * -ENOSPC, -EDQUOT: of the GPU, and of its directory's quota, before any of it is copied. */
int share_copy(struct fs *fs, struct inode *from, uid_t uid, struct inode **copy);

#endif
