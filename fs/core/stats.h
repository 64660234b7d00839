/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* Counters of what the daemon did, one block per worker so that counting shares no cache line. */
#ifndef FS_CORE_STATS_H
#define FS_CORE_STATS_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "backend/backend.h"
#include "common/cacheline.h"
#include "fs/core/hot_files.h"

/* What the kernel asks for: one of these for each kind of request that it sends to the mount. */
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

/* One request in so many of a kind, and the first, is timed: two looks at the clock for each would
 * be a percent of the fastest. */
#define STATS_SAMPLE 16

/* The upper ends of the buckets in which latencies are counted; the last has none. */
#define STATS_BUCKETS 16
extern const uint64_t stats_bucket_ns[STATS_BUCKETS - 1];

/* The GPUs and host/, by struct volume's index. */
#define STATS_VOLUMES (BACKEND_DEVICES_MAX + 1)

/* Of a volume; the root's own requests are none's. */
struct stats_volume {
	_Atomic uint64_t requests, read_bytes, write_bytes, copy_bytes;
};

/* Written by its worker only (relaxed), read by anyone. */
struct stats_block {
	_Alignas(CACHELINE_ALIGN) _Atomic uint64_t ops[STAT_OPS];
	_Atomic uint64_t errors[STAT_OPS];
	_Atomic uint64_t latencies[STAT_OPS][STATS_BUCKETS];
	_Atomic uint64_t latency_ns[STAT_OPS];
	struct stats_volume volumes[STATS_VOLUMES];
	struct busy busy;
	_Atomic uint64_t ended;	  /* of all that were counted in ops */
	uint64_t ended_before;	  /* stats_stuck's own */
	struct stats_block *next; /* in struct stats; set once */
};

struct stats_volume_totals {
	uint64_t requests, read_bytes, write_bytes, copy_bytes;
};

struct stats_totals {
	uint64_t ops[STAT_OPS], errors[STAT_OPS];
	uint64_t latencies[STAT_OPS][STATS_BUCKETS], latency_ns[STAT_OPS];
	struct stats_volume_totals volumes[STATS_VOLUMES];
	uint64_t read_bytes, write_bytes, copy_bytes; /* of all volumes */
};

struct stats {
	_Atomic(struct stats_block *)
	    blocks; /* a push-only list: blocks live as long as the daemon */
};

struct stats_block *stats_block_new(struct stats *stats); /* NULL: no memory */
void stats_sum(struct stats *stats, struct stats_totals *totals);
void stats_free(struct stats *stats);
/* How many workers are at the same request as when this was asked last. One thread asks. */
unsigned stats_stuck(struct stats *stats);
const char *stats_op_name(enum stat_op op);
/* Whether an error (negative) is an answer that programs ask for, and no failure: the attribute is
 * not set, the buffer is too small, no data follows, try again. Such answers are not counted. */
bool stats_error_is_ordinary(enum stat_op op, int error);
/* Counts a request that is answered at once. */
void stats_count_answered(struct stats_block *block, enum stat_op op);
/* Counts one that was timed. */
void stats_latency(struct stats_block *block, enum stat_op op, uint64_t ns);

static inline void stats_add(_Atomic uint64_t *counter, uint64_t n)
{
	atomic_store_explicit(counter, atomic_load_explicit(counter, memory_order_relaxed) + n,
			      memory_order_relaxed);
}

/* Counts a request: whether it is one to be timed. */
static inline bool stats_count(struct stats_block *block, enum stat_op op)
{
	stats_add(&block->ops[op], 1);
	return atomic_load_explicit(&block->ops[op], memory_order_relaxed) % STATS_SAMPLE == 1;
}

#endif
