/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
#ifndef FS_SHARE_DELEGATION_H
#define FS_SHARE_DELEGATION_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#include "fs/file/file.h"

struct share;
struct share_connection;
struct share_lease;
struct delegation_file;

/* A thread that waits for the processes whose delegations of a file end. */
struct delegation_recall {
	struct delegation_recall *prev, *next;
	uint64_t ino;
	uint32_t number;     /* of the notice */
	unsigned unanswered; /* notices */
};

struct delegation_counters {
	uint64_t sent; /* recalls whose answers a thread waits for */
	uint64_t late; /* notices that had no answer in time */
};

/* Part of the share; under its lock, and so is answered. */
struct delegations {
	struct delegation_counters counters;
	struct delegation_file *files;	   /* by the inode's number */
	struct delegation_recall *recalls; /* that wait */
	pthread_cond_t answered;
};

/* Whether the holder of the lease may store into the file. */
bool delegation_lease_stores(const struct share_lease *lease);

/* Both functions under the share's lock. delegation_lease_add decides whether the lease gets a
 * delegation, and from then on no delegation is given beside a lease that may store: 0 or -ENOMEM.
 * -EINPROGRESS with FILE_NO_WAIT: there are delegations, and delegations_recall may wait. */
int delegation_lease_add(struct share *share, const struct share_connection *connection,
			 struct share_lease *lease, enum file_wait wait);
void delegation_lease_remove(struct share *share, struct share_lease *lease);

/* Ends the delegations of dropped leases: a recall would put the memory that the holder still has,
 * which may be the file's no more, in the place of pages that show the file. */
void delegations_drop(struct share *share, uint64_t ino);
/* Ends the delegations of an inode, and waits up to four seconds for the answers of their holders.
 */
void delegations_recall(struct share *share, uint64_t ino);
/* Whether delegations_recall would wait now. */
bool delegations_wait(struct share *share, uint64_t ino);
/* A listener answered a notice, or listens no more. Under the share's lock. */
void delegation_answered(struct share *share, uint32_t number);

#endif
