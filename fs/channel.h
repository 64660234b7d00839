/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* Where a thread gets requests from /dev/fuse and answers them: a device of its own on the mount's
 * connection, as the kernel keeps the requests under way by device, behind a lock. */
#ifndef FS_CHANNEL_H
#define FS_CHANNEL_H

#define FUSE_USE_VERSION 318
#include <fuse_lowlevel.h>
#include <sys/types.h>

struct fs;

/* Has the session's replies go where their requests came from, and notes in fs->can.clone_fd
 * whether threads can have devices of their own. After the mount, before any thread serves it.
 * libfuse's log function is to be set again. */
void channel_prepare(struct fs *fs, struct fuse_session *fuse);

/* Opens the calling thread's device. Where it cannot have one it shares the session's. */
void channel_open(struct fs *fs, struct fuse_session *fuse);
void channel_close(void);

/* As read(2). */
ssize_t channel_read(struct fuse_session *fuse, void *to, size_t bytes);

#endif
