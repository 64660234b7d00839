/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
#include "fs/extents/extents.h"

#include <errno.h>
#include <string.h>

#include "tests/unit/unit.h"

#define BLOCKS 256 /* of the model: a byte of extents each */

static struct chunk chunk;

static struct extent make(uint64_t offset, uint64_t bytes, uint64_t in_chunk)
{
	return (struct extent){.offset = offset, .span = {&chunk, in_chunk, bytes}};
}

static void insert(struct extents *extents, uint64_t offset, uint64_t bytes, uint64_t in_chunk)
{
	struct extent extent = make(offset, bytes, in_chunk);

	ck_assert_int_eq(extents_insert(extents, &extent), 0);
}

START_TEST(test_find_and_covered)
{
	struct extents extents = {0};

	insert(&extents, 100, 50, 0);
	insert(&extents, 0, 10, 500);
	insert(&extents, 150, 50, 50);
	ck_assert_uint_eq(extents.count, 3);
	ck_assert_uint_eq(extents_find(&extents, 0), 0);
	ck_assert_uint_eq(extents_find(&extents, 9), 0);
	ck_assert_uint_eq(extents_find(&extents, 10), 1);
	ck_assert_uint_eq(extents_find(&extents, 149), 1);
	ck_assert_uint_eq(extents_find(&extents, 150), 2);
	ck_assert_uint_eq(extents_find(&extents, 200), 3);
	ck_assert_uint_eq(extents_covered(&extents, 100, 1000), 200);
	ck_assert_uint_eq(extents_covered(&extents, 120, 180), 180);
	ck_assert_uint_eq(extents_covered(&extents, 10, 20), 10);
	ck_assert_uint_eq(extents_end(&extents), 200);
	ck_assert_uint_eq(extents_missing(&extents, 0, 300), 190);
	extents_free(&extents);
}
END_TEST

START_TEST(test_holes)
{
	struct extents extents = {0};
	struct extents_hole hole;

	ck_assert(extents_hole(&extents, 5, 6, &hole));
	ck_assert_uint_eq(hole.start, 0);
	ck_assert_uint_eq(hole.end, UINT64_MAX);

	insert(&extents, 0, 10, 0);
	insert(&extents, 20, 10, 10);
	insert(&extents, 30, 10, 20);
	ck_assert(!extents_hole(&extents, 0, 10, &hole));
	ck_assert(!extents_hole(&extents, 20, 40, &hole));
	ck_assert(extents_hole(&extents, 15, 16, &hole));
	ck_assert_uint_eq(hole.start, 10);
	ck_assert_uint_eq(hole.end, 20);
	ck_assert(extents_hole(&extents, 5, 40, &hole));
	ck_assert_uint_eq(hole.start, 10);
	ck_assert(extents_hole(&extents, 25, 100, &hole));
	ck_assert_uint_eq(hole.start, 40);
	ck_assert_uint_eq(hole.end, UINT64_MAX);
	extents_free(&extents);
}
END_TEST

START_TEST(test_cut_splits_at_borders)
{
	struct extents extents = {0}, cut = {0};

	insert(&extents, 0, 100, 1000);
	ck_assert_int_eq(extents_cut(&extents, 30, 60, &cut), 0);
	ck_assert_uint_eq(extents.count, 2);
	ck_assert_uint_eq(extents.at[0].span.bytes, 30);
	ck_assert_uint_eq(extents.at[1].offset, 60);
	ck_assert_uint_eq(extents.at[1].span.offset, 1060);
	ck_assert_uint_eq(extents.at[1].span.bytes, 40);
	ck_assert_uint_eq(cut.count, 1);
	ck_assert_uint_eq(cut.at[0].offset, 30);
	ck_assert_uint_eq(cut.at[0].span.offset, 1030);
	ck_assert_uint_eq(cut.at[0].span.bytes, 30);

	ck_assert_int_eq(extents_cut(&extents, 35, 55, &cut), 0);
	ck_assert_uint_eq(extents.count, 2);
	extents_free(&extents);
	extents_free(&cut);
}
END_TEST

/* The model: the chunk offset of every block, or 0 for a hole. */
struct model {
	uint64_t at[BLOCKS];
	uint64_t next;
};

static void check_walk(const struct extents *extents, const struct model *model, uint64_t from,
		       uint64_t to)
{
	struct extents_walk walk = extents_walk(extents, from, to);
	struct segment segment;
	uint64_t at = from;

	while (extents_next(&walk, &segment)) {
		ck_assert_uint_eq(segment.offset, at);
		ck_assert_uint_gt(segment.bytes, 0);
		for (uint64_t i = 0; i < segment.bytes; i++, at++) {
			uint64_t found =
			    segment.span ? segment.span->offset + segment.span_offset + i : 0;

			ck_assert_uint_eq(found, model->at[at]);
		}
	}
	ck_assert_uint_eq(at, from < to ? to : from);
}

static void add_somewhere(struct extents *extents, struct model *model, uint64_t from, uint64_t to)
{
	struct extents_hole hole;

	if (!extents_hole(extents, from, to, &hole))
		return;

	uint64_t start = hole.start > from ? hole.start : from;
	uint64_t end = hole.end < to ? hole.end : to;

	insert(extents, start, end - start, model->next);
	for (uint64_t i = start; i < end; i++)
		model->at[i] = model->next++;
}

static void cut_somewhere(struct extents *extents, struct model *model, uint64_t from, uint64_t to)
{
	struct extents cut = {0};
	uint64_t bytes = 0, expected = 0;

	ck_assert_int_eq(extents_cut(extents, from, to, &cut), 0);
	for (uint64_t i = from; i < to; i++) {
		expected += model->at[i] != 0;
		model->at[i] = 0;
	}
	EXTENTS_FOREACH (extent, &cut)
		bytes += extent->span.bytes;
	ck_assert_uint_eq(bytes, expected);
	extents_free(&cut);
}

START_TEST(test_random_against_array)
{
	uint64_t state = unit_seed();
	struct extents extents = {0};
	struct model model = {.next = 1};

	for (int i = 0; i < 20000; i++) {
		uint64_t from = unit_random(&state) % BLOCKS;
		uint64_t to = from + 1 + unit_random(&state) % (BLOCKS - from);

		if (unit_random(&state) % 2)
			add_somewhere(&extents, &model, from, to);
		else
			cut_somewhere(&extents, &model, from, to);
		check_walk(&extents, &model, from / 2, to);
	}
	check_walk(&extents, &model, 0, BLOCKS);
	extents_free(&extents);
}
END_TEST

int main(void)
{
	TCase *tcase;
	Suite *suite = unit_suite("extents", &tcase, 60);

	tcase_add_test(tcase, test_find_and_covered);
	tcase_add_test(tcase, test_holes);
	tcase_add_test(tcase, test_cut_splits_at_borders);
	tcase_add_test(tcase, test_random_against_array);
	return unit_main(suite);
}
