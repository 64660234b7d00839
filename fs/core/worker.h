/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* The resources of a thread that serves requests: a copier, counters, and memory for requests and
 * replies. */
#ifndef FS_CORE_WORKER_H
#define FS_CORE_WORKER_H

#include <stddef.h>

#include "backend/copy.h"
#include "fs/core/stats.h"

struct fs;
struct deferral;

/* libfuse's default number of buffers in a ring; data in further buffers is copied. */
#define WORKER_PINS 8

struct worker {
	struct copier *copier;
	uint64_t request_number; /* journal_cause.request of the request that the thread serves; 0:
				    none */
	/* The request as a job of fs/turns, and whether the caller still waits for all of it;
	 * NULL: the thread serves all users, and must not take long. */
	const struct deferral *deferral;
	const atomic_bool *interrupted;
	struct stats_block *stats;
	/* Populated, because a page fault while the kernel copies a reply can fail the reply if the
	 * daemon is killed; pinned, because the GPU copies to and from the memory. */
	void *request; /* for a request from /dev/fuse; NULL before worker_need_request */
	size_t request_bytes;
	/* For the data of a read: one half of replies, worker_next_reply. */
	void *reply;
	size_t reply_bytes;
	void *replies;
	/* Buffers of the ring that the thread serves, pinned until the thread ends. */
	void *pinned[WORKER_PINS];
	unsigned n_pinned;
};

/* The calling thread's worker, created by the first call; NULL (with a log line) if memory is
 * short. The worker lives until worker_end or the end of the thread. */
struct worker *worker_self(struct fs *fs);
void worker_end(void);

/* Allocates the worker's memory for requests: 0 or -errno. For threads that read /dev/fuse. */
int worker_need_request(struct worker *worker, struct fs *fs);
/* The half of the reply memory that was not used last. A processor that has just copied a reply has
 * the memory in its second-level cache, which slows the GPU's next copy into this memory: on the
 * reference machine 16 threads got 28 GB/s with a buffer each, and 48 with two. */
static inline void *worker_next_reply(struct worker *worker)
{
	worker->reply = worker->reply == worker->replies
			    ? (char *)worker->replies + worker->reply_bytes
			    : worker->replies;
	return worker->reply;
}
/* Pins memory that lives as long as the thread. No effect on pinned memory. */
void worker_pin(struct worker *worker, void *memory, size_t bytes);

/* Counts memory that the calling thread allocated (or freed, if negative) for a file, for the
 * trace, and only while the trace is on. Locks may be held. */
void worker_memory_add(const struct fs *fs, uint64_t ino, int64_t bytes);
/* Counts memory in a place other than the device, new or moved there or away, for the trace. */
void worker_memory_add_place(const struct fs *fs, uint64_t ino, enum memory_place place,
			     int64_t bytes);
/* The sums since the last call of worker_memory_take, and the last inode; the call resets all to 0.
 */
struct worker_memory {
	int64_t bytes;
	int64_t in[PLACES]; /* from PLACE_HOST on */
	uint64_t ino;
};
struct worker_memory worker_memory_take(void);
/* After work for another file: sets the sums to what the thread took before the work. */
void worker_memory_put_back(const struct worker_memory *previous);

/* The number of the request that the calling thread serves; 0: none. */
uint64_t worker_request(void);

/* Whether the calling thread serves a request in fs/turns whose caller does not wait for the whole
 * of it any more: then the request ends at its next piece. */
bool worker_is_interrupted(void);

struct copier *worker_copier(struct fs *fs); /* NULL as worker_self */

#endif
