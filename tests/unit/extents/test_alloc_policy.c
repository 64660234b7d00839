/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
#include "fs/extents/alloc_policy.h"

#include "tests/unit/unit.h"

#define KIB 1024ULL
#define MIB (1ULL << 20)
#define GIB (1ULL << 30)

static struct chunk chunk;

static struct layout layout_with(uint64_t unit)
{
	return (struct layout){
	    .unit = unit, .max_chunk = 8 * GIB, .ceiling = (uint64_t)INT64_MAX & ~(GIB - 1)};
}

static void add(struct extents *extents, uint64_t offset, uint64_t bytes)
{
	struct extent extent = {offset, {&chunk, 0, bytes}};

	ck_assert_int_eq(extents_insert(extents, &extent), 0);
}

static void expect(const struct extents *extents, const struct layout *layout, uint64_t from,
		   uint64_t end, uint64_t wish, uint64_t offset, uint64_t bytes, uint64_t least)
{
	struct layout_piece piece;

	ck_assert(layout_next(extents, layout, from, end, wish, &piece));
	ck_assert_uint_eq(piece.offset, offset);
	ck_assert_uint_eq(piece.bytes, bytes);
	ck_assert_uint_eq(piece.min_bytes, least);
}

START_TEST(test_unit_by_size)
{
	ck_assert_uint_eq(layout_unit(PAGE_SIZE_AUTO, 1), 4 * KIB);
	ck_assert_uint_eq(layout_unit(PAGE_SIZE_AUTO, 4 * KIB), 4 * KIB);
	ck_assert_uint_eq(layout_unit(PAGE_SIZE_AUTO, 4 * KIB + 1), 64 * KIB);
	ck_assert_uint_eq(layout_unit(PAGE_SIZE_AUTO, 2 * MIB - 1), 64 * KIB);
	ck_assert_uint_eq(layout_unit(PAGE_SIZE_AUTO, 2 * MIB), 2 * MIB);
	ck_assert_uint_eq(layout_unit(PAGE_SIZE_4K, 5 * GIB), 4 * KIB);
	ck_assert_uint_eq(layout_unit(PAGE_SIZE_1G, 1), GIB);
}
END_TEST

START_TEST(test_wish)
{
	/* The preallocation doubles while the file is small, adds a quarter when the file is large,
	 * and never passes the announced size. */
	ck_assert_uint_eq(layout_prealloc_end(3 * MIB, 2 * MIB, 2 * MIB, GIB), 5 * MIB);
	ck_assert_uint_eq(layout_prealloc_end(4 * GIB, 0, 4 * GIB, 8 * GIB), 5 * GIB);
	ck_assert_uint_eq(layout_prealloc_end(4 * GIB, 0, 4 * GIB, 64 * MIB), 4 * GIB + 64 * MIB);
	ck_assert_uint_eq(layout_prealloc_end(3 * MIB, 4 * MIB, 2 * MIB, GIB), 4 * MIB);
	ck_assert_uint_eq(layout_prealloc_end(4 * MIB, 4 * MIB, 2 * MIB, GIB), 4 * MIB);
}
END_TEST

START_TEST(test_small_units)
{
	struct extents extents = {0};
	struct layout small = layout_with(64 * KIB), pages = layout_with(4 * KIB);

	expect(&extents, &pages, 10, 20, 20, 0, 4 * KIB, 4 * KIB);
	expect(&extents, &small, 70 * KIB, 130 * KIB, 0, 64 * KIB, 128 * KIB, 128 * KIB);
	/* No preallocation in the middle of a hole; preallocation after existing memory. */
	expect(&extents, &small, 64 * KIB, 65 * KIB, MIB, 64 * KIB, 64 * KIB, 64 * KIB);
	add(&extents, 0, 4 * KIB);
	expect(&extents, &small, 4 * KIB, 5 * KIB, 256 * KIB, 4 * KIB, 252 * KIB, 60 * KIB);
	/* Never across the end of the granule. */
	expect(&extents, &small, 4 * KIB, 3 * MIB, 4 * MIB, 4 * KIB, 2 * MIB - 4 * KIB,
	       2 * MIB - 4 * KIB);
	extents_free(&extents);
}
END_TEST

START_TEST(test_small_unit_takes_chunks_for_whole_granules)
{
	struct extents extents = {0};
	struct layout pages = layout_with(4 * KIB);

	expect(&extents, &pages, 0, 7 * MIB, 7 * MIB, 0, 6 * MIB, 6 * MIB);
	add(&extents, 0, 6 * MIB);
	expect(&extents, &pages, 0, 7 * MIB, 7 * MIB, 6 * MIB, MIB, MIB);
	expect(&extents, &pages, 9 * MIB, 20 * MIB, 20 * MIB, 9 * MIB, MIB, MIB);
	extents_free(&extents);
}
END_TEST

START_TEST(test_chunks)
{
	struct extents extents = {0};
	struct layout chunks = layout_with(2 * MIB);

	expect(&extents, &chunks, 5 * MIB, 5 * MIB + 1, 50 * MIB, 4 * MIB, 2 * MIB, 2 * MIB);
	add(&extents, 0, 4 * MIB);
	expect(&extents, &chunks, 4 * MIB, 5 * MIB, 9 * MIB, 4 * MIB, 6 * MIB, 2 * MIB);
	/* A later granule has small extents: the chunk ends before the granule. */
	add(&extents, 9 * MIB, 64 * KIB);
	expect(&extents, &chunks, 4 * MIB, 20 * MIB, 20 * MIB, 4 * MIB, 4 * MIB, 4 * MIB);
	/* The granule with small extents gets further small extents, of at most 64 KiB if 64 KiB
	 * are enough. */
	expect(&extents, &chunks, 8 * MIB, 8 * MIB + 1, 0, 8 * MIB, 64 * KIB, 64 * KIB);
	expect(&extents, &chunks, 8 * MIB, 20 * MIB, 20 * MIB, 8 * MIB, MIB, MIB);
	chunks.max_chunk = 2 * MIB;
	expect(&extents, &chunks, 4 * MIB, 8 * MIB, 8 * MIB, 4 * MIB, 2 * MIB, 2 * MIB);
	extents_free(&extents);
}
END_TEST

START_TEST(test_gigabytes)
{
	struct extents extents = {0};
	struct layout giga = layout_with(GIB);

	expect(&extents, &giga, GIB + 5, GIB + 6, 0, GIB, GIB, GIB);
	expect(&extents, &giga, GIB + 5, 3 * GIB, 0, GIB, 2 * GIB, 2 * GIB);
	giga.max_chunk = 64 * MIB;
	expect(&extents, &giga, GIB + 5, 3 * GIB, 0, GIB, GIB, GIB);
	add(&extents, GIB + 2 * MIB, 2 * MIB);
	giga.max_chunk = 8 * GIB;
	expect(&extents, &giga, GIB + 4 * MIB, 3 * GIB, 0, GIB + 4 * MIB, GIB - 4 * MIB,
	       GIB - 4 * MIB);
	extents_free(&extents);
}
END_TEST

START_TEST(test_stays_inside_floor_and_ceiling)
{
	struct extents extents = {0};
	struct layout giga = layout_with(GIB);

	giga.floor = 2 * MIB;
	giga.ceiling = 6 * MIB;
	expect(&extents, &giga, 3 * MIB, 5 * MIB, 100 * MIB, 2 * MIB, 4 * MIB, 4 * MIB);
}
END_TEST

/* Checks the rule of granules, for any sequence of allocations. */
static void check_rule(const struct extents *extents)
{
	EXTENTS_FOREACH (extent, extents) {
		uint64_t granule = extent->offset / CHUNK_ALIGN;
		uint64_t bytes = extent->span.bytes;

		if (bytes >= CHUNK_ALIGN) {
			ck_assert_uint_eq(extent->offset % CHUNK_ALIGN, 0);
			ck_assert_uint_eq(bytes % CHUNK_ALIGN, 0);
		} else {
			ck_assert_uint_eq((extent_end(extent) - 1) / CHUNK_ALIGN, granule);
			ck_assert_uint_eq(extent->offset % (4 * KIB), 0);
			ck_assert_uint_eq(bytes % (4 * KIB), 0);
		}
	}
}

static void fill(struct extents *extents, const struct layout *layout, uint64_t from, uint64_t end,
		 uint64_t wish)
{
	struct layout_piece piece;

	while (layout_next(extents, layout, from, end, wish, &piece)) {
		ck_assert_uint_ge(piece.bytes, piece.min_bytes);
		ck_assert_uint_gt(piece.min_bytes, 0);
		add(extents, piece.offset, piece.bytes);
	}
	ck_assert_uint_eq(extents_covered(extents, from, end), end);
}

START_TEST(test_random_keeps_the_rule)
{
	static const uint64_t units[] = {4 * KIB, 64 * KIB, 2 * MIB, GIB};
	uint64_t state = unit_seed();

	for (int round = 0; round < 300; round++) {
		struct extents extents = {0};

		for (int i = 0; i < 40; i++) {
			struct layout layout = layout_with(units[unit_random(&state) % 4]);
			uint64_t from = unit_random(&state) % (32 * MIB);
			uint64_t bytes = 1 + unit_random(&state) %
						 (unit_random(&state) % 2 ? 100 * KIB : 6 * MIB);
			uint64_t ahead = unit_random(&state) % (3 * MIB);

			if (layout.unit == GIB)
				layout.ceiling = 64 * MIB;
			fill(&extents, &layout, from, from + bytes, from + bytes + ahead);
			check_rule(&extents);
		}
		extents_free(&extents);
	}
}
END_TEST

int main(void)
{
	TCase *tcase;
	Suite *suite = unit_suite("alloc_policy", &tcase, 60);

	tcase_add_test(tcase, test_unit_by_size);
	tcase_add_test(tcase, test_wish);
	tcase_add_test(tcase, test_small_units);
	tcase_add_test(tcase, test_small_unit_takes_chunks_for_whole_granules);
	tcase_add_test(tcase, test_chunks);
	tcase_add_test(tcase, test_gigabytes);
	tcase_add_test(tcase, test_stays_inside_floor_and_ceiling);
	tcase_add_test(tcase, test_random_keeps_the_rule);
	return unit_main(suite);
}
