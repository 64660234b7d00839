/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "common/cacheline.h"
#include "common/log.h"
#include "fs/core/fs.h"
#include "fs/core/memory.h"
#include "fs/core/worker.h"

/* Room for the kernel's headers before the data of a write (fuse_in_header and fuse_write_in). */
#define REQUEST_HEADER_BYTES 4096

static _Thread_local struct worker *thread_worker;
static pthread_key_t worker_key;
static pthread_once_t worker_key_once = PTHREAD_ONCE_INIT;

/* Not in struct worker: threads without a worker also free memory. */
static _Thread_local struct worker_memory thread_memory;

void worker_memory_add(const struct fs *fs, uint64_t ino, int64_t bytes)
{
	if (!(atomic_load_explicit(&fs->observers, memory_order_relaxed) & OBSERVE_TRACE))
		return;
	thread_memory.bytes += bytes;
	thread_memory.ino = ino;
}

void worker_memory_add_place(const struct fs *fs, uint64_t ino, enum memory_place place,
			     int64_t bytes)
{
	if (!(atomic_load_explicit(&fs->observers, memory_order_relaxed) & OBSERVE_TRACE))
		return;
	thread_memory.in[place] += bytes;
	thread_memory.ino = ino;
}

void worker_memory_put_back(const struct worker_memory *previous)
{
	thread_memory = *previous;
}

struct worker_memory worker_memory_take(void)
{
	struct worker_memory previous = thread_memory;

	thread_memory = (struct worker_memory){0};
	return previous;
}

static void worker_free(void *pointer)
{
	struct worker *worker = pointer;

	if (worker->copier) {
		if (worker->request)
			copier_unpin(worker->copier, worker->request);
		if (worker->replies)
			copier_unpin(worker->copier, worker->replies);
		while (worker->n_pinned)
			copier_unpin(worker->copier, worker->pinned[--worker->n_pinned]);
		copier_close(worker->copier);
	}
	memory_free(worker->request, worker->request_bytes);
	memory_free(worker->replies, 2 * worker->reply_bytes);
	stats_block_give_back(worker->stats);
	free(worker);
}

static void worker_key_make(void)
{
	pthread_key_create(&worker_key, worker_free);
}

static int worker_fill(struct worker *worker, struct fs *fs)
{
	worker->reply_bytes = fs->can.max_write;
	worker->replies = memory_populate(2 * worker->reply_bytes);
	worker->reply = worker->replies;
	worker->stats = stats_block_new(&fs->stats);
	if (!worker->replies || !worker->stats)
		return -ENOMEM;
	int error = copier_open(fs->backend, &worker->copier);

	if (!error)
		error = copier_pin(worker->copier, worker->replies, 2 * worker->reply_bytes);
	return error;
}

int worker_need_request(struct worker *worker, struct fs *fs)
{
	worker->request_bytes = fs->can.max_write + REQUEST_HEADER_BYTES;
	worker->request = memory_populate(worker->request_bytes);
	return worker->request ? copier_pin(worker->copier, worker->request, worker->request_bytes)
			       : -ENOMEM;
}

void worker_pin(struct worker *worker, void *memory, size_t bytes)
{
	for (unsigned i = 0; i < worker->n_pinned; i++)
		if (worker->pinned[i] == memory)
			return;
	if (worker->n_pinned < WORKER_PINS && copier_pin(worker->copier, memory, bytes) == 0)
		worker->pinned[worker->n_pinned++] = memory;
}

struct worker *worker_self(struct fs *fs)
{
	if (thread_worker)
		return thread_worker;
	struct worker *worker = cacheline_calloc(sizeof(*worker));
	int error = worker ? worker_fill(worker, fs) : -ENOMEM;

	if (error) {
		log_error("cannot set up a worker thread: %s", strerror(-error));
		if (worker)
			worker_free(worker);
		return NULL;
	}
	pthread_once(&worker_key_once, worker_key_make);
	pthread_setspecific(worker_key, worker);
	/* libfuse cancels its ring threads, and a thread must not end within a request with locks
	 * held. */
	pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, NULL);
	thread_worker = worker;
	return worker;
}

void worker_end(void)
{
	if (!thread_worker)
		return;
	pthread_setspecific(worker_key, NULL);
	worker_free(thread_worker);
	thread_worker = NULL;
}

struct copier *worker_copier(struct fs *fs)
{
	struct worker *worker = worker_self(fs);

	return worker ? worker->copier : NULL;
}

uint64_t worker_request(void)
{
	return thread_worker ? thread_worker->request_number : 0;
}

bool worker_is_interrupted(void)
{
	return thread_worker && thread_worker->interrupted &&
	       atomic_load(thread_worker->interrupted);
}
