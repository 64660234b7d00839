/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* Passes each served request to its observers: readers of .gpumem/accesslog, .gpumem/trace.json,
 * and a sample of latencies. Without observers a request costs a relaxed load. */
#ifndef FS_TRACE_OBSERVE_H
#define FS_TRACE_OBSERVE_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "fs/core/stats.h"
#include "fs/core/worker.h"

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

/* Before the reply: afterwards the kernel may forget the inodes. Under no lock. */
void observe(struct fs *fs, struct stats_block *stats, unsigned observers,
	     const struct request_info *request);

/* At the start of a request: the time; the thread's memory is counted from 0. */
int64_t observe_begin(void);

/* Called at the end of background work, whose memory goes to the trace. Under no lock. */
void observe_background(struct fs *fs, const char *operation);
/* Work of the thread for another file than the request's, if there is a request: memory that
 * changes between the two calls goes to the trace as an event of its own. Under no lock but
 * tiers.lock. */
struct observed_work {
	int64_t began; /* 0: the trace is off */
	struct worker_memory previous;
};
void observe_work_begin(struct fs *fs, struct observed_work *work);
void observe_work_end(struct fs *fs, const struct observed_work *work, const char *operation,
		      struct inode *inode);
/* After a reply that did not wait for memory to be freed. */
void observe_volumes(struct fs *fs);

/* Turns the trace on, from an empty trace, or off: 0 or -ENOMEM. Calls must not overlap. */
int observe_trace(struct fs *fs, bool enable);

#endif
