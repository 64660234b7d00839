/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* The daemon's side of the keeper. The keeper is a process that holds file descriptors for the next
 * daemon and starts that daemon. NULL stands for a daemon without a keeper: then no descriptor is
 * held, and calls have no effect. Thread-safe. */
#ifndef FS_KEEPER_FDSTORE_H
#define FS_KEEPER_FDSTORE_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "fs/keeper/fd_table.h"

struct fdstore;

/* An id is a kind, in the upper byte, and a number with a meaning within the kind. */
#define FDSTORE_NUMBER_BITS FD_TABLE_KIND_SHIFT

enum fdstore_kind {
	FDSTORE_FUSE = 1, /* enum fdstore_fuse */
	FDSTORE_CLONE,	  /* a worker's own /dev/fuse; number: of the thread */
	FDSTORE_JOURNAL,  /* number 0: the journal's memory */
	FDSTORE_CHUNK,	  /* device memory; number: the chunk's id */
	FDSTORE_HOST,	  /* objects of host/; number: the object's id */
	FDSTORE_SOCKET,	  /* enum fdstore_share */
	FDSTORE_PROCESS,  /* enum fdstore_process */
};

/* Numbers of FDSTORE_FUSE: descriptors of the mount itself. */
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
	FDSTORE_SHARE_MEMORY,		/* memory: fs/share/persist.h */
	FDSTORE_SHARE_CONNECTIONS = 16, /* and above: plus the connection's slot in that memory */
};

/* Numbers of FDSTORE_PROCESS: processes that received descriptors of memory. */
enum fdstore_process {
	FDSTORE_PROCESS_MEMORY, /* memory: fs/holders/held_store.h */
	FDSTORE_PROCESSES = 16, /* and above: pidfds, plus the process's slot in that memory */
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

/* When the call returns 0, the keeper has a duplicate of fd, independent of this process; the
 * descriptor held under the same id before is closed. -EMFILE: the keeper cannot hold more; or
 * another -errno. */
int fdstore_hold(struct fdstore *fdstore, uint64_t id, int fd);
/* Tells the keeper to close the descriptor. The keeper handles calls in order, but may close the
 * descriptor after this call has returned. */
void fdstore_drop(struct fdstore *fdstore, uint64_t id);
/* Returns when the keeper has closed all descriptors dropped before. */
void fdstore_wait_idle(struct fdstore *fdstore);
/* A duplicate of the descriptor held under id, which belongs to the caller; the keeper's descriptor
 * stays. -ENOENT. */
int fdstore_take(struct fdstore *fdstore, uint64_t id);
/* Calls visit for all descriptors held, in the order of their ids. The callback must not close fd.
 * A result of the callback other than 0 ends the walk and is returned. */
int fdstore_each(struct fdstore *fdstore, int (*visit)(uint64_t id, int fd, void *arg), void *arg);
/* Calls visit, as fdstore_each does, for the descriptors of a single kind. */
int fdstore_each_of(struct fdstore *fdstore, enum fdstore_kind kind,
		    int (*visit)(uint64_t id, int fd, void *arg), void *arg);

/* The descriptors that outlive a daemon, for the journal and the recovery: with a keeper behind the
 * functions, or a test. hold, drop and take are as fdstore_hold and so on; each is as fdstore_each.
 */
struct fdstore_ops {
	void *context; /* the first argument of each function */
	int (*hold)(void *context, uint64_t id, int fd);
	void (*drop)(void *context, uint64_t id);
	int (*take)(void *context, uint64_t id);
	int (*each)(void *context, int (*visit)(uint64_t id, int fd, void *arg), void *arg);
};
/* The functions above, of fdstore. */
struct fdstore_ops fdstore_ops(struct fdstore *fdstore);

/* At the daemon's start. ipc is the socket to the keeper; argv is the command line, used by
 * fdstore_replace for the next keeper. 0, or -errno after a line in the log. */
int fdstore_open(int ipc, char **argv, struct fdstore **fdstore);
/* Tells the keeper that this daemon could serve the mount, and returns when the previous daemon has
 * ended. 0, or -errno after a line in the log. */
int fdstore_wait(struct fdstore *fdstore);
struct timeline;
/* After fdstore_wait: notes in the timeline when the previous daemon ended, as far as the keeper
 * knows. */
void fdstore_log_end(const struct fdstore *fdstore, struct timeline *timeline);
/* After fdstore_wait: fetches a copy of every descriptor held, so that later calls do not ask the
 * keeper for them. 0, or -errno after a line in the log. */
int fdstore_gather(struct fdstore *fdstore);
/* Tells the keeper that this daemon serves requests. */
void fdstore_ready(struct fdstore *fdstore);
/* Tells the keeper that this daemon ends on purpose: all descriptors held are closed. */
void fdstore_end(struct fdstore *fdstore);
/* The keeper keeps all descriptors held, unless fdstore_end was called before. */
void fdstore_close(struct fdstore *fdstore);

/* The daemon's generation: the number of daemons of this mount so far; 1 without a keeper. */
uint64_t fdstore_generation(const struct fdstore *fdstore);
/* Shift of the generation in numbers that must differ between the daemons of a mount. */
#define FDSTORE_GENERATION_SHIFT 40
/* The keeper's process; 0: the keeper has ended. */
pid_t fdstore_keeper(const struct fdstore *fdstore);
unsigned fdstore_flags(const struct fdstore *fdstore); /* enum ipc_flags; 0 without a keeper */
/* The UUID of the GPU for which this daemon was started, because the GPU stopped working in the
 * serving daemon; empty: started for another reason. */
const char *fdstore_wanted(const struct fdstore *fdstore);
/* Asks the keeper to start a daemon that takes over if the GPU works there. 0, or -ENOTSUP without
 * a keeper that knows this message. */
int fdstore_request_replacement(struct fdstore *fdstore, const char *uuid);
/* The socket to the keeper; polls POLLRDHUP after the keeper's end; -1: no keeper. fdstore_replace
 * then starts another keeper and hands over all descriptors: 0, or -errno after a line in the log,
 * and fdstore_fd is -1 from then on. */
int fdstore_fd(const struct fdstore *fdstore);
int fdstore_replace(struct fdstore *fdstore);

#endif
