/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* The list of all leases of the mount in the order of their start, for the lists in .gpumem/. A
 * reader takes a few entries at a time and marks its place in the list, so that no reader holds the
 * lock for long. Sums for each volume change as leases come and go. Thread-safe. */
#ifndef FS_SHARE_LEASE_LIST_H
#define FS_SHARE_LEASE_LIST_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "backend/backend.h"
#include "common/protocol.h"
#include "fs/core/fs.h"

struct inode;
struct viewer;

/* Part of each lease; protected by the list's lock while the lease is in the list. */
struct lease_entry {
	struct lease_entry *previous, *next;
	uint64_t sequence;   /* ascending in the list; 0: a reader's place */
	struct inode *inode; /* the lease has a reference to inode and to file */
	struct inode *file;  /* inode, or the file that inode is a private copy of */
	pid_t pid;
	uid_t uid;
	enum gpumem_access access;
	bool private;  /* a copy for this lease alone */
	bool produces; /* the file is the holder's memory, and ends with the lease */
	int64_t since; /* clock_ns */
	unsigned volume;
	uint64_t bytes; /* as counted in the sums */
};

struct lease_sums {
	uint64_t leases, bytes;
};

struct lease_list {
	pthread_mutex_t lock; /* of all below; taken before an inode's lock */
	struct lease_entry *first;
	uint64_t last_sequence;
	struct lease_sums sums[BACKEND_DEVICES_MAX + 1]; /* by volume */
};

static inline FS_STATE(struct lease_list, lease_list_of, FS_LEASES)

    /* 0 or -ENOMEM. */
    int lease_list_new(struct lease_list **new_list);
void lease_list_free(struct lease_list *list);

/* The caller has filled in all members down to since, but for sequence. A leased file stays on its
 * volume. */
void lease_list_add(struct lease_list *list, struct lease_entry *entry);
void lease_list_remove(struct lease_list *list, struct lease_entry *entry);
/* Removes an inode's leases that began before cutoff (clock_ns) and for which drop returns true:
 * how many. drop is called under the list's lock. */
uint64_t lease_list_drop(struct lease_list *list, const struct inode *inode, int64_t cutoff,
			 bool (*drop)(void *context, struct lease_entry *entry), void *context);
/* Updates the sums after the holder of the lease was sent the file's size again. */
void lease_list_measure(struct lease_list *list, struct lease_entry *entry);
struct lease_sums lease_list_sums(struct lease_list *list, unsigned volume);

/* A reader's place in the list: zeroed at first, and always ended by lease_list_leave. */
struct lease_place {
	struct lease_entry entry;
	uint64_t end; /* leases that began later are not read */
};

/* The next leases that the viewer may see, of the leases that were there at the first call: how
 * many, at most room; 0 at the end. The caller gets a reference to each inode and file. */
unsigned lease_list_next(struct lease_list *list, struct lease_place *place,
			 const struct viewer *viewer, struct lease_entry *found, unsigned room);
void lease_list_leave(struct lease_list *list, struct lease_place *place);

#endif
