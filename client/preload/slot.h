/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* Slots: the files that this process reads and writes. A slot has the file's window, which is a
 * lease and a mapping of the whole file. Slots are static and reused: a thread that reads a slot
 * without the lock may see another file's slot, and notices so under the lock.
 *
 * Programs close and replace descriptors in ways that the library cannot see. So every access asks
 * the kernel for the descriptor's file, and no cached knowledge of a descriptor is trusted. */
#ifndef CLIENT_PRELOAD_SLOT_H
#define CLIENT_PRELOAD_SLOT_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "client/preload/core/access.h"
#include "client/preload/core/identity.h"

struct slot {
	/* Read lock: the window is used. Write lock: the members below change. */
	pthread_rwlock_t lock;
	struct slot_identity identity; /* inode 0: free */
	gpumem *file;		       /* NULL: no window */
	char *base;
	size_t bytes; /* mapped, from offset 0 */
	bool writable;
	bool refused;		/* the file never gets a window */
	enum stats_left reason; /* of refused */
	/* Without a lock. */
	_Atomic enum access_kind kind; /* ACCESS_NONE: not known yet */
	atomic_uint descriptors;       /* known descriptors of the file */
	atomic_uint_fast64_t size; /* lower bound of the file's size: a leased file cannot shrink */
	atomic_uint_fast64_t reach; /* kernel calls below this offset need no other window */
	atomic_uint_fast64_t used;  /* bytes that the kernel moved; small calls count for more */
	atomic_uint_fast64_t next_attempt; /* the value of used for the next attempt at a window */
	atomic_int_fast64_t written;	   /* the tick of the last change of mtime; 0: long ago */
	atomic_int_fast64_t accessed;	   /* the same for atime */
};

void slots_start(void);

/* The slot of a descriptor; NULL for a file that cannot be on gpumemfs. */
struct slot *slot_of(int fd);
/* Takes the slot's read lock, if the descriptor still refers to the slot's file. False: no lock is
 * held. */
bool slot_enter(struct slot *slot, int fd);
void slot_leave(struct slot *slot);
/* Under that lock: whether the descriptor refers to the slot's file. */
bool slot_is_of(const struct slot *slot, int fd);

/* Finds the kind of the slot's mount ahead of a large call, which is worth that. */
void slot_look(struct slot *slot, int fd);

/* Counts bytes that the kernel moved, up to the offset end, and opens or extends the window if the
 * use justifies the cost. */
void slot_used(struct slot *slot, int fd, uint64_t bytes, uint64_t end);

/* Call before a descriptor is closed or replaced. The window ends with the last descriptor, because
 * the daemon frees memory ahead of the file's end only after the last lease. */
void slot_closing(int fd);
/* A descriptor was opened. */
void slot_opened(int fd);

/* Ends the window of a file, or with identity NULL all windows. Whether there was a window. */
bool slots_yield(const struct slot_identity *identity);
/* The page cache is used for this file from now on: no more windows. */
void slots_refuse(const struct slot_identity *identity);
/* The program has set times of a file: the next access updates the times again. */
void slots_times_set(void);

/* Around fork(2). */
void slots_lock(void);
void slots_unlock(void);
void slots_forked(void);

#endif
