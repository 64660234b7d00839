/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* The ranges of an arena, compared with a model that knows the owner of every unit. */
#include "client/lib/arena/ranges.h"

#include <errno.h>
#include <stdlib.h>

#include "tests/unit/unit.h"

#define UNIT	   512ULL
#define UNITS_MAX  4096
#define LIVE_MAX   200
#define STEPS	   2000
#define ALIGNS_MAX 6 /* up to 16 KiB */

static struct arena_ranges ranges;
static unsigned char taken[UNITS_MAX];
static struct {
	uint64_t offset, bytes;
} live[LIVE_MAX];
static size_t n_live;

static uint64_t alloc(uint64_t bytes, uint64_t alignment)
{
	uint64_t offset;

	ck_assert_int_eq(arena_ranges_alloc(&ranges, bytes, alignment, &offset), 0);
	return offset;
}

static int refuses(uint64_t bytes, uint64_t alignment)
{
	uint64_t offset;

	return arena_ranges_alloc(&ranges, bytes, alignment, &offset) == -ENOSPC;
}

/* Sorted, without gaps, and no two free neighbours. */
static void check_order(void)
{
	uint64_t end = 0;

	for (size_t i = 0; i < ranges.n; i++) {
		ck_assert_uint_eq(ranges.ranges[i].offset, end);
		ck_assert_uint_gt(ranges.ranges[i].bytes, 0);
		if (i)
			ck_assert(ranges.ranges[i].allocated || ranges.ranges[i - 1].allocated);
		end += ranges.ranges[i].bytes;
	}
	ck_assert_uint_eq(end, ranges.end);
}

static void mark(uint64_t offset, uint64_t bytes, unsigned char value)
{
	for (uint64_t at = offset / UNIT; at < (offset + bytes) / UNIT; at++) {
		ck_assert_uint_ne(taken[at], value);
		taken[at] = value;
	}
}

/* The first place in the model where the bytes fit, or the end of the arena. */
static uint64_t model_place(uint64_t bytes, uint64_t alignment)
{
	uint64_t run;

	for (uint64_t at = 0; at + bytes <= ranges.end; at += alignment) {
		for (run = 0; run < bytes && !taken[(at + run) / UNIT]; run += UNIT)
			;
		if (run >= bytes)
			return at;
	}
	return ranges.end;
}

static void alloc_somewhere(uint64_t *seed)
{
	uint64_t bytes = (1 + unit_random(seed) % 64) * UNIT;
	uint64_t alignment = UNIT << unit_random(seed) % ALIGNS_MAX, offset;
	uint64_t wanted = model_place(bytes, alignment);

	if (n_live == LIVE_MAX)
		return;
	if (wanted == ranges.end) {
		ck_assert(refuses(bytes, alignment));
		uint64_t missing = arena_ranges_missing(&ranges, bytes, alignment);
		ck_assert_uint_gt(missing, 0);
		if (ranges.end + missing > UNITS_MAX * UNIT)
			return;
		ck_assert_int_eq(arena_ranges_grow(&ranges, missing - UNIT), 0);
		ck_assert(refuses(bytes, alignment));
		ck_assert_int_eq(arena_ranges_grow(&ranges, UNIT), 0);
		offset = alloc(bytes, alignment);
		ck_assert_uint_eq(offset + bytes, ranges.end);
	} else {
		offset = alloc(bytes, alignment);
		ck_assert_uint_eq(offset, wanted);
	}
	ck_assert_uint_eq(offset % alignment, 0);
	mark(offset, bytes, 1);
	live[n_live].offset = offset;
	live[n_live++].bytes = bytes;
}

static void free_one(uint64_t *seed)
{
	if (!n_live)
		return;
	size_t which = unit_random(seed) % n_live;

	ck_assert_int_eq(arena_ranges_free(&ranges, live[which].offset + UNIT / 2), -EINVAL);
	ck_assert_int_eq(arena_ranges_free(&ranges, live[which].offset),
			 (int64_t)live[which].bytes);
	ck_assert_int_eq(arena_ranges_free(&ranges, live[which].offset), -EINVAL);
	mark(live[which].offset, live[which].bytes, 0);
	live[which] = live[--n_live];
}

static void forget(void)
{
	free(ranges.ranges);
	ranges = (struct arena_ranges){0};
}

START_TEST(as_the_model)
{
	uint64_t seed = unit_seed();

	for (int i = 0; i < STEPS; i++) {
		if (unit_random(&seed) % 100 < 52)
			alloc_somewhere(&seed);
		else
			free_one(&seed);
		check_order();
	}
	while (n_live)
		free_one(&seed);
	ck_assert_uint_eq(ranges.n, 1);
	forget();
}
END_TEST

START_TEST(an_empty_arena)
{
	ck_assert(refuses(UNIT, UNIT));
	ck_assert_int_eq(arena_ranges_free(&ranges, 0), -EINVAL);
	ck_assert_uint_eq(arena_ranges_missing(&ranges, 3 * UNIT, UNIT), 3 * UNIT);
	forget();
}
END_TEST

START_TEST(freed_neighbours_are_one_range)
{
	uint64_t at[4];

	ck_assert_int_eq(arena_ranges_grow(&ranges, 4 * UNIT), 0);
	for (int i = 0; i < 4; i++)
		at[i] = alloc(UNIT, UNIT);
	ck_assert_int_eq(arena_ranges_free(&ranges, at[1]), UNIT);
	ck_assert_int_eq(arena_ranges_free(&ranges, at[2]), UNIT);
	ck_assert(refuses(3 * UNIT, UNIT));
	ck_assert_uint_eq(alloc(2 * UNIT, UNIT), at[1]);
	ck_assert_int_eq(arena_ranges_free(&ranges, at[3]), UNIT);
	ck_assert_uint_eq(arena_ranges_missing(&ranges, 5 * UNIT, UNIT), 4 * UNIT);
	forget();
}
END_TEST

int main(void)
{
	TCase *tcase;
	Suite *suite = unit_suite("client_arena", &tcase, 60);

	tcase_add_test(tcase, as_the_model);
	tcase_add_test(tcase, an_empty_arena);
	tcase_add_test(tcase, freed_neighbours_are_one_range);
	return unit_main(suite);
}
