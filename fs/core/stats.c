/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
#include "fs/core/stats.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

static const char *const operation_names[STAT_OPS] = {
    [STAT_LOOKUP] = "lookup",
    [STAT_FORGET] = "forget",
    [STAT_BATCH_FORGET] = "batch_forget",
    [STAT_GETATTR] = "getattr",
    [STAT_STATX] = "statx",
    [STAT_SETATTR] = "setattr",
    [STAT_CREATE] = "create",
    [STAT_TMPFILE] = "tmpfile",
    [STAT_MKDIR] = "mkdir",
    [STAT_MKNOD] = "mknod",
    [STAT_SYMLINK] = "symlink",
    [STAT_READLINK] = "readlink",
    [STAT_LINK] = "link",
    [STAT_UNLINK] = "unlink",
    [STAT_RMDIR] = "rmdir",
    [STAT_RENAME] = "rename",
    [STAT_OPENDIR] = "opendir",
    [STAT_READDIR] = "readdir",
    [STAT_READDIRPLUS] = "readdirplus",
    [STAT_FSYNCDIR] = "fsyncdir",
    [STAT_OPEN] = "open",
    [STAT_RELEASE] = "release",
    [STAT_READ] = "read",
    [STAT_WRITE] = "write",
    [STAT_LSEEK] = "lseek",
    [STAT_FLUSH] = "flush",
    [STAT_FSYNC] = "fsync",
    [STAT_FALLOCATE] = "fallocate",
    [STAT_COPY] = "copy_file_range",
    [STAT_GETXATTR] = "getxattr",
    [STAT_SETXATTR] = "setxattr",
    [STAT_LISTXATTR] = "listxattr",
    [STAT_REMOVEXATTR] = "removexattr",
    [STAT_STATFS] = "statfs",
    [STAT_IOCTL] = "ioctl",
    [STAT_POLL] = "poll",
};

#define US 1000ULL
#define MS 1000000ULL

const uint64_t stats_bucket_ns[STATS_BUCKETS - 1] = {
    5 * US, 10 * US, 25 * US, 50 * US, 100 * US, 250 * US, 500 * US,  1 * MS,
    5 * MS, 10 * MS, 25 * MS, 50 * MS, 100 * MS, 500 * MS, 1000 * MS,
};

static struct stats_block *block_of_ended_worker(struct stats *stats)
{
	struct stats_block *block = atomic_load_explicit(&stats->blocks, memory_order_acquire);

	while (block && atomic_exchange_explicit(&block->owned, true, memory_order_acquire))
		block = block->next;
	return block;
}

void stats_block_give_back(struct stats_block *block)
{
	if (block)
		atomic_store_explicit(&block->owned, false, memory_order_release);
}

struct stats_block *stats_block_new(struct stats *stats)
{
	struct stats_block *block = block_of_ended_worker(stats);

	if (block)
		return block;
	block = aligned_alloc(_Alignof(struct stats_block), sizeof(*block));
	if (!block)
		return NULL;
	memset(block, 0, sizeof(*block));
	atomic_store_explicit(&block->owned, true, memory_order_relaxed);
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

static void sum_volume(struct stats_volume_totals *sum, const struct stats_volume *volume)
{
	sum_add(&sum->requests, &volume->requests);
	sum_add(&sum->read_bytes, &volume->read_bytes);
	sum_add(&sum->ahead_bytes, &volume->ahead_bytes);
	sum_add(&sum->write_bytes, &volume->write_bytes);
	sum_add(&sum->copy_bytes, &volume->copy_bytes);
}

struct stats_volume_totals stats_sum_volume(struct stats *stats, unsigned volume)
{
	struct stats_volume_totals sum = {0};

	for (struct stats_block *block = atomic_load_explicit(&stats->blocks, memory_order_acquire);
	     block; block = block->next)
		sum_volume(&sum, &block->volumes[volume]);
	return sum;
}

void stats_sum(struct stats *stats, struct stats_totals *totals)
{
	struct stats_totals sum = {0};

	for (struct stats_block *block = atomic_load_explicit(&stats->blocks, memory_order_acquire);
	     block; block = block->next) {
		for (unsigned op = 0; op < STAT_OPS; op++) {
			sum_add(&sum.ops[op], &block->ops[op]);
			sum_add(&sum.errors[op], &block->errors[op]);
			sum_add(&sum.latency_ns[op], &block->latency_ns[op]);
			for (unsigned i = 0; i < STATS_BUCKETS; i++)
				sum_add(&sum.latencies[op][i], &block->latencies[op][i]);
		}
		for (unsigned i = 0; i < STATS_VOLUMES; i++)
			sum_volume(&sum.volumes[i], &block->volumes[i]);
	}
	for (unsigned i = 0; i < STATS_VOLUMES; i++) {
		sum.read_bytes += sum.volumes[i].read_bytes;
		sum.write_bytes += sum.volumes[i].write_bytes;
		sum.copy_bytes += sum.volumes[i].copy_bytes;
	}
	*totals = sum;
}

unsigned stats_stuck(struct stats *stats)
{
	unsigned stuck = 0;

	for (struct stats_block *block = atomic_load_explicit(&stats->blocks, memory_order_acquire);
	     block; block = block->next) {
		uint64_t begun = 0, ended = 0;

		/* Sum up ended first: a request that begins meanwhile makes the worker look busy,
		 * but not a second time. */
		sum_add(&ended, &block->ended);
		for (unsigned op = 0; op < STAT_OPS; op++)
			sum_add(&begun, &block->ops[op]);
		stuck += begun != ended && begun == block->ended_before;
		block->ended_before = begun != ended ? begun : 0;
	}
	return stuck;
}

void stats_latency(struct stats_block *block, enum stat_op op, uint64_t ns)
{
	unsigned bucket = 0;

	while (bucket < STATS_BUCKETS - 1 && ns > stats_bucket_ns[bucket])
		bucket++;
	stats_add(&block->latencies[op][bucket], 1);
	stats_add(&block->latency_ns[op], ns);
}

void stats_count_answered(struct stats_block *block, enum stat_op op)
{
	stats_add(&block->ops[op], 1);
	stats_add(&block->ended, 1);
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

bool stats_error_is_ordinary(enum stat_op op, int error)
{
	switch (-error) {
	case EAGAIN:
	case EINTR:
	case ENODATA:
		return true;
	case ENOENT:
		return op == STAT_LOOKUP;
	case ENXIO:
		return op == STAT_LSEEK;
	case ENOTTY:
	case ESRCH:
		return op == STAT_IOCTL;
	case ERANGE:
	case EOPNOTSUPP:
		return op == STAT_GETXATTR || op == STAT_LISTXATTR;
	default:
		return false;
	}
}

const char *stats_op_name(enum stat_op op)
{
	return (unsigned)op < STAT_OPS ? operation_names[op] : "unknown";
}
