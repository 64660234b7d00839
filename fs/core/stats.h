/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* Counts requests, errors, latencies and bytes. Each worker has a block of counters, so that
 * threads share no cache line. */
#ifndef FS_CORE_STATS_H
#define FS_CORE_STATS_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "backend/backend.h"
#include "common/cacheline.h"
#include "fs/core/hot_files.h"

/* The kinds of requests from the kernel. */
enum stat_op {
	STAT_LOOKUP,
	STAT_FORGET,
	STAT_BATCH_FORGET,
	STAT_GETATTR,
	STAT_STATX,
	STAT_SETATTR,
	STAT_CREATE,
	STAT_TMPFILE,
	STAT_MKDIR,
	STAT_MKNOD,
	STAT_SYMLINK,
	STAT_READLINK,
	STAT_LINK,
	STAT_UNLINK,
	STAT_RMDIR,
	STAT_RENAME,
	STAT_OPENDIR,
	STAT_READDIR,
	STAT_READDIRPLUS,
	STAT_FSYNCDIR,
	STAT_OPEN,
	STAT_RELEASE,
	STAT_READ,
	STAT_WRITE,
	STAT_LSEEK,
	STAT_FLUSH,
	STAT_FSYNC,
	STAT_FALLOCATE,
	STAT_COPY,
	STAT_GETXATTR,
	STAT_SETXATTR,
	STAT_LISTXATTR,
	STAT_REMOVEXATTR,
	STAT_STATFS,
	STAT_IOCTL,
	STAT_POLL,
	STAT_OPS
};

/* One of STATS_SAMPLE requests of a kind is timed, beginning with the first: to read the clock
 * twice for each request would cost a percent of the fastest request. */
#define STATS_SAMPLE 16

/* The upper bounds of the buckets of latencies; the last bucket has no upper bound. */
#define STATS_BUCKETS 16
extern const uint64_t stats_bucket_ns[STATS_BUCKETS - 1];

/* The GPUs and host/, by the index of struct volume. */
#define STATS_VOLUMES (BACKEND_DEVICES_MAX + 1)

/* Requests on the root count for no volume. */
struct stats_volume {
	/* ahead_bytes: the part of read_bytes that had been copied ahead of its readers. */
	_Atomic uint64_t requests, read_bytes, ahead_bytes, write_bytes, copy_bytes;
};

/* Only the worker writes (relaxed); any thread may read. The next worker goes on with the block of
 * a worker that has ended, so that threads which come and go need no more memory. */
struct stats_block {
	_Alignas(CACHELINE_ALIGN) _Atomic uint64_t ops[STAT_OPS];
	_Atomic uint64_t errors[STAT_OPS];
	_Atomic uint64_t latencies[STAT_OPS][STATS_BUCKETS];
	_Atomic uint64_t latency_ns[STAT_OPS];
	struct stats_volume volumes[STATS_VOLUMES];
	struct busy busy;
	_Atomic uint64_t ended;	  /* ended requests of all kinds in ops */
	uint64_t ended_before;	  /* for stats_stuck only */
	struct stats_block *next; /* in struct stats; set once */
	atomic_bool owned;	  /* a worker has the block */
};

struct stats_volume_totals {
	uint64_t requests, read_bytes, ahead_bytes, write_bytes, copy_bytes;
};

struct stats_totals {
	uint64_t ops[STAT_OPS], errors[STAT_OPS];
	uint64_t latencies[STAT_OPS][STATS_BUCKETS], latency_ns[STAT_OPS];
	struct stats_volume_totals volumes[STATS_VOLUMES];
	uint64_t read_bytes, write_bytes, copy_bytes; /* of all volumes */
};

struct stats {
	/* A list to which blocks are only added: a block lives as long as the daemon. */
	_Atomic(struct stats_block *) blocks;
};

struct stats_block *stats_block_new(struct stats *stats); /* NULL: no memory */
void stats_block_give_back(struct stats_block *block);	  /* NULL: nothing */
void stats_sum(struct stats *stats, struct stats_totals *totals);
struct stats_volume_totals stats_sum_volume(struct stats *stats, unsigned volume);
void stats_free(struct stats *stats);
/* The number of workers that serve the same request as at the last call. Only one thread may call.
 */
unsigned stats_stuck(struct stats *stats);
const char *stats_op_name(enum stat_op op);
/* Whether an error (negative) is an ordinary answer and no failure: the attribute is not set, the
 * buffer is too small, no data follows, try again. Such errors are not counted. */
bool stats_error_is_ordinary(enum stat_op op, int error);
/* Counts a request that is answered at once. */
void stats_count_answered(struct stats_block *block, enum stat_op op);
/* Counts the latency of a timed request. */
void stats_latency(struct stats_block *block, enum stat_op op, uint64_t ns);

static inline void stats_add(_Atomic uint64_t *counter, uint64_t n)
{
	atomic_store_explicit(counter, atomic_load_explicit(counter, memory_order_relaxed) + n,
			      memory_order_relaxed);
}

/* Counts a request; true: the caller must time the request. */
static inline bool stats_count(struct stats_block *block, enum stat_op op)
{
	stats_add(&block->ops[op], 1);
	return atomic_load_explicit(&block->ops[op], memory_order_relaxed) % STATS_SAMPLE == 1;
}

#endif
