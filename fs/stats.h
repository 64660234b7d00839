/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* Counters of what the daemon did, one block per worker so that counting shares no cache line. */
#ifndef FS_STATS_H
#define FS_STATS_H

#include <stdatomic.h>
#include <stdint.h>

#include "common/lines.h"

enum stat_op {
	STAT_LOOKUP,
	STAT_GETATTR,
	STAT_SETATTR,
	STAT_CREATE,
	STAT_UNLINK,
	STAT_RENAME,
	STAT_READDIR,
	STAT_OPEN,
	STAT_READ,
	STAT_WRITE,
	STAT_FSYNC,
	STAT_FALLOCATE,
	STAT_COPY,
	STAT_XATTR,
	STAT_STATFS,
	STAT_OTHER,
	STAT_OPS
};

/* Written by its worker only (relaxed), read by anyone. */
struct stats_block {
	_Alignas(LINES_ALIGN) _Atomic uint64_t ops[STAT_OPS];
	_Atomic uint64_t errors[STAT_OPS];
	_Atomic uint64_t read_bytes, write_bytes, copy_bytes;
	struct stats_block *next; /* in struct stats; set once */
};

struct stats_totals {
	uint64_t ops[STAT_OPS], errors[STAT_OPS], read_bytes, write_bytes, copy_bytes;
};

struct stats {
	_Atomic(struct stats_block *)
	    blocks; /* a push-only list: blocks live as long as the daemon */
};

struct stats_block *stats_block_new(struct stats *stats); /* NULL: no memory */
void stats_sum(struct stats *stats, struct stats_totals *totals);
void stats_free(struct stats *stats);
const char *stats_op_name(enum stat_op op);

static inline void stats_add(_Atomic uint64_t *counter, uint64_t n)
{
	atomic_store_explicit(counter, atomic_load_explicit(counter, memory_order_relaxed) + n,
			      memory_order_relaxed);
}

#endif
