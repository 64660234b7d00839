/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
#include "fs/turns/turns.h"

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

struct turns_user {
	UT_hash_handle hh;		/* in the queue's users, by uid */
	struct turns_user *prev, *next; /* in ready of the queue */
	uid_t uid;
	unsigned references, running;
	bool in_turn;
	struct turns_job *jobs; /* in the order of their arrival */
};

enum thread_state { THREAD_NONE, THREAD_RUNS, THREAD_ENDED };

struct turns_thread {
	struct turns *queue;
	pthread_t thread;
	enum thread_state state; /* THREAD_ENDED: is to be joined */
	uint64_t request;	 /* of the job that runs; 0: none */
	atomic_bool interrupted;
};

/* One for each job that can run or wait. */
#define THREADS_MAX (TURNS_THREADS + TURNS_WAITING)

/* Interrupts that came before their jobs. */
#define EARLY_INTERRUPTS 256

struct turns {
	unsigned idle_seconds;
	pthread_mutex_t lock;		  /* protects all below, the users and the jobs */
	pthread_cond_t changed;		  /* a user was added to ready, or stopping was set */
	struct turns_user *users, *ready; /* ready: the users with a job that may begin now */
	struct turns_job *by_request;	  /* jobs that turns_interrupt can find */
	uint64_t early[EARLY_INTERRUPTS]; /* a ring; n_early counts all that ever came */
	unsigned n_early;
	struct turns_thread threads[THREADS_MAX];
	unsigned idle, running, waiting; /* running: jobs that do not wait for other processes */
	bool stopping, refused; /* refused: the log has the last failure to start a thread */
};

static void user_enqueue(struct turns *queue, struct turns_user *user)
{
	if (user->in_turn || !user->jobs || user->running >= TURNS_PER_USER)
		return;
	user->in_turn = true;
	DL_APPEND(queue->ready, user);
}

/* Under the lock, with a user in ready: the user with the fewest running jobs who has waited
 * longest. */
static struct turns_user *user_next(struct turns *queue)
{
	struct turns_user *user, *least = queue->ready;

	DL_FOREACH (queue->ready, user)
		if (user->running < least->running)
			least = user;
	return least;
}

/* Under the lock: a job that waits will not wait any more. */
static void job_remove(struct turns *queue, struct turns_job *job)
{
	DL_DELETE(job->user->jobs, job);
	if (job->is_listed)
		HASH_DEL(queue->by_request, job);
	job->is_listed = false;
}

/* Under the lock, with a user in ready. */
static struct turns_job *job_begin(struct turns *queue)
{
	struct turns_user *user = user_next(queue);
	struct turns_job *job = user->jobs;

	DL_DELETE(queue->ready, user);
	user->in_turn = false;
	job_remove(queue, job);
	user->running++;
	queue->running++;
	user_enqueue(queue, user);
	return job;
}

static void user_free_unused(struct turns *queue, struct turns_user *user)
{
	if (user->references || user->running || user->jobs)
		return;
	HASH_DEL(queue->users, user);
	free(user);
}

/* Under the lock. */
static bool job_may_begin(const struct turns *queue)
{
	return queue->ready && queue->running < TURNS_THREADS && !queue->stopping;
}

/* Under the lock. False: no job came in idle_seconds, or the queue stops. */
static bool job_wait(struct turns *queue)
{
	struct timespec until;
	int error = 0;

	clock_gettime(CLOCK_MONOTONIC, &until);
	until.tv_sec += queue->idle_seconds;
	queue->idle++;
	while (!job_may_begin(queue) && !queue->stopping && error != ETIMEDOUT)
		error = pthread_cond_timedwait(&queue->changed, &queue->lock, &until);
	queue->idle--;
	return job_may_begin(queue);
}

static void threads_wake(struct turns *queue);

/* Under the lock, which is given up while the job works. */
static void job_work(struct turns_thread *thread, struct turns_job *job)
{
	struct turns *queue = thread->queue;

	thread->request = job->request;
	atomic_store(&thread->interrupted, false);
	job->interrupted = &thread->interrupted;
	pthread_mutex_unlock(&queue->lock);
	job->work(job->context, job);
	pthread_mutex_lock(&queue->lock);
	thread->request = 0;
}

/* Under the lock. */
static void jobs_work(struct turns_thread *thread)
{
	struct turns *queue = thread->queue;

	while (job_wait(queue)) {
		struct turns_job *job = job_begin(queue);
		struct turns_user *user = job->user;

		/* For the next job: this thread may have taken its wake-up. */
		threads_wake(queue);
		job_work(thread, job);
		user->running--;
		queue->running--;
		user_enqueue(queue, user);
		user_free_unused(queue, user);
	}
}

static void *turns_thread_main(void *pointer)
{
	struct turns_thread *thread = pointer;
	struct turns *queue = thread->queue;

	scoped_lock(&queue->lock);
	do {
		jobs_work(thread);
		pthread_mutex_unlock(&queue->lock);
		worker_end();
		pthread_mutex_lock(&queue->lock);
		/* A job that was added meanwhile found this thread neither idle nor ended. */
	} while (job_may_begin(queue));
	thread->state = THREAD_ENDED;
	return NULL;
}

static int thread_start(struct turns_thread *thread, struct turns *queue)
{
	if (thread->state == THREAD_ENDED)
		pthread_join(thread->thread, NULL);
	thread->queue = queue;
	int error = pthread_create(&thread->thread, NULL, turns_thread_main, thread);

	thread->state = error ? THREAD_NONE : THREAD_RUNS;
	return -error;
}

/* Under the lock: wakes an idle thread, or starts a thread, for a job that may begin. */
static void threads_wake(struct turns *queue)
{
	unsigned i = 0;

	if (!job_may_begin(queue))
		return;
	if (queue->idle) {
		pthread_cond_signal(&queue->changed);
		return;
	}
	while (i < THREADS_MAX && queue->threads[i].state == THREAD_RUNS)
		i++;
	int error = i < THREADS_MAX ? thread_start(&queue->threads[i], queue) : 0;

	if (error && !queue->refused)
		log_warn("cannot start a thread for slow requests: %s: the requests wait",
			 strerror(-error));
	queue->refused = error;
}

int turns_open(unsigned idle_seconds, struct turns **opened)
{
	struct turns *queue = calloc(1, sizeof(*queue));
	pthread_condattr_t clock;

	if (!queue)
		return -ENOMEM;
	queue->idle_seconds = idle_seconds;
	pthread_condattr_init(&clock);
	pthread_condattr_setclock(&clock, CLOCK_MONOTONIC);
	pthread_mutex_init(&queue->lock, NULL);
	pthread_cond_init(&queue->changed, &clock);
	pthread_condattr_destroy(&clock);
	*opened = queue;
	return 0;
}

static void threads_stop(struct turns *queue)
{
	bool made[THREADS_MAX];

	pthread_mutex_lock(&queue->lock);
	queue->stopping = true;
	pthread_cond_broadcast(&queue->changed);
	/* With stopping set, no thread starts any more. */
	for (unsigned i = 0; i < THREADS_MAX; i++)
		made[i] = queue->threads[i].state != THREAD_NONE;
	pthread_mutex_unlock(&queue->lock);
	for (unsigned i = 0; i < THREADS_MAX; i++) {
		if (made[i])
			pthread_join(queue->threads[i].thread, NULL);
		queue->threads[i].state = THREAD_NONE;
	}
}

/* After threads_stop: a job that waits, taken out of the queue, or NULL. */
static struct turns_job *job_take_out(struct turns *queue)
{
	scoped_lock(&queue->lock);
	struct turns_user *user = queue->users;

	while (user && !user->jobs)
		user = user->hh.next;
	if (!user)
		return NULL;
	struct turns_job *job = user->jobs;

	job_remove(queue, job);
	return job;
}

void turns_stop(struct turns *queue)
{
	struct turns_user *user, *next;
	struct turns_job *job;

	if (!queue)
		return;
	threads_stop(queue);
	while ((job = job_take_out(queue)))
		job->cancel(job->context, job, -ENOTCONN);
	scoped_lock(&queue->lock);
	queue->ready = NULL;
	HASH_ITER (hh, queue->users, user, next) {
		user->in_turn = false;
		user_free_unused(queue, user);
	}
}

void turns_free(struct turns *queue)
{
	if (!queue)
		return;
	pthread_cond_destroy(&queue->changed);
	pthread_mutex_destroy(&queue->lock);
	free(queue);
}

struct turns_user *turns_user_get(struct turns *queue, uid_t uid)
{
	struct turns_user *user = NULL;

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

void turns_user_put(struct turns *queue, struct turns_user *user)
{
	scoped_lock(&queue->lock);
	user->references--;
	user_free_unused(queue, user);
}

/* Under the lock: whether the interrupt of a job that is about to be added has come. */
static bool interrupt_came_early(struct turns *queue, uint64_t request)
{
	for (unsigned i = 0; request && i < EARLY_INTERRUPTS; i++)
		if (queue->early[i] == request)
			return true;
	return false;
}

/* Under the lock. */
static void job_append(struct turns *queue, struct turns_user *user, struct turns_job *job)
{
	DL_APPEND(user->jobs, job);
	/* Without memory the job cannot be interrupted. */
	job->is_listed =
	    job->request && HASH_ADD_NEW(hh, queue->by_request, request, sizeof(job->request), job);
	user_enqueue(queue, user);
	threads_wake(queue);
}

void turns_add(struct turns *queue, struct turns_user *user, struct turns_job *job)
{
	pthread_mutex_lock(&queue->lock);
	bool stopping = queue->stopping;
	bool interrupted = !stopping && interrupt_came_early(queue, job->request);

	job->user = user;
	if (!stopping && !interrupted)
		job_append(queue, user, job);
	pthread_mutex_unlock(&queue->lock);
	if (interrupted)
		job->cancel(job->context, job, -EINTR);
}

/* The job of the request, if it waits: taken out of the queue. Else NULL. */
static struct turns_job *job_interrupt(struct turns *queue, uint64_t request)
{
	struct turns_job *job = NULL;

	scoped_lock(&queue->lock);
	HASH_FIND(hh, queue->by_request, &request, sizeof(request), job);
	if (job) {
		struct turns_user *user = job->user;

		job_remove(queue, job);
		if (user->in_turn && !user->jobs) {
			DL_DELETE(queue->ready, user);
			user->in_turn = false;
		}
		return job;
	}
	for (unsigned i = 0; i < THREADS_MAX; i++) {
		if (queue->threads[i].request == request) {
			atomic_store(&queue->threads[i].interrupted, true);
			return NULL;
		}
	}
	queue->early[queue->n_early++ % EARLY_INTERRUPTS] = request;
	return NULL;
}

void turns_interrupt(struct turns *queue, uint64_t request)
{
	struct turns_job *job = request ? job_interrupt(queue, request) : NULL;

	if (job)
		job->cancel(job->context, job, -EINTR);
}

void turns_retry(struct turns *queue)
{
	scoped_lock(&queue->lock);
	threads_wake(queue);
}

/* Under the lock. */
static bool runs_in(const struct turns *queue)
{
	for (unsigned i = 0; i < THREADS_MAX; i++)
		if (queue->threads[i].state == THREAD_RUNS &&
		    pthread_equal(queue->threads[i].thread, pthread_self()))
			return true;
	return false;
}

bool turns_wait_begin(struct turns *queue)
{
	scoped_lock(&queue->lock);
	if (queue->waiting == TURNS_WAITING || !runs_in(queue))
		return false;
	queue->waiting++;
	queue->running--;
	threads_wake(queue);
	return true;
}

void turns_wait_end(struct turns *queue, bool begun)
{
	if (!begun)
		return;
	scoped_lock(&queue->lock);
	queue->waiting--;
	queue->running++;
}

unsigned turns_threads(struct turns *queue)
{
	unsigned count = 0;

	scoped_lock(&queue->lock);
	for (unsigned i = 0; i < THREADS_MAX; i++)
		count += queue->threads[i].state == THREAD_RUNS;
	return count;
}
