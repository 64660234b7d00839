/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* Who watches the requests: readers of .gpumem/accesslog, .gpumem/trace.json, and a sample of
 * latencies. While nobody does, a request costs one relaxed load. */
#ifndef FS_TRACE_OBSERVE_H
#define FS_TRACE_OBSERVE_H

#include <stdbool.h>
#include <stdint.h>
#include <time.h>

struct fs;
struct inode;
struct op;

/* Bits of fs->observers; the last is each request's own. */
enum { OBSERVE_ACCESS = 1, OBSERVE_TRACE = 2, OBSERVE_LATENCY = 4 };

static inline int64_t observe_now(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

/* Before the reply: afterwards the kernel may forget what the request was about. Under no lock. */
void observe(struct op *op, int64_t result);

/* Before the request is looked at: its time, and nothing of what came before is its own. */
int64_t observe_begin(void);

/* Bytes of memory that the calling thread took for a file, or gave back; told with what they were
 * for by the next of observe and observe_background. Any locks. */
void observe_memory(struct fs *fs, uint64_t ino, int64_t bytes);
/* The same at the end of what no request asked for. Under no lock. */
void observe_background(struct fs *fs, const char *operation);
/* After a reply that did not wait for memory to be given back. */
void observe_volumes(struct fs *fs);

/* Turns the trace on, from nothing, or off: 0 or -ENOMEM. One at a time. */
int observe_trace(struct fs *fs, bool on);

#endif
