/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* What a thread that serves requests has to itself: its copier, its counters, its memory. */
#ifndef FS_CORE_WORKER_H
#define FS_CORE_WORKER_H

#include <stddef.h>

#include "backend/copy.h"
#include "fs/core/stats.h"

struct fs;

/* As many as libfuse has buffers in a ring, unless told otherwise; further ones are copied. */
#define WORKER_PINS 8

struct worker {
	struct copier *copier;
	struct stats_block *stats;
	/* Populated and pinned, because a page fault in a reply's copy can fail the reply when the
	 * daemon is killed, and because the GPU copies to and from it. */
	void *request; /* one request as read from /dev/fuse; NULL unless asked for */
	size_t request_bytes;
	void *reply; /* the data of a read */
	size_t reply_bytes;
	/* Memory of others, pinned for good: the buffers of the ring that the thread serves. */
	void *pinned[WORKER_PINS];
	unsigned n_pinned;
};

/* The calling thread's worker, made when first asked for; NULL (with a log line) where memory is
 * short. Lives until worker_end, or the end of the thread. */
struct worker *worker_self(struct fs *fs);
void worker_end(void);

/* Makes the worker's request memory: 0 or -errno. For threads that read /dev/fuse. */
int worker_need_request(struct worker *worker, struct fs *fs);
/* Pins what lives until the thread ends; nothing happens where it is pinned already. */
void worker_pin(struct worker *worker, void *memory, size_t bytes);

struct copier *worker_copier(struct fs *fs); /* NULL as worker_self */

#endif
