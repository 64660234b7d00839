/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* A session is the mount and the threads that serve its requests. */
#ifndef FS_FUSE_SESSION_H
#define FS_FUSE_SESSION_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "fs/core/fs.h"

struct fuse_lowlevel_ops;
struct inode;
struct options;
struct session;

static inline FS_STATE(struct session, session_of, FS_SESSION)

    /* Checks the mountpoint before anything is started: 0, or -errno after a line on the terminal
     * (no such directory, not a directory, mounted already). */
    int session_check(const char *mountpoint);
/* Changes the flags of a mount as options->mount_options says, and no other flag: 0, or -errno
 * after a line on the terminal. */
int session_remount(const struct options *options);

/* Blocks the signals that end a mount, for the calling thread and the threads started by the
 * calling thread. Call this before any library starts threads, as the CUDA driver does: the kernel
 * gives a signal to any thread that does not block the signal. */
void session_block_signals(void);

/* The functions of other folders that a session calls. start, end and close are called by no thread
 * that serves requests; each of the three may be NULL. */
struct session_table {
	/* The member init is not used. The table must outlive the session. */
	const struct fuse_lowlevel_ops *operations;
	/* Before the first request: 0, or -errno, which session_start returns. */
	int (*start)(struct fs *fs);
	/* A signal asked the daemon to end, and the mount is still there. Requests that wait must
	 * be answered now, so that their processes can close their files. */
	void (*end)(struct fs *fs);
	/* After the end of all threads that serve requests, even if start was not called. */
	void (*close)(struct fs *fs);
};

/* Prepares a session: 0, or -errno after a line in the log. If the mount of an earlier daemon still
 * exists, the session can serve this mount after session_start, but has not touched the mount yet.
 * Fills fs->can. table is copied. */
int session_open(struct fs *fs, const struct session_table *table, struct session **session);
/* Whether the mount of an earlier daemon still exists, for this session to serve. */
bool session_has_earlier_mount(const struct session *session);
/* Mounts, or starts to serve an earlier daemon's mount, and returns once requests are served: 0, or
 * -errno after a line in the log. After an error nothing is mounted, except an earlier daemon's
 * mount. */
int session_start(struct session *session);

/* Returns when the mount is gone or a signal (SIGTERM, SIGINT, SIGHUP) asked the daemon to end, and
 * no request is in progress any more. -EIO after a line in the log: the mount exists, but the
 * daemon cannot serve its requests. */
int session_wait(struct session *session);
/* The mount's device number, valid after session_start. */
dev_t session_device(const struct session *session);
/* Makes the kernel ask for the times and size of an inode again, after a change unknown to the
 * kernel. */
void session_changed(struct session *session, uint64_t ino);
/* A thread of a program caused this read of a file's bytes into the page cache. Any thread. */
void session_page_read(struct session *session, struct inode *inode, pid_t reader, uint64_t offset,
		       size_t bytes);
/* The last handle of a file is closed: frees the pages that mappings have filled, soon. Any thread;
 * the caller has a reference of the inode. */
void session_drop_pages(struct session *session, struct inode *inode);
void session_close(struct session *session);

#endif
