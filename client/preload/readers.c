/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
#include "client/preload/readers.h"

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <unistd.h>

#include "client/core/private_fd.h"
#include "client/preload/core/own.h"
#include "client/preload/core/real.h"

/* With the calling thread. Of 3 GB in calls of 64 MiB on 16 processors (H200), one thread
 * reads 2.8 GB/s, through staging memory 4.4, two threads 5.1, four 9.5, eight 20, twelve 26. On
 * two processors two threads read 1.1 GB/s, one 1.5: the daemon's threads need the processors, and
 * requests in order, which it reads ahead. */
#define THREADS_MAX	      16
#define THREADS		      8
#define PROCESSORS_MIN	      8
#define PROCESSORS_PER_THREAD 2
#define PIECE		      (1UL << 20)

static unsigned n_threads; /* GPUMEM_PRELOAD_READERS, or for this machine */

struct reading {
	int fd;
	char *to;
	off_t offset;
	size_t bytes;
	atomic_size_t bytes_taken; /* by threads */
	atomic_bool failed;
};

void readers_start(void)
{
	const char *text = secure_getenv("GPUMEM_PRELOAD_READERS");
	long processors = sysconf(_SC_NPROCESSORS_ONLN);

	if (processors >= PROCESSORS_MIN)
		n_threads = processors / PROCESSORS_PER_THREAD < THREADS
				? (unsigned)processors / PROCESSORS_PER_THREAD
				: THREADS;
	if (!text || *text < '0' || *text > '9')
		return;
	unsigned long requested = strtoul(text, NULL, 10);
	n_threads = requested < THREADS_MAX ? (unsigned)requested : THREADS_MAX;
}

bool readers_are_for(const struct io_call *call, size_t bytes)
{
	return n_threads > 1 && call->direction == IO_READ && call->n_parts == 1 &&
	       bytes >= READERS_CALL_MIN;
}

static void reading_run(struct reading *reading)
{
	size_t at;

	while (!atomic_load(&reading->failed) &&
	       (at = atomic_fetch_add(&reading->bytes_taken, PIECE)) < reading->bytes) {
		size_t remaining = reading->bytes - at,
		       piece = remaining < PIECE ? remaining : PIECE;
		if (real.pread64(reading->fd, reading->to + at, piece,
				 reading->offset + (off_t)at) != (ssize_t)piece)
			atomic_store(&reading->failed, true);
	}
}

static void *reading_main(void *reading)
{
	own_thread_began();
	reading_run(reading);
	return NULL;
}

bool readers_move(const struct io_call *call, off_t offset, size_t bytes)
{
	struct reading reading = {
	    .fd = call->fd, .to = call->parts[0].iov_base, .offset = offset, .bytes = bytes};
	pthread_t helpers[THREADS_MAX];
	unsigned started = 0;
	int error = errno;

	while (started + 1 < n_threads &&
	       client_private_fd_thread(&helpers[started], reading_main, &reading) == 0)
		started++;
	reading_run(&reading);
	while (started)
		pthread_join(helpers[--started], NULL);
	errno = error;
	return !atomic_load(&reading.failed);
}
