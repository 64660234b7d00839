/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* A queue of jobs that may wait for a file or copy many bytes, with threads that do the jobs. The
 * queue runs at most TURNS_THREADS jobs at a time, and at most TURNS_PER_USER jobs of a user. The
 * next job is one of the user with the fewest running jobs, so no second job of a user begins while
 * a user without a running job waits. Threads start when a job needs them and end after some time
 * without jobs. A job that waits for other processes leaves its place to another job: only the
 * limit of its user still counts the job. The queue does not know the content of a job.
 * Thread-safe. */
#ifndef FS_TURNS_TURNS_H
#define FS_TURNS_TURNS_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "common/hash.h"
#include "fs/core/fs.h"

/* Jobs that run at a time: in all, and of a user. */
#define TURNS_THREADS  8
#define TURNS_PER_USER 4
/* Jobs that wait for other processes, beside them. */
#define TURNS_WAITING 24

struct turns;
struct turns_user;

static inline FS_STATE(struct turns, turns_of, FS_TURNS)

    /* Part of a caller's struct; owned by the queue from turns_add until work or cancel is called.
     * Both are called under no lock, and may free the job and add jobs. */
    struct turns_job {
	/* By a thread of the queue. */
	void (*work)(void *context, struct turns_job *job);
	/* Instead of work, by the thread that calls turns_add, turns_interrupt or turns_stop.
	 * error: -EINTR after an interrupt, -ENOTCONN at the end of the queue. */
	void (*cancel)(void *context, struct turns_job *job, int error);
	void *context;
	uint64_t request; /* the number that turns_interrupt finds; 0: none */
	/* The queue's. */
	const atomic_bool *interrupted; /* in work: whether to stop soon; valid until work ends */
	struct turns_user *user;
	struct turns_job *prev, *next;
	bool is_listed;
	UT_hash_handle hh; /* in the queue's by_request, while the job waits */
};

/* A thread ends after idle_seconds without a job. 0 or -ENOMEM. */
int turns_open(unsigned idle_seconds, struct turns **turns);
/* Waits for the running jobs, and cancels the others. Jobs that are added later are dropped without
 * a call. NULL is fine. */
void turns_stop(struct turns *turns);
/* After turns_stop, when no user is left. */
void turns_free(struct turns *turns);

/* The user with this uid, for adding jobs: NULL without memory. */
struct turns_user *turns_user_get(struct turns *turns, uid_t uid);
void turns_user_put(struct turns *turns, struct turns_user *user);

/* Never fails. If no thread can be started, a job waits until another job ends, or until
 * turns_retry, which is called periodically. */
void turns_add(struct turns *turns, struct turns_user *user, struct turns_job *job);
void turns_retry(struct turns *turns);

/* Nothing waits for the request with this number any more: cancels a job that waits, and tells a
 * job that runs. A number without a job is remembered for a while, because another thread may be
 * about to add the job. */
void turns_interrupt(struct turns *turns, uint64_t request);

/* Around a wait of the calling thread's job for other processes; turns_wait_end takes what
 * turns_wait_begin returned. No effect in threads without a job, and beyond TURNS_WAITING. After
 * waits, more than TURNS_THREADS jobs may run until some of them end. */
bool turns_wait_begin(struct turns *turns);
void turns_wait_end(struct turns *turns, bool begun);

/* For the tests: how many threads run. */
unsigned turns_threads(struct turns *turns);

#endif
