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

/* Counts memory that the calling thread allocated for a file, or below 0 freed: for the trace, and
 * only while the trace is on. Any locks. */
void worker_memory_add(const struct fs *fs, uint64_t ino, int64_t bytes);
/* The sum since the last call, and the last inode; both are 0 again from then on. */
struct worker_memory {
	int64_t bytes;
	uint64_t ino;
};
struct worker_memory worker_memory_take(void);

struct copier *worker_copier(struct fs *fs); /* NULL as worker_self */

#endif
