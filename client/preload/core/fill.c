/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
#include "client/preload/core/fill.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "client/core/private_fd.h"
#include "client/preload/core/own.h"
#include "common/cleanup.h"

#define THREADS 4
/* A call of madvise(2) holds up calls that change mappings, for 4 ms. */
#define PIECE (16UL << 20)
/* Threads take 0.1 ms to start, and the pages of 1 MiB 0.07 ms to go. */
#define UNDO_MIN (64UL << 20)

struct fill {
	struct fill *next; /* under fills_lock */
	char *start;
	size_t bytes;
	atomic_size_t bytes_taken; /* by threads */
	atomic_bool ended;
	int advice;	     /* of madvise(2), for each piece */
	unsigned references; /* under fills_lock: the threads' */
};

static pthread_mutex_t fills_lock = PTHREAD_MUTEX_INITIALIZER;
static struct fill *fill_list;
static atomic_bool has_fills; /* the list is not empty; changed under fills_lock */

/* Under fills_lock. */
static void fill_remove(const struct fill *fill)
{
	struct fill **at = &fill_list;

	while (*at != fill)
		at = &(*at)->next;
	*at = fill->next;
	atomic_store(&has_fills, fill_list != NULL);
}

static void fill_put(struct fill *fill)
{
	pthread_mutex_lock(&fills_lock);
	bool last = --fill->references == 0;
	if (last)
		fill_remove(fill);
	pthread_mutex_unlock(&fills_lock);
	if (last)
		free(fill);
}

/* The mapping may have become another one, where this is refused, or may end before the end of its
 * file. */
static bool piece_advise(const struct fill *fill, size_t at)
{
	size_t remaining = fill->bytes - at;

	return madvise(fill->start + at, remaining < PIECE ? remaining : PIECE, fill->advice) == 0;
}

/* The caller has one of the references. */
static void fill_run(struct fill *fill)
{
	size_t at;

	while (!atomic_load(&fill->ended) &&
	       (at = atomic_fetch_add(&fill->bytes_taken, PIECE)) < fill->bytes)
		if (!piece_advise(fill, at))
			atomic_store(&fill->ended, true);
	fill_put(fill);
}

static void *fill_main(void *fill)
{
	own_thread_began();
	fill_run(fill);
	return NULL;
}

static unsigned thread_count(void)
{
	long processors = sysconf(_SC_NPROCESSORS_ONLN);

	return processors > 0 && processors < THREADS ? (unsigned)processors : THREADS;
}

/* With so many references. NULL: no memory. */
static struct fill *fill_new(char *address, size_t bytes, int advice, unsigned references)
{
	struct fill *fill = calloc(1, sizeof(*fill));

	if (!fill)
		return NULL;
	*fill = (struct fill){
	    .start = address, .bytes = bytes, .advice = advice, .references = references};
	scoped_lock(&fills_lock);
	fill->next = fill_list;
	fill_list = fill;
	atomic_store(&has_fills, true);
	return fill;
}

void fill_begin(char *address, size_t bytes)
{
	unsigned n = thread_count();
	pthread_t thread;

	INSIDE();
	struct fill *fill = fill_new(address, bytes, MADV_POPULATE_READ, n);
	for (unsigned i = 0; fill && i < n; i++) {
		if (client_private_fd_thread(&thread, fill_main, fill) == 0)
			pthread_detach(thread);
		else
			fill_put(fill);
	}
}

void fill_undo(char *address, size_t bytes)
{
	unsigned n = bytes < UNDO_MIN ? 1 : thread_count(), started = 0;
	struct fill *fill = n > 1 ? fill_new(address, bytes, MADV_DONTNEED, n) : NULL;
	pthread_t threads[THREADS];

	if (!fill)
		return;
	for (unsigned i = 1; i < n; i++) {
		if (client_private_fd_thread(&threads[started], fill_main, fill) == 0)
			started++;
		else
			fill_put(fill);
	}
	fill_run(fill);
	while (started)
		pthread_join(threads[--started], NULL);
}

void fill_end(const void *address, size_t bytes)
{
	/* A handler of a signal must not wait for the thread that it interrupted. */
	if (!atomic_load_explicit(&has_fills, memory_order_relaxed) || own_inside || !own_process())
		return;
	INSIDE();
	fill_stop(address, bytes);
}

void fill_stop(const void *address, size_t bytes)
{
	const char *start = address;

	scoped_lock(&fills_lock);
	for (struct fill *fill = fill_list; fill; fill = fill->next)
		if (fill->start < start + bytes && start < fill->start + fill->bytes)
			atomic_store(&fill->ended, true);
}

void fill_forked(void)
{
	pthread_mutex_init(&fills_lock, NULL);
	fill_list = NULL;
	atomic_store(&has_fills, false);
}
