/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
#include "fs/stats.h"

#include <stdlib.h>
#include <string.h>

static const char *const names[STAT_OPS] = {
    [STAT_LOOKUP] = "lookup",	     [STAT_GETATTR] = "getattr", [STAT_SETATTR] = "setattr",
    [STAT_CREATE] = "create",	     [STAT_UNLINK] = "unlink",	 [STAT_RENAME] = "rename",
    [STAT_READDIR] = "readdir",	     [STAT_OPEN] = "open",	 [STAT_READ] = "read",
    [STAT_WRITE] = "write",	     [STAT_FSYNC] = "fsync",	 [STAT_FALLOCATE] = "fallocate",
    [STAT_COPY] = "copy_file_range", [STAT_XATTR] = "xattr",	 [STAT_STATFS] = "statfs",
    [STAT_OTHER] = "other",
};

struct stats_block *stats_block_new(struct stats *stats)
{
	struct stats_block *block = aligned_alloc(_Alignof(struct stats_block), sizeof(*block));

	if (!block)
		return NULL;
	memset(block, 0, sizeof(*block));
	block->next = atomic_load_explicit(&stats->blocks, memory_order_relaxed);
	while (!atomic_compare_exchange_weak_explicit(&stats->blocks, &block->next, block,
						      memory_order_release, memory_order_relaxed))
		;
	return block;
}

static void sum_add(uint64_t *sum, const _Atomic uint64_t *counter)
{
	*sum += atomic_load_explicit(counter, memory_order_relaxed);
}

void stats_sum(struct stats *stats, struct stats_totals *totals)
{
	struct stats_totals sum = {0};

	for (struct stats_block *block = atomic_load_explicit(&stats->blocks, memory_order_acquire);
	     block; block = block->next) {
		for (unsigned op = 0; op < STAT_OPS; op++) {
			sum_add(&sum.ops[op], &block->ops[op]);
			sum_add(&sum.errors[op], &block->errors[op]);
		}
		sum_add(&sum.read_bytes, &block->read_bytes);
		sum_add(&sum.write_bytes, &block->write_bytes);
		sum_add(&sum.copy_bytes, &block->copy_bytes);
	}
	*totals = sum;
}

void stats_free(struct stats *stats)
{
	struct stats_block *block = atomic_exchange(&stats->blocks, NULL);

	while (block) {
		struct stats_block *next = block->next;
		free(block);
		block = next;
	}
}

const char *stats_op_name(enum stat_op op)
{
	return (unsigned)op < STAT_OPS ? names[op] : "unknown";
}
