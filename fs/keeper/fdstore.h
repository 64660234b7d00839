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

struct keep;

/* What is held: the upper byte of an id, over a number that means something within its kind. */
#define KEEP_NUMBER_BITS KEPT_KIND_SHIFT

enum keep_kind {
	KEEP_FUSE = 1, /* 0: the mount's /dev/fuse; 1: what was agreed on with the kernel */
	KEEP_CLONE,    /* by worker thread: its /dev/fuse */
	KEEP_JOURNAL,  /* the journal's areas */
	KEEP_CHUNK,    /* memory of a device, by chunk id */
	KEEP_HOST,     /* objects of host/, by inode number */
	KEEP_SOCKET,   /* the sharing socket and what is connected to it */
};

static inline uint64_t keep_id(enum keep_kind kind, uint64_t number)
{
	return (uint64_t)kind << KEPT_KIND_SHIFT | number;
}

static inline enum keep_kind keep_kind_of(uint64_t id)
{
	return (enum keep_kind)(id >> KEPT_KIND_SHIFT);
}

static inline uint64_t keep_number(uint64_t id)
{
	return id & ((1ULL << KEPT_KIND_SHIFT) - 1);
}

/* From when it returns a duplicate of fd is the keeper's, whatever becomes of this process: 0, or
 * -EMFILE where the keeper cannot hold more, or another -errno. What was held under the id is
 * closed. */
int keep_hold(struct keep *keep, uint64_t id, int fd);
/* The keeper closes it, in order with the other calls but not at once. */
void keep_drop(struct keep *keep, uint64_t id);
/* When it returns, the keeper has closed what was dropped before. */
void keep_settle(struct keep *keep);
/* The fd held under id, a duplicate that is the caller's; the keeper keeps its own. -ENOENT. */
int keep_take(struct keep *keep, uint64_t id);
/* Calls each for all that is held, by id. The fd is lent. What it returns but 0 ends the walk
 * and is returned. */
int keep_each(struct keep *keep, int (*each)(uint64_t id, int fd, void *arg), void *arg);
/* The same for one kind alone. */
int keep_each_of(struct keep *keep, enum keep_kind kind,
		 int (*each)(uint64_t id, int fd, void *arg), void *arg);

/* At start: the line that the keeper gave this process, and the command line to start another
 * keeper with should this one go. 0, or -errno after a line in the log. */
int keep_open(int line, char **argv, struct keep **keep);
/* This daemon could serve the mount: returns once it may, when nothing is left of the one before.
 * 0, or -errno after a line in the log. */
int keep_wait(struct keep *keep);
struct timeline;
/* Then: when that one ended, as far as the keeper knows. */
void keep_tell_end(const struct keep *keep, struct timeline *timeline);
/* Then: this daemon has all that is held, and needs no keeper any more to find it. 0, or -errno
 * after a line in the log. */
int keep_gather(struct keep *keep);
/* Requests are being served. */
void keep_ready(struct keep *keep);
/* This daemon ends on purpose, and with it all that is held. */
void keep_end(struct keep *keep);
/* This daemon does not go on, but what is held stays: no call does anything from here on. */
void keep_leave(struct keep *keep);
void keep_close(struct keep *keep);

/* How many daemons there were for this mount, this one included; 1 without a keeper. */
uint64_t keep_turn(const struct keep *keep);
/* By which numbers that one daemon gives out are set apart from another's. */
#define KEEP_TURN_SHIFT 40
/* The keeper's process; 0: there is none any more. */
pid_t keep_keeper(const struct keep *keep);
unsigned keep_flags(const struct keep *keep); /* enum line_flags; 0 without a keeper */
/* The UUID of the GPU that this daemon was started for, as it works in the one that serves no more;
 * empty: it was started as any other. */
const char *keep_wanted(const struct keep *keep);
/* Asks for a daemon to take over, if that GPU works there. 0, -ENOTSUP where nobody can be asked.
 */
int keep_ask_renewal(struct keep *keep, const char *uuid);
/* -1, or what polls POLLRDHUP when the keeper has gone, which keep_renew then replaces: a new one
 * is started and given all that is held. 0, or -errno after a line in the log; keep_fd is -1 then.
 */
int keep_fd(const struct keep *keep);
int keep_renew(struct keep *keep);

#endif
