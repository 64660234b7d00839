/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* A queue of jobs that may wait for a file or copy many bytes, with threads that do the jobs. The
 * queue runs at most SHARE_QUEUE_THREADS jobs at a time, and at most SHARE_QUEUE_PER_USER jobs of a
 * user; users with waiting jobs alternate. Threads start when a job needs them and end after some
 * time without jobs. The queue does not know the content of a job. Thread-safe. */
#ifndef FS_SHARE_QUEUE_H
#define FS_SHARE_QUEUE_H

#include <sys/types.h>

/* Jobs that run at a time: in all, and of a user. */
#define SHARE_QUEUE_THREADS  8
#define SHARE_QUEUE_PER_USER 2

struct share_queue;
struct share_user;

/* Part of a caller's struct; owned by the queue from share_queue_add until work is called. */
struct share_job {
	struct share_job *prev, *next;
};

/* work does a job, and may free the job and add jobs. A thread ends after idle_seconds without a
 * job. 0 or -ENOMEM. */
int share_queue_open(void (*work)(void *context, struct share_job *job), void *context,
		     unsigned idle_seconds, struct share_queue **queue);
/* Returns when the running jobs are done. The queue forgets the jobs that still wait: the caller
 * owns them again. NULL is fine. */
void share_queue_stop(struct share_queue *queue);
/* After share_queue_stop, when no user is left. */
void share_queue_free(struct share_queue *queue);

/* The user with this uid, for adding jobs: NULL without memory. */
struct share_user *share_user_get(struct share_queue *queue, uid_t uid);
void share_user_put(struct share_queue *queue, struct share_user *user);

/* Never fails. If no thread can be started, a job waits until another job ends, or until
 * share_queue_retry, which the owner of the queue calls periodically. */
void share_queue_add(struct share_queue *queue, struct share_user *user, struct share_job *job);
void share_queue_retry(struct share_queue *queue);

/* For the tests: how many threads run. */
unsigned share_queue_threads(struct share_queue *queue);

#endif
