/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
#include "fs/fuse/crew.h"

#include <errno.h>
#include <linux/fuse.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>

#include "common/cacheline.h"
#include "common/cleanup.h"
#include "common/clock.h"

/* A worker parks after this many short requests in a row, if another worker was waiting for
 * requests at each of the looks on the way. A look reads memory that other processors write, so
 * only every fourth request is worth one. */
#define SHORT_REQUESTS 32
#define LOOK_EACH      4
/* The deputy looks after the workers in service this often. A parked worker goes on after this many
 * looks in a row at which no worker was waiting, and all go on after LOOKS_QUIET without a request.
 */
#define LOOK_NS	    CLOCK_MS
#define LOOKS_BUSY  5
#define LOOKS_QUIET 100

/* A worker writes to its own lines. */
struct crew_worker {
	/* Odd while the worker serves a request, even while the worker waits for one. */
	_Alignas(CACHELINE_ALIGN) _Atomic uint64_t steps;
	uint64_t steps_seen; /* by the deputy; lock */
	unsigned short_requests;
	atomic_bool parked; /* written under lock */
};

struct crew {
	pthread_mutex_t lock;
	pthread_cond_t changed;		  /* a parked worker may go on, or must become the deputy */
	unsigned calls;			  /* parked workers that may go on; lock */
	unsigned looks_busy, looks_quiet; /* lock */
	bool has_deputy;		  /* a parked worker wakes up for looks; lock */
	bool ended;			  /* lock */
	_Atomic unsigned n_parked;	  /* written under lock */
	unsigned n;
	struct crew_worker workers[];
};

int crew_new(unsigned workers, struct crew **crew)
{
	struct crew *new = cacheline_calloc(sizeof(*new) + workers * sizeof(new->workers[0]));

	if (!new)
		return -ENOMEM;
	pthread_mutex_init(&new->lock, NULL);
	pthread_cond_init(&new->changed, NULL);
	new->n = workers;
	/* Not waiting: a worker whose thread cannot be started never waits for requests. */
	for (unsigned i = 0; i < workers; i++)
		atomic_init(&new->workers[i].steps, 1);
	*crew = new;
	return 0;
}

void crew_free(struct crew *crew)
{
	if (!crew)
		return;
	pthread_cond_destroy(&crew->changed);
	pthread_mutex_destroy(&crew->lock);
	free(crew);
}

unsigned crew_parked(struct crew *crew)
{
	return atomic_load(&crew->n_parked);
}

/* Requests about names and attributes: their work takes microseconds, unless a lock is held by a
 * longer operation. */
static bool request_is_short(uint32_t opcode)
{
	switch (opcode) {
	case FUSE_LOOKUP:
	case FUSE_FORGET:
	case FUSE_BATCH_FORGET:
	case FUSE_INTERRUPT:
	case FUSE_GETATTR:
	case FUSE_CREATE:
	case FUSE_MKNOD:
	case FUSE_MKDIR:
	case FUSE_UNLINK:
	case FUSE_RMDIR:
	case FUSE_SYMLINK:
	case FUSE_LINK:
	case FUSE_READLINK:
	case FUSE_OPEN:
	case FUSE_RELEASE:
	case FUSE_FLUSH:
	case FUSE_READDIR:
	case FUSE_READDIRPLUS:
	case FUSE_GETXATTR:
	case FUSE_LISTXATTR:
	case FUSE_STATFS:
		return true;
	default:
		return false;
	}
}

static bool worker_is_waiting(struct crew_worker *worker)
{
	return !atomic_load(&worker->parked) && atomic_load(&worker->steps) % 2 == 0;
}

static bool other_is_waiting(struct crew *crew, unsigned number)
{
	for (unsigned i = 1; i < crew->n; i++)
		if (worker_is_waiting(&crew->workers[(number + i) % crew->n]))
			return true;
	return false;
}

/* lock is held. Lets up to n parked workers go on. */
static void parked_call(struct crew *crew, unsigned n)
{
	crew->calls = n < crew->n_parked ? n : crew->n_parked;
	pthread_cond_broadcast(&crew->changed);
}

void crew_end(struct crew *crew)
{
	scoped_lock(&crew->lock);
	crew->ended = true;
	parked_call(crew, crew->n);
}

/* lock is held. Counts looks at which no worker was waiting, and looks without a request since the
 * last look. Returns whether all workers are stuck: none was waiting, and none has gone on. */
static bool workers_look(struct crew *crew)
{
	bool are_busy = true, are_quiet = true;

	for (unsigned i = 0; i < crew->n; i++) {
		struct crew_worker *worker = &crew->workers[i];
		uint64_t steps = atomic_load(&worker->steps);

		if (atomic_load(&worker->parked))
			continue;
		are_busy = are_busy && steps % 2;
		are_quiet = are_quiet && steps == worker->steps_seen;
		worker->steps_seen = steps;
	}
	crew->looks_busy = are_busy ? crew->looks_busy + 1 : 0;
	crew->looks_quiet = are_quiet ? crew->looks_quiet + 1 : 0;
	return are_busy && are_quiet;
}

/* lock is held. By the deputy. */
static void deputy_look(struct crew *crew)
{
	if (workers_look(crew) || crew->looks_busy >= LOOKS_BUSY) {
		crew->looks_busy = 0;
		parked_call(crew, 1);
	} else if (crew->looks_quiet >= LOOKS_QUIET) {
		parked_call(crew, crew->n);
	}
}

/* lock is held. One of the parked workers is the deputy. */
static void park_wait(struct crew *crew)
{
	if (crew->has_deputy) {
		pthread_cond_wait(&crew->changed, &crew->lock);
		return;
	}
	crew->has_deputy = true;
	if (clock_cond_wait(&crew->changed, &crew->lock, clock_ns() + LOOK_NS) == ETIMEDOUT)
		deputy_look(crew);
	crew->has_deputy = false;
}

bool crew_is_surplus(struct crew *crew, unsigned number)
{
	return crew->workers[number].short_requests >= SHORT_REQUESTS;
}

/* lock is held. */
static void parked_set(struct crew *crew, struct crew_worker *worker, bool parked)
{
	atomic_store(&worker->parked, parked);
	atomic_fetch_add(&crew->n_parked, parked ? 1U : -1U);
}

void crew_park(struct crew *crew, unsigned number)
{
	struct crew_worker *worker = &crew->workers[number];

	worker->short_requests = 0;
	scoped_lock(&crew->lock);
	if (crew->ended)
		return;
	parked_set(crew, worker, true);
	/* Look for another worker after the change of n_parked: a worker that takes a long request
	 * just now is seen here, or sees that this worker is parked. */
	if (other_is_waiting(crew, number)) {
		while (!crew->calls)
			park_wait(crew);
		crew->calls--;
	}
	parked_set(crew, worker, false);
	crew->looks_quiet = 0;
	if (crew->n_parked && !crew->has_deputy)
		pthread_cond_broadcast(&crew->changed); /* another worker must be the deputy */
}

void crew_wait(struct crew *crew, unsigned number)
{
	struct crew_worker *worker = &crew->workers[number];

	atomic_store(&worker->steps, (worker->steps | 1) + 1);
}

void crew_take(struct crew *crew, unsigned number, uint32_t opcode)
{
	struct crew_worker *worker = &crew->workers[number];

	atomic_store(&worker->steps, worker->steps + 1);
	if (request_is_short(opcode)) {
		worker->short_requests++;
		if (worker->short_requests % LOOK_EACH == 0 && !other_is_waiting(crew, number))
			worker->short_requests = 0;
		return;
	}
	worker->short_requests = 0;
	if (crew_parked(crew)) {
		scoped_lock(&crew->lock);
		parked_call(crew, crew->calls + 1);
	}
}
