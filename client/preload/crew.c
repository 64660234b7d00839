/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
#include "client/preload/crew.h"

#include <linux/futex.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "backend/stream.h"
#include "client/apart.h"
#include "client/preload/own.h"

/* From here on help is worth the telling. */
#define WORTH (256U << 10)
/* What a thread takes at a time: large beside the taking, small beside the whole. */
#define SLICE (64U << 10)
/* Processors of the process for each helper: the program wants some too. */
#define PROCESSORS 4
/* How long a helper looks for the next store before it sleeps: being woken takes as long as a store
 * of 256 KiB, and a program that copies a file makes the next one within this time. */
#define LOOK_NS 200000
/* How often the owner looks whether the last slices are through before it yields: some 50 us. */
#define PAUSES 1000

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* who has the helpers */
static unsigned wanted;					 /* helpers; before there are threads */
static bool started;					 /* under lock */

/* The store under way. Written by who has the lock, while it is not open and nobody is inside. */
static struct {
	char *to;
	const char *from;
	size_t bytes;
	atomic_size_t next; /* the first byte that nobody has taken */
} store;
static atomic_bool is_open;    /* helpers may come inside */
static atomic_uint inside;     /* helpers that may be at it */
static atomic_uint asleep;     /* helpers that wait for turns to move, or are about to */
static _Atomic uint32_t turns; /* a futex */

static void take_slices(void)
{
	size_t bytes = store.bytes, at;

	while ((at = atomic_fetch_add(&store.next, SLICE)) < bytes)
		stream_store(store.to + at, store.from + at,
			     bytes - at < SLICE ? bytes - at : SLICE);
	stream_fence();
}

/* Who comes inside after the owner closed sees that, and leaves without a look at the store. */
static void help(void)
{
	atomic_fetch_add(&inside, 1);
	if (atomic_load(&is_open))
		take_slices();
	atomic_fetch_sub(&inside, 1);
}

static int64_t now_ns(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return now.tv_sec * 1000000000LL + now.tv_nsec;
}

/* The turn after this one, whenever it comes. */
static uint32_t next_turn(uint32_t seen)
{
	int64_t until = now_ns() + LOOK_NS;

	while (atomic_load(&turns) == seen && now_ns() < until)
		stream_pause();
	if (atomic_load(&turns) != seen)
		return atomic_load(&turns);
	atomic_fetch_add(&asleep, 1);
	while (atomic_load(&turns) == seen)
		syscall(SYS_futex, &turns, FUTEX_WAIT_PRIVATE, seen, NULL, NULL, 0);
	atomic_fetch_sub(&asleep, 1);
	return atomic_load(&turns);
}

/* The program's buffer may be such that its handlers of these make it readable. */
static void take_faults(void)
{
	sigset_t faults;

	sigemptyset(&faults);
	sigaddset(&faults, SIGSEGV);
	sigaddset(&faults, SIGBUS);
	pthread_sigmask(SIG_UNBLOCK, &faults, NULL);
}

static void *helper(void *unused)
{
	uint32_t seen = 0;

	(void)unused;
	own_inside++;
	take_faults();
	for (;;) {
		seen = next_turn(seen);
		help();
	}
	return NULL;
}

/* Under lock. Threads that are refused are done without. */
static void start_helpers(void)
{
	pthread_t thread;

	started = true;
	for (unsigned i = 0; i < wanted; i++)
		if (client_apart_thread(&thread, helper, NULL) == 0)
			pthread_detach(thread);
}

/* Under lock. */
static void store_together(char *to, const char *from, size_t bytes)
{
	store.to = to;
	store.from = from;
	store.bytes = bytes;
	atomic_store(&store.next, 0);
	atomic_store(&is_open, true);
	atomic_fetch_add(&turns, 1);
	if (atomic_load(&asleep))
		syscall(SYS_futex, &turns, FUTEX_WAKE_PRIVATE, CREW_MAX, NULL, NULL, 0);
	take_slices();
	atomic_store(&is_open, false);
	for (unsigned turn = 0; atomic_load(&inside); turn++)
		if (turn < PAUSES)
			stream_pause();
		else
			sched_yield(); /* a helper may wait for this processor */
}

void crew_store(char *to, const char *from, size_t bytes)
{
	if (bytes < WORTH || !wanted || pthread_mutex_trylock(&lock)) {
		stream_store(to, from, bytes);
		stream_fence();
		return;
	}
	if (!started)
		start_helpers();
	store_together(to, from, bytes);
	pthread_mutex_unlock(&lock);
}

void crew_start(unsigned helpers)
{
	wanted = helpers < CREW_MAX ? helpers : CREW_MAX;
}

void crew_start_for_machine(void)
{
	cpu_set_t processors;

	CPU_ZERO(&processors);
	if (sched_getaffinity(0, sizeof(processors), &processors) == 0)
		crew_start((unsigned)CPU_COUNT(&processors) / PROCESSORS);
}

void crew_forked(void)
{
	lock = (pthread_mutex_t)PTHREAD_MUTEX_INITIALIZER;
	started = false;
	atomic_store(&is_open, false);
	atomic_store(&inside, 0);
	atomic_store(&asleep, 0);
	atomic_store(&turns, 0);
}
