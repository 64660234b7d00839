/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* gpumem cp: decides which part or file a thread works on next. */
#include <errno.h>
#include <stdlib.h>

#include "client/cli/core/buffer.h"
#include "client/cli/cp/cp.h"
#include "common/cleanup.h"

/* The walk waits if so many files are queued. */
#define QUEUE_MAX 65536
/* On other file systems than gpumemfs the kernel runs one write into a file at a time: one thread
 * writes while another reads the next part. More threads for one file are useful only if fewer
 * files than WIDE are open. */
#define WRITERS 2
#define WIDE	4

void cp_queue(struct cp *cp, struct cp_file *file)
{
	scoped_lock(&cp->lock);
	while (cp->queued >= QUEUE_MAX && !cp_stopped(cp))
		pthread_cond_wait(&cp->idle, &cp->lock);
	*cp->queue_end = file;
	cp->queue_end = &file->following;
	cp->queued++;
	pthread_cond_signal(&cp->work);
}

static bool file_has_parts(const struct cp_file *file)
{
	return !atomic_load(&file->error) && atomic_load(&file->next) < file->parts;
}

static unsigned files_count_open(const struct cp *cp)
{
	unsigned n = 0;

	for (const struct cp_file *file = cp->open; file; file = file->following)
		n += file_has_parts(file);
	return n;
}

/* Whether one more thread would make the copy of the file faster. Under cp->lock. */
static bool file_takes_thread(const struct cp *cp, const struct cp_file *file)
{
	if (file->step != CP_STAGED_OUT)
		return true;
	return !cp->queue && (atomic_load(&file->users) < WRITERS || files_count_open(cp) < WIDE);
}

/* Takes an open file first, so that few files are partial at a time. Under cp->lock. */
static struct cp_file *file_take(struct cp *cp)
{
	for (struct cp_file *file = cp->open; file; file = file->following)
		if (file_has_parts(file) && file_takes_thread(cp, file)) {
			atomic_fetch_add(&file->users, 1);
			return file;
		}
	struct cp_file *file = cp->queue;

	if (!file)
		return NULL;
	cp->queue = file->following;
	if (!cp->queue)
		cp->queue_end = &cp->queue;
	file->following = NULL;
	atomic_store(&file->users, 1);
	cp->queued--;
	pthread_cond_broadcast(&cp->idle);
	return file;
}

/* Waits for a file to work on. NULL: all work is done. */
static struct cp_file *file_wait_next(struct cp *cp)
{
	scoped_lock(&cp->lock);
	for (;;) {
		struct cp_file *file = cp_stopped(cp) ? NULL : file_take(cp);

		if (file) {
			cp->busy++;
			return file;
		}
		/* A file that another thread is opening may get parts for this thread. */
		if (cp_stopped(cp) || (cp->walked && !cp->busy))
			return NULL;
		pthread_cond_wait(&cp->work, &cp->lock);
	}
}

/* Lets other threads take parts of the file. */
static void file_publish(struct cp *cp, struct cp_file *file)
{
	scoped_lock(&cp->lock);
	file->opened = true;
	file->following = cp->open;
	cp->open = file;
	pthread_cond_broadcast(&cp->work);
}

static void file_unpublish(struct cp *cp, struct cp_file *file)
{
	for (struct cp_file **at = &cp->open; *at; at = &(*at)->following)
		if (*at == file) {
			*at = file->following;
			return;
		}
}

/* Whether this thread was the last thread on the file. */
static bool file_leave(struct cp *cp, struct cp_file *file)
{
	scoped_lock(&cp->lock);
	if (atomic_fetch_sub(&file->users, 1) > 1)
		return false;
	file_unpublish(cp, file);
	return true;
}

static void worker_set_idle(struct cp *cp)
{
	scoped_lock(&cp->lock);
	cp->busy--;
	pthread_cond_broadcast(&cp->work);
}

/* Allocating a GPU's memory takes milliseconds, in which other threads make staging memory and read
 * the source. */
static void file_open(struct cp *cp, struct cp_file *file)
{
	cp_file_open(cp, file);
	if (file->step == CP_STAGED_IN)
		file_publish(cp, file);
	cp_room_make(cp, file);
	if (file->step != CP_STAGED_IN)
		file_publish(cp, file);
}

static void file_work(struct cp *cp, struct cp_file *file, struct cp_buffers *buffers)
{
	if (!file->opened)
		file_open(cp, file);
	for (;;) {
		while (!cp_stopped(cp) && !atomic_load(&file->error) && cp_part(cp, file, buffers))
			;
		if (!file_leave(cp, file))
			return;
		if (!cp_file_copied(cp, file))
			break;
		atomic_store(&file->users, 1);
		file_publish(cp, file);
	}
	cp_file_end(cp, file);
}

void *cp_worker(void *context)
{
	struct cp *cp = context;
	struct cp_buffers buffers = {.data = buffer_new(CP_BUFFER_BYTES),
				     .source = buffer_new(CP_BUFFER_BYTES),
				     .staging.memory = CLIENT_STAGING_NONE};
	struct cp_file *file;

	if (!buffers.data || !buffers.source)
		cp_failed(cp, cli_fail("a buffer", ENOMEM));
	while (buffers.data && buffers.source && (file = file_wait_next(cp))) {
		file_work(cp, file, &buffers);
		worker_set_idle(cp);
	}
	/* The staging memory is not unmapped: the process's end does so. Unmapping thread after
	 * thread took 10 ms. */
	buffer_free(buffers.data, CP_BUFFER_BYTES);
	buffer_free(buffers.source, CP_BUFFER_BYTES);
	scoped_lock(&cp->lock);
	cp->running--;
	pthread_cond_broadcast(&cp->idle);
	return NULL;
}

void cp_queue_free(struct cp *cp)
{
	while (cp->queue) {
		struct cp_file *file = cp->queue;

		cp->queue = file->following;
		cp_file_free(file);
	}
}
