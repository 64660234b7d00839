/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* The daemon's end of the line to its keeper, the process that holds what must outlive a daemon and
 * starts the next one. A NULL keep is a daemon without: nothing is held then, and every call does
 * nothing. Thread-safe. */
#ifndef FS_KEEPER_FDSTORE_H
#define FS_KEEPER_FDSTORE_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "fs/keeper/fd_table.h"

struct fdstore;

/* What is held: the upper byte of an id, over a number that means something within its kind. */
#define FDSTORE_NUMBER_BITS FD_TABLE_KIND_SHIFT

enum fdstore_kind {
	FDSTORE_FUSE = 1, /* enum fdstore_fuse */
	FDSTORE_CLONE,	  /* by worker thread: its /dev/fuse */
	FDSTORE_JOURNAL,  /* the journal's areas */
	FDSTORE_CHUNK,	  /* memory of a device, by chunk id */
	FDSTORE_HOST,	  /* objects of host/, by inode number */
	FDSTORE_SOCKET,	  /* enum fdstore_share */
};

/* Numbers of FDSTORE_FUSE: what belongs to the mount itself. */
enum fdstore_fuse {
	FDSTORE_FUSE_DEVICE,   /* the mount's /dev/fuse */
	FDSTORE_FUSE_INIT,     /* memory: fuse_init.h */
	FDSTORE_FUSE_SETTINGS, /* memory: fs/recovery/settings.h */
	FDSTORE_FUSE_DAEMON,   /* the pidfd of the daemon that serves; known to the keeper alone */
};

/* Numbers of FDSTORE_SOCKET: the sharing socket, its directory, and its connections. */
enum fdstore_share {
	FDSTORE_SHARE_LISTEN,
	FDSTORE_SHARE_DIR,
	FDSTORE_SHARE_MEMORY,		/* memory: fs/share/memory.h */
	FDSTORE_SHARE_CONNECTIONS = 16, /* and above */
};

static inline uint64_t fdstore_id(enum fdstore_kind kind, uint64_t number)
{
	return (uint64_t)kind << FD_TABLE_KIND_SHIFT | number;
}

static inline enum fdstore_kind fdstore_kind_of(uint64_t id)
{
	return (enum fdstore_kind)(id >> FD_TABLE_KIND_SHIFT);
}

static inline uint64_t fdstore_number(uint64_t id)
{
	return id & ((1ULL << FD_TABLE_KIND_SHIFT) - 1);
}

/* From when it returns a duplicate of fd is the keeper's, whatever becomes of this process: 0, or
 * -EMFILE where the keeper cannot hold more, or another -errno. What was held under the id is
 * closed. */
int fdstore_hold(struct fdstore *fdstore, uint64_t id, int fd);
/* The keeper closes it, in order with the other calls but not at once. */
void fdstore_drop(struct fdstore *fdstore, uint64_t id);
/* When it returns, the keeper has closed what was dropped before. */
void fdstore_wait_idle(struct fdstore *fdstore);
/* The fd held under id, a duplicate that is the caller's; the keeper keeps its own. -ENOENT. */
int fdstore_take(struct fdstore *fdstore, uint64_t id);
/* Calls each for all that is held, by id. The fd is lent. What it returns but 0 ends the walk
 * and is returned. */
int fdstore_each(struct fdstore *fdstore, int (*each)(uint64_t id, int fd, void *arg), void *arg);
/* The same for one kind alone. */
int fdstore_each_of(struct fdstore *fdstore, enum fdstore_kind kind,
		    int (*each)(uint64_t id, int fd, void *arg), void *arg);

/* The descriptors that outlive a daemon, as the journal and the recovery see them: kept by a
 * keeper, or by a test. hold, drop and take are as fdstore_hold and so on; each walks as
 * fdstore_each. */
struct fdstore_ops {
	void *of; /* the first argument of each function */
	int (*hold)(void *of, uint64_t id, int fd);
	void (*drop)(void *of, uint64_t id);
	int (*take)(void *of, uint64_t id);
	int (*each)(void *of, int (*each)(uint64_t id, int fd, void *arg), void *arg);
};
/* With fdstore behind them. */
struct fdstore_ops fdstore_ops(struct fdstore *fdstore);

/* At start: the line that the keeper gave this process, and the command line to start another
 * keeper with should this one go. 0, or -errno after a line in the log. */
int fdstore_open(int ipc, char **argv, struct fdstore **fdstore);
/* This daemon could serve the mount: returns once it may, when nothing is left of the one before.
 * 0, or -errno after a line in the log. */
int fdstore_wait(struct fdstore *fdstore);
struct timeline;
/* Then: when that one ended, as far as the keeper knows. */
void fdstore_log_end(const struct fdstore *fdstore, struct timeline *timeline);
/* Then: this daemon has all that is held, and needs no keeper any more to find it. 0, or -errno
 * after a line in the log. */
int fdstore_gather(struct fdstore *fdstore);
/* Requests are being served. */
void fdstore_ready(struct fdstore *fdstore);
/* This daemon ends on purpose, and with it all that is held. */
void fdstore_end(struct fdstore *fdstore);
/* This daemon does not go on, but what is held stays: no call does anything from here on. */
void fdstore_leave(struct fdstore *fdstore);
void fdstore_close(struct fdstore *fdstore);

/* How many daemons there were for this mount, this one included; 1 without a keeper. */
uint64_t fdstore_generation(const struct fdstore *fdstore);
/* By which numbers that one daemon gives out are set apart from another's. */
#define FDSTORE_GENERATION_SHIFT 40
/* The keeper's process; 0: there is none any more. */
pid_t fdstore_keeper(const struct fdstore *fdstore);
unsigned fdstore_flags(const struct fdstore *fdstore); /* enum ipc_flags; 0 without a keeper */
/* The UUID of the GPU that this daemon was started for, as it works in the one that serves no more;
 * empty: it was started as any other. */
const char *fdstore_wanted(const struct fdstore *fdstore);
/* Asks for a daemon to take over, if that GPU works there. 0, -ENOTSUP where nobody can be asked.
 */
int fdstore_request_replacement(struct fdstore *fdstore, const char *uuid);
/* -1, or what polls POLLRDHUP when the keeper has gone, which fdstore_replace then replaces: a new
 * one is started and given all that is held. 0, or -errno after a line in the log; fdstore_fd is -1
 * then.
 */
int fdstore_fd(const struct fdstore *fdstore);
int fdstore_replace(struct fdstore *fdstore);

#endif
