/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
#include "client/core/process.h"

#include <pthread.h>
#include <stdatomic.h>
#include <time.h>
#include <unistd.h>

#include "common/cleanup.h"
#include "common/clock.h"
#include "common/tsan.h"

/* Writers first: otherwise threads that keep calling would delay a fork for ever. */
#define GATE_OPEN PTHREAD_RWLOCK_WRITER_NONRECURSIVE_INITIALIZER_NP

static pthread_rwlock_t fork_gate = GATE_OPEN;
static pthread_once_t start_once = PTHREAD_ONCE_INIT;
static atomic_int owner_pid; /* the process that the state in memory belongs to */
static _Thread_local unsigned call_depth;
static _Thread_local unsigned handlers_run; /* before a fork of this thread, and not yet after */
static _Thread_local bool gate_held;	    /* by a fork of this thread */
static const struct client_fork_calls *outer_calls;

/* Taken inside the gate alone, so that no child finds the lock held. */
static pthread_mutex_t handlers_lock = PTHREAD_MUTEX_INITIALIZER;
static struct client_fork_handler *fork_handlers; /* under handlers_lock */

void client_fork_handler_register(struct client_fork_handler *handler)
{
	scoped_lock(&handlers_lock);
	if (handler->registered)
		return;
	handler->registered = true;
	handler->next = fork_handlers;
	fork_handlers = handler;
}

static void fork_handlers_call(void)
{
	if (atomic_exchange(&owner_pid, getpid()) == getpid())
		return;
	for (const struct client_fork_handler *at = fork_handlers; at; at = at->next)
		at->forked();
}

/* While a driver is loaded for the first time, its handlers may already run before ours, and the
 * calls in other threads cannot end. Loading takes 0.3 to 0.6 s. */
#define FORK_WAIT (1 * CLOCK_SECOND)

static bool gate_close(void)
{
	int64_t end = clock_ns() + FORK_WAIT;
	struct timespec time = {.tv_sec = end / CLOCK_SECOND, .tv_nsec = end % CLOCK_SECOND};

	if (pthread_rwlock_clockwrlock(&fork_gate, CLOCK_MONOTONIC, &time) != 0)
		return false;
	tsan_lock_taken(&fork_gate);
	return true;
}

/* The handlers of fork may be registered several times: the first call before a fork, and the last
 * call after the fork, do the work. */
static void process_before_fork(void)
{
	if (handlers_run++)
		return;
	if (outer_calls)
		outer_calls->before();
	gate_held = !call_depth && gate_close();
}

static void process_in_parent(void)
{
	if (--handlers_run)
		return;
	if (gate_held)
		pthread_rwlock_unlock(&fork_gate);
	gate_held = false;
	if (outer_calls)
		outer_calls->in_parent();
}

static void process_in_child(void)
{
	if (--handlers_run)
		return;
	if (gate_held)
		tsan_lock_dropped(&fork_gate);
	gate_held = false;
	if (!call_depth) {
		fork_gate = (pthread_rwlock_t)GATE_OPEN;
		fork_handlers_call();
	}
	if (outer_calls)
		outer_calls->in_child();
}

void client_fork_go_first(void)
{
	pthread_atfork(process_before_fork, process_in_parent, process_in_child);
}

static void process_start(void)
{
	atomic_store(&owner_pid, getpid());
	client_fork_go_first();
}

void client_fork_surround(const struct client_fork_calls *calls)
{
	pthread_once(&start_once, process_start);
	outer_calls = calls;
}

void client_enter(void)
{
	pthread_once(&start_once, process_start);
	if (call_depth++)
		return;
	pthread_rwlock_rdlock(&fork_gate);
	/* A child that was made without fork(3) has not called the handlers. */
	if (atomic_load_explicit(&owner_pid, memory_order_relaxed) != getpid())
		fork_handlers_call();
}

void client_leave(void)
{
	if (--call_depth == 0)
		pthread_rwlock_unlock(&fork_gate);
}

void client_inside(void)
{
	call_depth++;
}
