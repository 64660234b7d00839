/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* Work that may wait for a file or copy much, done by threads of its own: a few of them, fewer for
 * any one user, and users with waiting jobs take turns. Threads are made when they are needed and
 * end when they had nothing to do for a while. Knows nothing of what a job is. Thread-safe. */
#ifndef FS_SHARE_QUEUE_H
#define FS_SHARE_QUEUE_H

#include <sys/types.h>

/* Jobs under way at a time: in all, and of one user. */
#define SHARE_QUEUE_THREADS  8
#define SHARE_QUEUE_PER_USER 2

struct share_queue;
struct share_user;

/* Part of what waits; the queue's from share_queue_add until it is handed to work. */
struct share_job {
	struct share_job *prev, *next;
};

/* work does a job and may free it, and add others. A thread ends after idle_seconds without one. 0
 * or -ENOMEM. */
int share_queue_open(void (*work)(void *context, struct share_job *job), void *context,
		     unsigned idle_seconds, struct share_queue **queue);
/* Returns when the jobs under way are done. Jobs that still wait are forgotten: they are the
 * caller's again. NULL is fine. */
void share_queue_stop(struct share_queue *queue);
/* After share_queue_stop, when no user is left. */
void share_queue_free(struct share_queue *queue);

/* The user with this number, for adding jobs: NULL where there is no memory. */
struct share_user *share_user_get(struct share_queue *queue, uid_t uid);
void share_user_put(struct share_queue *queue, struct share_user *user);

/* Never fails: a job for which no thread can be had waits for one that ends its job, or for
 * share_queue_retry, which is to be called now and then. */
void share_queue_add(struct share_queue *queue, struct share_user *user, struct share_job *job);
void share_queue_retry(struct share_queue *queue);

/* For the tests: how many threads there are. */
unsigned share_queue_threads(struct share_queue *queue);

#endif
