/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* Where a thread gets requests from /dev/fuse and answers them: a device of its own on the mount's
 * connection, as the kernel keeps the requests under way by device, behind a lock. */
#ifndef FS_FUSE_CHANNEL_H
#define FS_FUSE_CHANNEL_H

#define FUSE_USE_VERSION 318
#include <fuse_lowlevel.h>
#include <sys/types.h>

struct fs;

/* Has the session's replies go where their requests came from, and notes in fs->can.clone_fd
 * whether threads can have devices of their own, in busy_poll whether they look before they sleep.
 * After the mount, before any thread serves it.
 * libfuse's log function is to be set again. */
void channel_prepare(struct fs *fs, struct fuse_session *fuse);

/* Opens the calling thread's device, which has a number among its like: the fd, which is the
 * caller's to close once nobody will answer what came through it any more, or -1 where the thread
 * shares the session's. The keeper, where there is one, holds it: with the last descriptor of a
 * device the kernel ends the requests under way there. */
int channel_open(struct fs *fs, struct fuse_session *fuse, unsigned number);

/* A request is answered through the device that it came from. For one that another thread is to
 * answer: the device of the thread that has it now, and what that thread says before it answers. */
int channel_current(void);
void channel_answer_for(int channel);

/* As read(2). Where there are processors for it, the thread looks for a request for some time
 * before it sleeps: waking it up can take longer than the request. */
ssize_t channel_read(struct fs *fs, struct fuse_session *fuse, void *to, size_t bytes);

#endif
