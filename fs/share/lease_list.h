/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* All leases of the mount in the order of their start, for those who list them: a reader takes a
 * few at a time and keeps its place in the list, so that no reader keeps the lock for longer than
 * that. Sums are counted as leases come and go. Thread-safe. */
#ifndef FS_SHARE_LEASE_LIST_H
#define FS_SHARE_LEASE_LIST_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "backend/backend.h"
#include "common/protocol.h"

struct inode;
struct viewer;

/* Part of each lease; the list's own while the lease is in it. */
struct lease_entry {
	struct lease_entry *previous, *next;
	uint64_t sequence;   /* ascending in the list; 0: a reader's place */
	struct inode *inode; /* the lease has a reference, and of the next */
	struct inode *file;  /* inode, or the file of which it is a private copy */
	pid_t pid;
	uid_t uid;
	enum gpumem_access access;
	bool private;  /* a copy for this lease alone */
	int64_t since; /* CLOCK_REALTIME, seconds */
	unsigned volume;
	uint64_t bytes; /* as counted in the sums */
};

struct lease_sums {
	uint64_t leases, bytes;
};

struct lease_list {
	pthread_mutex_t lock; /* of all below; before an inode's lock */
	struct lease_entry *first;
	uint64_t last_sequence;
	struct lease_sums sums[BACKEND_DEVICES_MAX + 1]; /* by volume */
};

/* -ENOMEM. */
int lease_list_new(struct lease_list **made);
void lease_list_free(struct lease_list *list);

/* All down to since but turn is filled in. A leased file stays on its volume. */
void lease_list_add(struct lease_list *list, struct lease_entry *entry);
void lease_list_remove(struct lease_list *list, struct lease_entry *entry);
/* Takes those of an inode's leases out of the list that began before a time (CLOCK_REALTIME,
 * seconds) and for which drop, under the list's lock, says so: how many. */
uint64_t lease_list_drop(struct lease_list *list, const struct inode *inode, int64_t before,
			 bool (*drop)(void *context, struct lease_entry *entry), void *context);
/* The file's size was told to the lease's holder again. */
void lease_list_measure(struct lease_list *list, struct lease_entry *entry);
struct lease_sums lease_list_sums(struct lease_list *list, unsigned volume);

/* A reader's place in the list; zeroed at first, and ended in any case. */
struct lease_place {
	struct lease_entry entry;
	uint64_t end; /* leases that began later are not read */
};

/* The next leases that the viewer may see, of those that were there at the first call: how many, at
 * most room; 0 at the end. Each inode and file with a reference for the caller. */
unsigned lease_list_next(struct lease_list *list, struct lease_place *place,
			 const struct viewer *viewer, struct lease_entry *found, unsigned room);
void lease_list_leave(struct lease_list *list, struct lease_place *place);

#endif
