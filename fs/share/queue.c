/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
#include "fs/share/queue.h"

#include <errno.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <utlist.h>

#include "common/cleanup.h"
#include "common/hash.h"
#include "common/log.h"
#include "fs/core/worker.h"

struct share_user {
	UT_hash_handle hh;		/* in the queue's users, by uid */
	struct share_user *prev, *next; /* in the queue's turns */
	uid_t uid;
	unsigned references, running;
	bool in_turn;
	struct share_job *jobs; /* in the order of their arrival */
};

enum thread_state { THREAD_NONE, THREAD_RUNS, THREAD_ENDED };

struct queue_thread {
	struct share_queue *queue;
	pthread_t thread;
	enum thread_state state; /* THREAD_ENDED: is to be joined */
};

struct share_queue {
	void (*work)(void *context, struct share_job *job);
	void *context;
	unsigned idle_seconds;
	pthread_mutex_t lock;		  /* protects all below, and the users */
	pthread_cond_t changed;		  /* a user was added to turns, or stopping was set */
	struct share_user *users, *turns; /* turns: the users with a job that may begin now */
	struct queue_thread threads[SHARE_QUEUE_THREADS];
	unsigned idle;
	bool stopping, refused; /* refused: the log has the last failure to start a thread */
};

static void user_enqueue(struct share_queue *queue, struct share_user *user)
{
	if (user->in_turn || !user->jobs || user->running >= SHARE_QUEUE_PER_USER)
		return;
	user->in_turn = true;
	DL_APPEND(queue->turns, user);
}

/* Under the lock: a job of the first user in turns, or NULL. */
static struct share_job *job_begin(struct share_queue *queue, struct share_user **whose)
{
	struct share_user *user = queue->turns;

	if (!user)
		return NULL;
	DL_DELETE(queue->turns, user);
	user->in_turn = false;
	struct share_job *job = user->jobs;

	DL_DELETE(user->jobs, job);
	user->running++;
	user_enqueue(queue, user);
	*whose = user;
	return job;
}

static void user_free_unused(struct share_queue *queue, struct share_user *user)
{
	if (user->references || user->running || user->jobs)
		return;
	HASH_DEL(queue->users, user);
	free(user);
}

/* Under the lock. False: no job came in idle_seconds, or the queue stops. */
static bool job_wait(struct share_queue *queue)
{
	struct timespec until;
	int error = 0;

	clock_gettime(CLOCK_MONOTONIC, &until);
	until.tv_sec += queue->idle_seconds;
	queue->idle++;
	while (!queue->turns && !queue->stopping && error != ETIMEDOUT)
		error = pthread_cond_timedwait(&queue->changed, &queue->lock, &until);
	queue->idle--;
	return queue->turns && !queue->stopping;
}

static void threads_wake(struct share_queue *queue);

/* Under the lock. */
static void jobs_work(struct share_queue *queue)
{
	struct share_user *user = NULL;

	while (job_wait(queue)) {
		struct share_job *job = job_begin(queue, &user);

		/* For the next job: this thread may have taken its wake-up. */
		threads_wake(queue);
		pthread_mutex_unlock(&queue->lock);
		queue->work(queue->context, job);
		pthread_mutex_lock(&queue->lock);
		user->running--;
		user_enqueue(queue, user);
		user_free_unused(queue, user);
	}
}

static void *queue_thread_main(void *pointer)
{
	struct queue_thread *thread = pointer;
	struct share_queue *queue = thread->queue;

	scoped_lock(&queue->lock);
	do {
		jobs_work(queue);
		pthread_mutex_unlock(&queue->lock);
		worker_end();
		pthread_mutex_lock(&queue->lock);
		/* A job that was added meanwhile found this thread neither idle nor ended. */
	} while (queue->turns && !queue->stopping);
	thread->state = THREAD_ENDED;
	return NULL;
}

static int thread_start(struct queue_thread *thread, struct share_queue *queue)
{
	if (thread->state == THREAD_ENDED)
		pthread_join(thread->thread, NULL);
	thread->queue = queue;
	int error = pthread_create(&thread->thread, NULL, queue_thread_main, thread);

	thread->state = error ? THREAD_NONE : THREAD_RUNS;
	return -error;
}

/* Under the lock: wakes an idle thread, or starts a thread, for a job that may begin. */
static void threads_wake(struct share_queue *queue)
{
	unsigned i = 0;

	if (!queue->turns || queue->stopping)
		return;
	if (queue->idle) {
		pthread_cond_signal(&queue->changed);
		return;
	}
	while (i < SHARE_QUEUE_THREADS && queue->threads[i].state == THREAD_RUNS)
		i++;
	int error = i < SHARE_QUEUE_THREADS ? thread_start(&queue->threads[i], queue) : 0;

	if (error && !queue->refused)
		log_warn("cannot start a thread for sharing: %s: requests wait for it",
			 strerror(-error));
	queue->refused = error;
}

int share_queue_open(void (*work)(void *context, struct share_job *job), void *context,
		     unsigned idle_seconds, struct share_queue **opened)
{
	struct share_queue *queue = calloc(1, sizeof(*queue));
	pthread_condattr_t clock;

	if (!queue)
		return -ENOMEM;
	queue->work = work;
	queue->context = context;
	queue->idle_seconds = idle_seconds;
	pthread_condattr_init(&clock);
	pthread_condattr_setclock(&clock, CLOCK_MONOTONIC);
	pthread_mutex_init(&queue->lock, NULL);
	pthread_cond_init(&queue->changed, &clock);
	pthread_condattr_destroy(&clock);
	*opened = queue;
	return 0;
}

void share_queue_stop(struct share_queue *queue)
{
	bool made[SHARE_QUEUE_THREADS];
	struct share_user *user, *next;

	if (!queue)
		return;
	pthread_mutex_lock(&queue->lock);
	queue->stopping = true;
	pthread_cond_broadcast(&queue->changed);
	/* With stopping set, no thread starts any more. */
	for (unsigned i = 0; i < SHARE_QUEUE_THREADS; i++)
		made[i] = queue->threads[i].state != THREAD_NONE;
	pthread_mutex_unlock(&queue->lock);
	for (unsigned i = 0; i < SHARE_QUEUE_THREADS; i++) {
		if (made[i])
			pthread_join(queue->threads[i].thread, NULL);
		queue->threads[i].state = THREAD_NONE;
	}
	queue->turns = NULL;
	HASH_ITER (hh, queue->users, user, next) {
		user->jobs = NULL;
		user_free_unused(queue, user);
	}
}

void share_queue_free(struct share_queue *queue)
{
	if (!queue)
		return;
	pthread_cond_destroy(&queue->changed);
	pthread_mutex_destroy(&queue->lock);
	free(queue);
}

struct share_user *share_user_get(struct share_queue *queue, uid_t uid)
{
	struct share_user *user = NULL;

	scoped_lock(&queue->lock);
	HASH_FIND(hh, queue->users, &uid, sizeof(uid), user);
	if (!user) {
		user = calloc(1, sizeof(*user));
		if (!user)
			return NULL;
		user->uid = uid;
		if (!HASH_ADD_NEW(hh, queue->users, uid, sizeof(user->uid), user)) {
			free(user);
			return NULL;
		}
	}
	user->references++;
	return user;
}

void share_user_put(struct share_queue *queue, struct share_user *user)
{
	scoped_lock(&queue->lock);
	user->references--;
	user_free_unused(queue, user);
}

void share_queue_add(struct share_queue *queue, struct share_user *user, struct share_job *job)
{
	scoped_lock(&queue->lock);
	DL_APPEND(user->jobs, job);
	user_enqueue(queue, user);
	threads_wake(queue);
}

void share_queue_retry(struct share_queue *queue)
{
	scoped_lock(&queue->lock);
	threads_wake(queue);
}

unsigned share_queue_threads(struct share_queue *queue)
{
	unsigned count = 0;

	scoped_lock(&queue->lock);
	for (unsigned i = 0; i < SHARE_QUEUE_THREADS; i++)
		count += queue->threads[i].state == THREAD_RUNS;
	return count;
}
