/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* gpumem cp: which thread does what next. */
#include <errno.h>
#include <stdlib.h>

#include "client/cli/buffer.h"
#include "client/cli/cp.h"
#include "common/defer.h"

/* The walk waits while so many files are queued. */
#define QUEUE_MAX 65536

void cp_queue(struct cp *cp, struct cp_file *file)
{
	LOCKED(&cp->lock);
	while (cp->queued >= QUEUE_MAX && !cp_stopped(cp))
		pthread_cond_wait(&cp->idle, &cp->lock);
	*cp->queue_end = file;
	cp->queue_end = &file->following;
	cp->queued++;
	pthread_cond_signal(&cp->work);
}

static bool has_parts(const struct cp_file *file)
{
	return !atomic_load(&file->error) && atomic_load(&file->next) < file->parts;
}

/* An open file first, so that few are in the making at a time. */
static struct cp_file *take(struct cp *cp)
{
	for (struct cp_file *file = cp->open; file; file = file->following)
		if (has_parts(file)) {
			file->users++;
			return file;
		}
	struct cp_file *file = cp->queue;

	if (!file)
		return NULL;
	cp->queue = file->following;
	if (!cp->queue)
		cp->queue_end = &cp->queue;
	file->following = NULL;
	file->users = 1;
	cp->queued--;
	pthread_cond_broadcast(&cp->idle);
	return file;
}

/* NULL: there is nothing left to do. */
static struct cp_file *next(struct cp *cp)
{
	LOCKED(&cp->lock);
	for (;;) {
		struct cp_file *file = cp_stopped(cp) ? NULL : take(cp);

		if (file) {
			cp->busy++;
			return file;
		}
		/* A file that another thread is about to open may have parts for us. */
		if (cp_stopped(cp) || (cp->walked && !cp->busy))
			return NULL;
		pthread_cond_wait(&cp->work, &cp->lock);
	}
}

/* Others may take parts of it from now on. */
static void publish(struct cp *cp, struct cp_file *file)
{
	LOCKED(&cp->lock);
	file->opened = true;
	file->following = cp->open;
	cp->open = file;
	pthread_cond_broadcast(&cp->work);
}

static void unpublish(struct cp *cp, struct cp_file *file)
{
	for (struct cp_file **at = &cp->open; *at; at = &(*at)->following)
		if (*at == file) {
			*at = file->following;
			return;
		}
}

/* Whether this thread was the last one that works on the file. */
static bool leave(struct cp *cp, struct cp_file *file)
{
	LOCKED(&cp->lock);
	if (--file->users)
		return false;
	unpublish(cp, file);
	return true;
}

static void idle(struct cp *cp)
{
	LOCKED(&cp->lock);
	cp->busy--;
	pthread_cond_broadcast(&cp->work);
}

static void work_on(struct cp *cp, struct cp_file *file, struct cp_buffers *buffers)
{
	if (!file->opened) {
		cp_file_open(cp, file);
		publish(cp, file);
	}
	for (;;) {
		while (!cp_stopped(cp) && !atomic_load(&file->error) && cp_part(cp, file, buffers))
			;
		if (!leave(cp, file))
			return;
		if (!cp_file_copied(cp, file))
			break;
		file->users = 1;
		publish(cp, file);
	}
	cp_file_end(cp, file);
}

void *cp_worker(void *context)
{
	struct cp *cp = context;
	struct cp_buffers buffers = {.data = buffer_new(CP_BUFFER_BYTES),
				     .other = buffer_new(CP_BUFFER_BYTES),
				     .staging.memory = CLIENT_STAGING_NONE};
	struct cp_file *file;

	if (!buffers.data || !buffers.other)
		cp_failed(cp, cli_fail("a buffer", ENOMEM));
	while (buffers.data && buffers.other && (file = next(cp))) {
		work_on(cp, file, &buffers);
		idle(cp);
	}
	client_staging_close(&buffers.staging.memory);
	buffer_free(buffers.data, CP_BUFFER_BYTES);
	buffer_free(buffers.other, CP_BUFFER_BYTES);
	LOCKED(&cp->lock);
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
