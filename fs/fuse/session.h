/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* The mount and the threads that serve it. */
#ifndef FS_FUSE_SESSION_H
#define FS_FUSE_SESSION_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

struct fs;
struct fuse_lowlevel_ops;
struct session;

/* What can be known about the mountpoint before anything is started: 0, or -errno after a line on
 * the terminal (not there, no directory, mounted already). */
int session_check(const char *mountpoint);

/* Blocks the signals that end a mount, for this thread and those that it starts: before anything
 * that starts threads of its own (the CUDA driver does), for a signal goes to any thread that takes
 * it. */
void session_block_signals(void);

/* All that comes before a mount: 0, or -errno after a line in the log. Where there is a mount whose
 * daemon is to be replaced this one is fit for it then, and has not touched it. Fills fs->can.
 * table has the operations that answer the requests, all but init; the caller keeps the table until
 * session_close. */
int session_open(struct fs *fs, const struct fuse_lowlevel_ops *table, struct session **session);
/* Whether there is such a mount. */
bool session_is_taken(const struct session *session);
/* Mounts, or takes the mount over, and returns when requests are being served: 0, or -errno after a
 * line in the log, with nothing mounted but what was before. */
int session_start(struct session *session);

/* Returns when the mount is gone or a signal (SIGTERM, SIGINT, SIGHUP) asked for it to go; no
 * request is in flight any more. -EIO after a line in the log: the mount is there, but this daemon
 * cannot serve it. */
int session_wait(struct session *session);
/* The mount's device number, once there is a mount. */
dev_t session_device(const struct session *session);
/* An inode is not as the kernel knows it: times and sizes are to be asked for again. */
void session_changed(struct session *session, uint64_t ino);
void session_close(struct session *session);

#endif
