/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
#include "fs/core/stats.h"

#include <errno.h>
#include <pthread.h>
#include <string.h>

#include "tests/unit/unit.h"

START_TEST(nothing_sums_to_zero)
{
	struct stats stats = {NULL};
	struct stats_totals totals, zero = {0};

	memset(&totals, 0xff, sizeof(totals));
	stats_sum(&stats, &totals);
	ck_assert_mem_eq(&totals, &zero, sizeof(totals));
	stats_free(&stats);
}
END_TEST

START_TEST(blocks_add_up)
{
	struct stats stats = {NULL};
	struct stats_totals totals;
	struct stats_block *a = stats_block_new(&stats), *b = stats_block_new(&stats);

	ck_assert(a && b && a != b);
	ck_assert_uint_eq((uintptr_t)a % 64, 0);
	ck_assert_uint_eq((uintptr_t)b % 64, 0);
	for (unsigned op = 0; op < STAT_OPS; op++) {
		stats_add(&a->ops[op], op + 1);
		stats_add(&b->ops[op], 100);
		stats_add(&b->errors[op], 1000 * op);
	}
	stats_add(&a->volumes[0].read_bytes, 1);
	stats_add(&b->volumes[0].read_bytes, 2);
	stats_add(&b->volumes[STATS_VOLUMES - 1].read_bytes, 30);
	stats_add(&a->volumes[1].write_bytes, 1ULL << 40);
	stats_add(&b->volumes[1].copy_bytes, 5);
	stats_add(&a->volumes[1].ahead_bytes, 8);
	stats_add(&a->volumes[1].requests, 6);
	stats_add(&b->volumes[1].requests, 7);

	stats_sum(&stats, &totals);
	for (unsigned op = 0; op < STAT_OPS; op++) {
		ck_assert_uint_eq(totals.ops[op], op + 101);
		ck_assert_uint_eq(totals.errors[op], 1000 * op);
	}
	ck_assert_uint_eq(totals.volumes[0].read_bytes, 3);
	ck_assert_uint_eq(totals.volumes[0].write_bytes, 0);
	ck_assert_uint_eq(totals.volumes[STATS_VOLUMES - 1].read_bytes, 30);
	ck_assert_uint_eq(totals.volumes[1].write_bytes, 1ULL << 40);
	ck_assert_uint_eq(totals.volumes[1].copy_bytes, 5);
	ck_assert_uint_eq(totals.volumes[1].ahead_bytes, 8);
	ck_assert_uint_eq(totals.volumes[1].requests, 13);
	ck_assert_uint_eq(totals.read_bytes, 33);
	ck_assert_uint_eq(totals.write_bytes, 1ULL << 40);
	ck_assert_uint_eq(totals.copy_bytes, 5);
	stats_free(&stats);
	ck_assert_ptr_null(atomic_load(&stats.blocks));
}
END_TEST

/* Threads that come and go need no more memory, and their counts stay. */
START_TEST(blocks_of_ended_workers_are_used_again)
{
	struct stats stats = {NULL};
	struct stats_totals totals;
	struct stats_block *a = stats_block_new(&stats), *b = stats_block_new(&stats);

	stats_add(&a->ops[STAT_READ], 3);
	stats_block_give_back(a);
	ck_assert_ptr_eq(stats_block_new(&stats), a);
	stats_add(&a->ops[STAT_READ], 4);
	struct stats_block *c = stats_block_new(&stats);
	ck_assert(c != a && c != b);
	stats_sum(&stats, &totals);
	ck_assert_uint_eq(totals.ops[STAT_READ], 7);
	stats_free(&stats);
}
END_TEST

START_TEST(some_answers_are_no_errors)
{
	ck_assert(stats_error_is_ordinary(STAT_READ, -EAGAIN));
	ck_assert(stats_error_is_ordinary(STAT_READ, -EWOULDBLOCK));
	ck_assert(stats_error_is_ordinary(STAT_WRITE, -EINTR));
	ck_assert(stats_error_is_ordinary(STAT_GETXATTR, -ENODATA));
	ck_assert(stats_error_is_ordinary(STAT_REMOVEXATTR, -ENODATA));
	ck_assert(stats_error_is_ordinary(STAT_LISTXATTR, -ERANGE));
	ck_assert(!stats_error_is_ordinary(STAT_SETXATTR, -ERANGE));
	ck_assert(stats_error_is_ordinary(STAT_LOOKUP, -ENOENT));
	ck_assert(!stats_error_is_ordinary(STAT_UNLINK, -ENOENT));
	ck_assert(stats_error_is_ordinary(STAT_LSEEK, -ENXIO));
	ck_assert(stats_error_is_ordinary(STAT_IOCTL, -ENOTTY));
	for (int op = 0; op < STAT_OPS; op++) {
		ck_assert(!stats_error_is_ordinary((enum stat_op)op, -EIO));
		ck_assert(!stats_error_is_ordinary((enum stat_op)op, -ENOSPC));
	}
}
END_TEST

static uint64_t timed(const struct stats_totals *totals, enum stat_op op)
{
	uint64_t count = 0;

	for (unsigned i = 0; i < STATS_BUCKETS; i++)
		count += totals->latencies[op][i];
	return count;
}

/* A latency falls into the first bucket with an upper end not below the latency. */
START_TEST(latencies_fall_into_buckets)
{
	struct stats stats = {NULL};
	struct stats_totals totals;
	struct stats_block *block = stats_block_new(&stats);
	uint64_t sum = 0;

	for (unsigned i = 0; i < STATS_BUCKETS - 1; i++) {
		ck_assert(i == 0 || stats_bucket_ns[i] > stats_bucket_ns[i - 1]);
		stats_latency(block, STAT_READ, stats_bucket_ns[i]);
		stats_latency(block, STAT_READ, stats_bucket_ns[i] + 1);
		sum += 2 * stats_bucket_ns[i] + 1;
	}
	stats_sum(&stats, &totals);
	ck_assert_uint_eq(totals.latencies[STAT_READ][0], 1);
	for (unsigned i = 1; i < STATS_BUCKETS - 1; i++)
		ck_assert_uint_eq(totals.latencies[STAT_READ][i], 2);
	ck_assert_uint_eq(totals.latencies[STAT_READ][STATS_BUCKETS - 1], 1);
	ck_assert_uint_eq(totals.latency_ns[STAT_READ], sum);
	ck_assert_uint_eq(timed(&totals, STAT_WRITE), 0);
	stats_free(&stats);
}
END_TEST

/* The first request of a kind is timed, and then every STATS_SAMPLE-th. */
START_TEST(some_requests_are_timed)
{
	struct stats stats = {NULL};
	struct stats_block *block = stats_block_new(&stats);
	unsigned count = 0;

	ck_assert(stats_count(block, STAT_OPEN));
	for (unsigned i = 1; i < 10 * STATS_SAMPLE; i++)
		count += stats_count(block, STAT_OPEN);
	ck_assert_uint_eq(count, 9);
	ck_assert(stats_count(block, STAT_READ));
	stats_free(&stats);
}
END_TEST

/* A worker is stuck if two successive checks find the worker at the same request. */
START_TEST(stuck_workers_are_counted)
{
	struct stats stats = {NULL};
	struct stats_block *busy = stats_block_new(&stats), *other = stats_block_new(&stats);

	ck_assert_ptr_nonnull(stats_block_new(&stats)); /* a worker without requests */
	stats_count(busy, STAT_READ);
	ck_assert_uint_eq(stats_stuck(&stats), 0);
	ck_assert_uint_eq(stats_stuck(&stats), 1);
	ck_assert_uint_eq(stats_stuck(&stats), 1);
	stats_count(other, STAT_WRITE);
	ck_assert_uint_eq(stats_stuck(&stats), 1);
	stats_add(&other->ended, 1);
	stats_count(other, STAT_READ); /* the next request */
	ck_assert_uint_eq(stats_stuck(&stats), 1);
	ck_assert_uint_eq(stats_stuck(&stats), 2);
	stats_add(&busy->ended, 1);
	stats_add(&other->ended, 1);
	ck_assert_uint_eq(stats_stuck(&stats), 0);
	stats_free(&stats);
}
END_TEST

/* The names are names in JSON and labels in metrics. */
START_TEST(names_are_distinct)
{
	for (enum stat_op op = 0; op < STAT_OPS; op++) {
		const char *name = stats_op_name(op);
		ck_assert_ptr_nonnull(name);
		ck_assert_uint_gt(strlen(name), 0);
		ck_assert_uint_eq(strspn(name, "abcdefghijklmnopqrstuvwxyz_"), strlen(name));
		for (enum stat_op other = 0; other < op; other++)
			ck_assert_str_ne(name, stats_op_name(other));
	}
	ck_assert_str_eq(stats_op_name(STAT_READ), "read");
	ck_assert_str_eq(stats_op_name(STAT_OPS), "unknown");
}
END_TEST

#define THREADS	    8
#define OPS	    20000
#define READ_STEP   3
#define TOTAL_READS ((uint64_t)THREADS * OPS)

static void *worker(void *stats)
{
	struct stats_block *block = stats_block_new(stats);

	for (unsigned i = 0; block && i < OPS; i++) {
		stats_add(&block->ops[STAT_READ], 1);
		stats_add(&block->volumes[i % 2].read_bytes, READ_STEP);
	}
	return block;
}

/* Blocks join while other threads count and the test thread sums: sums only grow, and no count is
 * lost. */
START_TEST(threads_join_and_count)
{
	struct stats stats = {NULL};
	struct stats_totals totals;
	pthread_t threads[THREADS];
	uint64_t last = 0;

	for (unsigned i = 0; i < THREADS; i++)
		ck_assert_int_eq(pthread_create(&threads[i], NULL, worker, &stats), 0);
	for (unsigned i = 0; i < 200; i++) {
		stats_sum(&stats, &totals);
		ck_assert_uint_ge(totals.ops[STAT_READ], last);
		last = totals.ops[STAT_READ];
	}
	for (unsigned i = 0; i < THREADS; i++) {
		void *block;
		pthread_join(threads[i], &block);
		ck_assert_ptr_nonnull(block);
	}
	stats_sum(&stats, &totals);
	ck_assert_uint_eq(totals.ops[STAT_READ], TOTAL_READS);
	ck_assert_uint_eq(totals.read_bytes, TOTAL_READS * READ_STEP);
	ck_assert_uint_eq(totals.ops[STAT_WRITE], 0);
	stats_free(&stats);
}
END_TEST

int main(void)
{
	TCase *tests;
	Suite *suite = unit_suite("stats", &tests, 120);

	tcase_add_test(tests, nothing_sums_to_zero);
	tcase_add_test(tests, blocks_add_up);
	tcase_add_test(tests, blocks_of_ended_workers_are_used_again);
	tcase_add_test(tests, some_answers_are_no_errors);
	tcase_add_test(tests, latencies_fall_into_buckets);
	tcase_add_test(tests, some_requests_are_timed);
	tcase_add_test(tests, stuck_workers_are_counted);
	tcase_add_test(tests, names_are_distinct);
	tcase_add_test(tests, threads_join_and_count);
	return unit_main(suite);
}
