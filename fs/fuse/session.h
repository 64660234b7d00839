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

/* The functions of other folders that a session calls. No thread that serves requests calls start,
 * end or close; each of the three may be NULL. */
struct session_table {
	const struct fuse_lowlevel_ops *operations; /* all but init; outlives the session */
	/* Before the first request is served: 0, or -errno, which session_start returns. */
	int (*start)(struct fs *fs);
	/* A signal asked the daemon to end, and the mount is still there: requests that wait are to
	 * be answered, so that their processes can close their files. */
	void (*end)(struct fs *fs);
	/* All threads that served requests have ended; also called when start was not. */
	void (*close)(struct fs *fs);
};

/* All that comes before a mount: 0, or -errno after a line in the log. Where there is a mount whose
 * daemon is to be replaced this one is fit for it then, and has not touched it. Fills fs->can.
 * table is copied. */
int session_open(struct fs *fs, const struct session_table *table, struct session **session);
/* Whether there is such a mount. */
bool session_has_earlier_mount(const struct session *session);
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
