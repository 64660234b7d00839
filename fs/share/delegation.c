/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* Read delegations, as NFSv4 has them: a process that only loads from a file may read the file
 * through the kernel's page cache, which does not show what other processes store through their
 * leases. So the daemon recalls the delegations of a file before another lease can store.
 *
 * Only processes that may have the file's own memory get delegations, and they could store into the
 * file themselves: so it is no harm to others that the daemon waits for their answers. */
#include "fs/share/delegation.h"

#include <errno.h>
#include <stdlib.h>
#include <utlist.h>

#include "common/cleanup.h"
#include "common/clock.h"
#include "fs/core/fact.h"
#include "fs/core/fs.h"
#include "fs/share/internal.h"
#include "fs/tree/inode.h"
#include "fs/turns/turns.h"

/* A process that has not answered by then reads old bytes until it answers. The first BAR mapping
 * of a process takes up to a second, most of it in the driver, and up to 2.4 seconds where 12
 * processes start on one GPU (H200). */
#define RECALL_WAIT (4 * CLOCK_SECOND)

/* A recall tells all of their holders under the share's lock. */
#define DELEGATIONS_MAX 64

/* A file with leases that may store, or with delegations. */
struct delegation_file {
	UT_hash_handle hh;
	uint64_t ino;
	unsigned storing;
	unsigned n_delegated;
	struct share_lease *delegated;
};

static struct delegation_file *file_find(const struct share *share, uint64_t ino)
{
	struct delegation_file *file = NULL;

	HASH_FIND(hh, share->delegations.files, &ino, sizeof(ino), file);
	return file;
}

static struct delegation_file *file_get(struct share *share, uint64_t ino)
{
	struct delegation_file *file = file_find(share, ino);

	if (file)
		return file;
	file = calloc(1, sizeof(*file));
	if (!file)
		return NULL;
	file->ino = ino;
	if (HASH_ADD_NEW(hh, share->delegations.files, ino, sizeof(ino), file))
		return file;
	free(file);
	return NULL;
}

static void file_put(struct share *share, struct delegation_file *file)
{
	if (file->storing || file->delegated)
		return;
	HASH_DEL(share->delegations.files, file);
	free(file);
}

bool delegation_lease_stores(const struct share_lease *lease)
{
	return lease->access == GPUMEM_ACCESS_WRITE && !lease->private && !lease->loads;
}

/* Requests over io_uring are served by the thread that has the ring, which must not wait. */
static bool file_is_free(const struct share *share, const struct delegation_file *file)
{
	return !file->storing && file->n_delegated < DELEGATIONS_MAX && !share->fs->can.io_uring.on;
}

static void delegation_end(struct delegation_file *file, struct share_lease *lease)
{
	DL_DELETE2(file->delegated, lease, delegated_before, delegated_next);
	file->n_delegated--;
	lease->recallable = false;
}

/* Whether holders of delegations of the inode have not answered yet. */
static bool recall_waits(const struct share *share, uint64_t ino)
{
	const struct delegation_recall *recall;

	DL_FOREACH (share->delegations.recalls, recall) {
		if (recall->ino == ino && recall->unanswered)
			return true;
	}
	return false;
}

static bool recall_would_wait(const struct share *share, const struct delegation_file *file,
			      uint64_t ino)
{
	return (file && file->delegated) || recall_waits(share, ino);
}

int delegation_lease_add(struct share *share, const struct share_connection *connection,
			 struct share_lease *lease, enum file_wait wait)
{
	/* Readers of host/ may have no right to store. Processes that this PID namespace does not
	 * show are all 0, and cannot be told apart. */
	bool wants = lease->loads && !lease->private && connection->pid > 0 &&
		     atomic_load(&lease->kind) != FILE_LEASE_LOOSE &&
		     share_hears_recalls(share, connection);

	if (!wants && !delegation_lease_stores(lease))
		return 0;
	struct delegation_file *file = file_get(share, lease->inode->ino);

	if (!file)
		return -ENOMEM;
	if (!wants && wait == FILE_NO_WAIT && recall_would_wait(share, file, file->ino)) {
		file_put(share, file);
		return -EINPROGRESS;
	}
	lease->holder = connection;
	if (!wants) {
		file->storing++;
	} else if (lease->delegated || file_is_free(share, file)) {
		lease->delegated = lease->recallable = true;
		file->n_delegated++;
		DL_APPEND2(file->delegated, lease, delegated_before, delegated_next);
	}
	file_put(share, file);
	return 0;
}

void delegation_lease_remove(struct share *share, struct share_lease *lease)
{
	struct delegation_file *file = file_find(share, lease->inode->ino);

	if (!file)
		return;
	if (lease->recallable)
		delegation_end(file, lease);
	else if (delegation_lease_stores(lease))
		file->storing--;
	file_put(share, file);
}

void delegations_drop(struct share *share, uint64_t ino)
{
	scoped_lock(&share->lock);
	struct delegation_file *file = file_find(share, ino);
	struct share_lease *lease, *next;

	if (!file)
		return;
	DL_FOREACH_SAFE2(file->delegated, lease, next, delegated_next)
	{
		if (atomic_load(&lease->kind) == FILE_LEASE_DROPPED)
			delegation_end(file, lease);
	}
	file_put(share, file);
}

bool share_stores(struct fs *fs, const struct inode *inode)
{
	struct share *share = share_of(fs);

	if (!share)
		return false;
	scoped_lock(&share->lock);
	const struct delegation_file *file = file_find(share, inode->ino);

	return file && file->storing;
}

bool delegations_wait(struct share *share, uint64_t ino)
{
	scoped_lock(&share->lock);
	return recall_would_wait(share, file_find(share, ino), ino);
}

static int store_count(struct share *share, const struct inode *inode, enum file_wait wait)
{
	scoped_lock(&share->lock);
	struct delegation_file *file = file_get(share, inode->ino);

	if (!file)
		return -ENOMEM;
	if (wait == FILE_NO_WAIT && recall_would_wait(share, file, file->ino)) {
		file_put(share, file);
		return -EINPROGRESS;
	}
	file->storing++;
	return 0;
}

int share_store_begin(struct share *share, const struct inode *inode, enum file_wait wait)
{
	int error = store_count(share, inode, wait);

	if (!error && wait == FILE_MAY_WAIT)
		delegations_recall(share, inode->ino);
	return error;
}

void share_store_end(struct share *share, const struct inode *inode)
{
	scoped_lock(&share->lock);
	struct delegation_file *file = file_find(share, inode->ino);

	file->storing--;
	file_put(share, file);
}

/* Under the share's lock. */
static void recall_send(struct share *share, struct delegation_file *file,
			struct delegation_recall *recall)
{
	const struct gpumem_msg_notice notice = {.what = GPUMEM_NOTICE_RECALL, .inode = file->ino};

	while (file->delegated) {
		struct share_lease *lease = file->delegated;

		delegation_end(file, lease);
		bool awaited = share_tell_process(share, lease->holder, recall->number, &notice);

		recall->unanswered += awaited;
		share->delegations.counters.sent += awaited;
	}
	file_put(share, file);
}

/* Under the share's lock, which is given up meanwhile. */
static void recall_wait(struct share *share, uint64_t ino)
{
	const int64_t deadline = clock_ns() + RECALL_WAIT;
	bool waits = recall_waits(share, ino) && turns_wait_begin(turns_of(share->fs));

	while (recall_waits(share, ino) &&
	       clock_cond_wait(&share->delegations.answered, &share->lock, deadline) != ETIMEDOUT)
		;
	turns_wait_end(turns_of(share->fs), waits);
}

void delegations_recall(struct share *share, uint64_t ino)
{
	struct delegation_recall recall = {.ino = ino};

	scoped_lock(&share->lock);
	struct delegation_file *file = file_find(share, ino);

	DL_APPEND(share->delegations.recalls, &recall);
	if (file && file->delegated) {
		recall.number = share_notice_number(share);
		recall_send(share, file, &recall);
	}
	recall_wait(share, ino);
	DL_DELETE(share->delegations.recalls, &recall);
	share->delegations.counters.late += recall.unanswered;
	if (recall.unanswered)
		share_recall_is_late(share, recall.number);
	pthread_cond_broadcast(&share->delegations.answered);
}

void delegation_answered(struct share *share, uint32_t number)
{
	struct delegation_recall *recall;

	DL_SEARCH_SCALAR(share->delegations.recalls, recall, number, number);
	if (!recall || !recall->unanswered)
		return;
	recall->unanswered--;
	pthread_cond_broadcast(&share->delegations.answered);
}

static bool counters_read(const struct fact_subject *subject, void *numbers)
{
	struct share *share = share_of(subject->fs);

	if (!share)
		return false;
	scoped_lock(&share->lock);
	*(struct delegation_counters *)numbers = share->delegations.counters;
	return true;
}

static const struct fact counter_rows[] = {
    FACT(struct delegation_counters, sent, "sent", "recalls_total",
	 "Recalls of the right to read a file through the page cache."),
    FACT(struct delegation_counters, late, "late", "recalls_late_total",
	 "Recalls that a process did not answer in time."),
};

const struct fact_group delegation_facts[] = {
    FACT_GROUP(FACT_MOUNT, "recalls", counter_rows, struct delegation_counters, counters_read),
    {0},
};
