/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
#include "fs/fuse/prefetch.h"

#include <stdbool.h>

#include "tests/unit/unit.h"

#define MIB    (1ULL << 20)
#define GIB    (1ULL << 30)
#define WINDOW 8 /* requests of 1 MiB */

static struct prefetch prefetch;

static void up(void)
{
	prefetch = (struct prefetch){.clock = 0};
}

static bool note(uint64_t ino, uint64_t offset, uint64_t size)
{
	return prefetch_note(&prefetch, &(struct prefetch_job){ino, offset, offset + MIB, 77},
			     size);
}

static struct prefetch_stream *stream_of(uint64_t ino)
{
	for (int i = 0; i < PREFETCH_STREAMS; i++)
		if (prefetch.streams[i].ino == ino && prefetch.streams[i].used)
			return &prefetch.streams[i];
	return NULL;
}

/* A window of the kernel, whose requests arrive in any order. Whether there was a new job. */
static bool window(uint64_t ino, uint64_t offset, uint64_t size, uint64_t *state)
{
	unsigned left = (1U << WINDOW) - 1;
	bool any = false;

	while (left) {
		unsigned i = unit_random(state) % WINDOW;
		if (left >> i & 1 && offset + i * MIB < size)
			any = note(ino, offset + i * MIB, size) || any;
		left &= ~(1U << i);
	}
	return any;
}

/* A program reads a file of this size, and the kernel asks for pages that were not filled. */
static void read_whole(uint64_t start, uint64_t size, uint64_t *state)
{
	uint64_t at = start, filled = start;

	up();
	while (at < size) {
		if (window(5, at, size, state)) {
			const struct prefetch_job *job = &stream_of(5)->job;
			ck_assert_uint_eq(job->ino, 5);
			ck_assert_int_eq(job->reader, 77);
			ck_assert_uint_ge(job->from, filled);
			ck_assert_uint_gt(job->to, job->from);
			ck_assert_uint_le(job->to, size);
			/* Two windows may be read when the first request of the second arrives. */
			ck_assert_uint_le(job->to - job->from, at + 2 * WINDOW * MIB - start);
			ck_assert_uint_le(job->to - job->from, GIB);
			filled = job->to;
		}
		at += WINDOW * MIB;
		at = at < filled ? filled : at;
	}
	/* The last windows may be the kernel's. */
	if (size - start >= 100 * MIB)
		ck_assert_uint_ge(filled + 2ULL * WINDOW * MIB, size);
}

START_TEST(whole_files_are_filled_ahead)
{
	uint64_t state = unit_seed();

	for (int i = 0; i < 100; i++) {
		uint64_t start = unit_random(&state) % 2 ? 0 : unit_random(&state) % 100 * MIB;
		read_whole(start, start + (unit_random(&state) % 8000 + 64) * MIB, &state);
	}
}
END_TEST

START_TEST(short_streams_are_not)
{
	uint64_t state = unit_seed();

	for (uint64_t at = 0; at + WINDOW * MIB < 32 * MIB; at += WINDOW * MIB)
		ck_assert(!window(5, at, GIB, &state));
	ck_assert(window(5, 24 * MIB, GIB, &state));
	up();
	for (uint64_t at = 0; at < 32 * MIB; at += MIB)
		ck_assert(!note(5, at, 32 * MIB));
}
END_TEST

START_TEST(readers_at_random_are_not)
{
	uint64_t state = unit_seed();

	for (int i = 0; i < 10000; i++)
		ck_assert(!note(5, unit_random(&state) % 4000 * 33 * MIB, 4001 * 33 * MIB));
}
END_TEST

/* Of as many files as there are streams, read by turns. */
START_TEST(streams_side_by_side)
{
	uint64_t state = unit_seed();

	for (uint64_t at = 0; at < 24 * MIB; at += WINDOW * MIB)
		for (uint64_t ino = 1; ino <= PREFETCH_STREAMS; ino++)
			ck_assert(!window(ino, at, GIB, &state));
	for (uint64_t ino = 1; ino <= PREFETCH_STREAMS; ino++)
		ck_assert(window(ino, 24 * MIB, GIB, &state));
	/* One more takes the place of the stream that was used least recently. */
	note(PREFETCH_STREAMS + 1, 0, GIB);
	ck_assert_ptr_null(stream_of(1));
	ck_assert_ptr_nonnull(stream_of(2));
}
END_TEST

/* A program that begins anew, in the same file. */
START_TEST(a_second_stream_of_a_file)
{
	uint64_t state = unit_seed();

	for (uint64_t at = 0; at < 200 * MIB; at += WINDOW * MIB)
		window(5, at, GIB, &state);
	for (uint64_t at = 600 * MIB; at < 624 * MIB; at += WINDOW * MIB)
		ck_assert(!window(5, at, GIB, &state));
	ck_assert(window(5, 624 * MIB, GIB, &state));
}
END_TEST

int main(void)
{
	TCase *tests;
	Suite *suite = unit_suite("prefetch", &tests, 60);

	tcase_add_checked_fixture(tests, up, NULL);
	tcase_add_test(tests, whole_files_are_filled_ahead);
	tcase_add_test(tests, short_streams_are_not);
	tcase_add_test(tests, readers_at_random_are_not);
	tcase_add_test(tests, streams_side_by_side);
	tcase_add_test(tests, a_second_stream_of_a_file);
	return unit_main(suite);
}
