/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* Who watches the requests: readers of .gpumem/accesslog, .gpumem/trace.json, and a sample of
 * latencies. While nobody does, a request costs one relaxed load. */
#ifndef FS_TRACE_OBSERVE_H
#define FS_TRACE_OBSERVE_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>
#include <time.h>

#include "fs/core/stats.h"

struct fs;
struct inode;
struct stats_block;

/* A request that has been served. */
struct request_info {
	enum stat_op kind;
	pid_t pid; /* of the caller */
	uid_t uid;
	struct inode *inode;
	const char *name;    /* below inode, or NULL */
	struct inode *to;    /* the second inode, or NULL */
	const char *to_name; /* below to, or NULL */
	uint64_t offset, bytes;
	int64_t began;	/* observe_begin */
	int64_t result; /* 0 or more, or -errno */
};

static inline int64_t observe_now(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

/* Before the reply: afterwards the kernel may forget what the request was about. Under no lock. */
void observe(struct fs *fs, struct stats_block *stats, unsigned observers,
	     const struct request_info *request);

/* Before the request is looked at: its time, and nothing of what came before is its own. */
int64_t observe_begin(void);

/* At the end of work that no request asked for: its memory goes to the trace. Under no lock. */
void observe_background(struct fs *fs, const char *operation);
/* After a reply that did not wait for memory to be given back. */
void observe_volumes(struct fs *fs);

/* Turns the trace on, from nothing, or off: 0 or -ENOMEM. One at a time. */
int observe_trace(struct fs *fs, bool on);

#endif
