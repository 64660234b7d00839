/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
#include <errno.h>
#include <pthread.h>

#include "fs/core/worker.h"
#include "fs/spool/internal.h"

struct pool_work {
	uint64_t count;
	_Atomic uint64_t next;
	_Atomic int error;
	int (*work)(void *context, uint64_t number);
	void *context;
};

static void pool_work_on(struct pool_work *all)
{
	uint64_t number;

	while (!atomic_load(&all->error) &&
	       (number = atomic_fetch_add(&all->next, 1)) < all->count) {
		int no_error = 0;
		int error = worker_is_interrupted() ? -EINTR : all->work(all->context, number);

		if (error)
			atomic_compare_exchange_strong(&all->error, &no_error, error);
	}
}

static void *pool_thread(void *pointer)
{
	struct pool_work *all = pointer;

	pool_work_on(all);
	worker_end();
	return NULL;
}

int spool_parallel(uint64_t count, unsigned threads, int (*work)(void *context, uint64_t number),
		   void *context)
{
	struct pool_work all = {.count = count, .work = work, .context = context};
	pthread_t started[SPOOL_THREADS];
	unsigned n = 0;

	if (threads > SPOOL_THREADS)
		threads = SPOOL_THREADS;
	if (threads > count)
		threads = (unsigned)count;
	/* If no further thread can be created, the threads that exist, at least the caller, do all
	 * the work. */
	while (n + 1 < threads && pthread_create(&started[n], NULL, pool_thread, &all) == 0)
		n++;
	pool_work_on(&all);
	while (n)
		pthread_join(started[--n], NULL);
	return atomic_load(&all.error);
}

void *spool_buffer(struct fs *fs)
{
	struct worker *worker = worker_self(fs);

	return worker && worker->reply_bytes >= SPOOL_BLOCK ? worker->reply : NULL;
}
