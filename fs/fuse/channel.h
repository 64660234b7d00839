/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* A worker thread's connection to the kernel. Each worker reads and answers requests through a
 * /dev/fuse of its own, cloned from the mount's connection, because the kernel keeps the requests
 * in progress for each device, behind a lock. */
#ifndef FS_FUSE_CHANNEL_H
#define FS_FUSE_CHANNEL_H

#include <fuse_lowlevel.h>
#include <stdbool.h>
#include <sys/types.h>

struct fs;

/* Decides whether threads can have devices of their own (fs->can.clone_fd) and whether threads poll
 * before sleeping (fs->can.busy_poll), and lets replies go to the device that the request came
 * from. Called after the mount, before any thread serves requests. Afterwards libfuse's log
 * function must be set again. */
void channel_prepare(struct fs *fs, struct fuse_session *fuse);

/* Opens the device of the calling thread, which has this number among the workers. Returns the
 * descriptor, which the caller closes once no request of the device will be answered any more, or
 * -1 if the thread shares the session's device. A keeper, if there is one, holds the device: when
 * the last descriptor of a device closes, the kernel ends the requests in progress. */
int channel_open(struct fs *fs, struct fuse_session *fuse, unsigned number);

/* A request must be answered through the device that the request came from. If another thread is to
 * answer: the worker calls channel_current and keeps the result with the request, and the other
 * thread calls channel_answer_for before the reply. */
int channel_current(void);
void channel_answer_for(int channel);

/* As read(2). If there are enough processors, the thread polls for some time before sleeping: to
 * wake a thread can take longer than the request. */
ssize_t channel_read(struct fs *fs, struct fuse_session *fuse, void *to, size_t bytes);
/* Whether the calling thread counts as one that serves or polls; channel_read sets this. */
void channel_set_awake(struct fs *fs, bool awake);

#endif
