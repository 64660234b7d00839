/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* The files that this process reads and writes, and the window through which it does so directly: a
 * lease and a mapping of all of it. Slots are static and used again, so one that is looked at
 * without its lock is at worst another file's, and is seen to be under the lock.
 *
 * Nothing that is remembered of a descriptor is believed: programs close and replace them in ways
 * that cannot be seen, so every access asks the kernel which file the descriptor is. */
#ifndef CLIENT_PRELOAD_SLOT_H
#define CLIENT_PRELOAD_SLOT_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "client/preload/access.h"
#include "client/preload/identity.h"

struct slot {
	/* For reading: the window is used. For writing: what follows changes. */
	pthread_rwlock_t lock;
	struct slot_identity identity; /* inode 0: free */
	gpumem *file;		       /* NULL: no window */
	char *base;
	size_t bytes; /* mapped, from offset 0 */
	bool writable;
	enum access_kind kind; /* ACCESS_NONE: not known yet */
	bool refused;	       /* no window ever, because of why */
	enum stats_left why;
	/* Under no lock. */
	atomic_uint descriptors;      /* how many are known */
	atomic_uint_fast64_t size;    /* of the file, at least: it cannot shrink while leased */
	atomic_uint_fast64_t reach;   /* what the kernel moves below this needs no other window */
	atomic_uint_fast64_t used;    /* bytes by the kernel; small calls count for more */
	atomic_uint_fast64_t wanted;  /* the use that is worth the next attempt at a window */
	atomic_int_fast64_t written;  /* the tick of the last change of mtime; 0: long ago */
	atomic_int_fast64_t accessed; /* the same for atime */
};

void slots_start(void);

/* The slot of a descriptor: NULL for all that are not files that may be gpumemfs's. */
struct slot *slot_of(int fd);
/* The slot's lock for reading, and the descriptor is that file: or false, with nothing held. */
bool slot_enter(struct slot *slot, int fd);
void slot_leave(struct slot *slot);

/* The kernel has moved bytes: a window is opened, or follows the file's growth, when it is worth
 * it. end: where in the file the bytes ended. */
void slot_used(struct slot *slot, int fd, uint64_t bytes, uint64_t end);

/* Before a descriptor is closed or replaced. The last one takes the window along: while there is a
 * lease, memory that was taken ahead of the end is not given back. */
void slot_closing(int fd);
/* A descriptor has come into being. */
void slot_opened(int fd);

/* Which regular file a descriptor is, as the kernel has it, without asking the daemon. */
bool slot_identify(int fd, struct slot_identity *identity);
/* Ends the window of a file, or (identity NULL) all: whether there was one. */
bool slots_yield(const struct slot_identity *identity);
/* From now on the page cache is in play for this file: no windows. */
void slots_refuse(const struct slot_identity *identity);
/* Somebody has set the file's times: the next access moves them again. */
void slots_times_set(void);

/* Around fork. */
void slots_lock(void);
void slots_unlock(void);
void slots_forked(void);

#endif
