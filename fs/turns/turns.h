/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* A queue of jobs that may wait for a file or copy many bytes, with threads that do the jobs. The
 * queue runs at most TURNS_THREADS jobs at a time, and at most TURNS_PER_USER jobs of a
 * user; users with waiting jobs alternate. Threads start when a job needs them and end after some
 * time without jobs. The queue does not know the content of a job. Thread-safe. */
#ifndef FS_TURNS_TURNS_H
#define FS_TURNS_TURNS_H

#include <sys/types.h>

/* Jobs that run at a time: in all, and of a user. */
#define TURNS_THREADS  8
#define TURNS_PER_USER 2

struct turns;
struct turns_user;

/* Part of a caller's struct; owned by the queue from turns_add until work is called. */
struct turns_job {
	struct turns_job *prev, *next;
};

/* work does a job, and may free the job and add jobs. A thread ends after idle_seconds without a
 * job. 0 or -ENOMEM. */
int turns_open(void (*work)(void *context, struct turns_job *job), void *context,
		     unsigned idle_seconds, struct turns **queue);
/* Returns when the running jobs are done. The queue forgets the jobs that still wait: the caller
 * owns them again. NULL is fine. */
void turns_stop(struct turns *queue);
/* After turns_stop, when no user is left. */
void turns_free(struct turns *queue);

/* The user with this uid, for adding jobs: NULL without memory. */
struct turns_user *turns_user_get(struct turns *queue, uid_t uid);
void turns_user_put(struct turns *queue, struct turns_user *user);

/* Never fails. If no thread can be started, a job waits until another job ends, or until
 * turns_retry, which the owner of the queue calls periodically. */
void turns_add(struct turns *queue, struct turns_user *user, struct turns_job *job);
void turns_retry(struct turns *queue);

/* For the tests: how many threads run. */
unsigned turns_threads(struct turns *queue);

#endif
