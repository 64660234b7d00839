/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
#include "backend/buddy.h"

#include <errno.h>
#include <string.h>

#include "tests/unit/unit.h"

#define BLOCK  4096ULL
#define BLOCKS ((unsigned)(BUDDY_BYTES / BLOCK))

/* The model that the buddy allocator is compared with: a flag per 4 KiB. */
struct model {
	bool taken[BLOCKS];
	unsigned n_taken;
};

static uint64_t power_above(uint64_t bytes)
{
	uint64_t power = BLOCK;
	while (power < bytes)
		power *= 2;
	return power;
}

static void model_set(struct model *model, uint64_t offset, uint64_t bytes, bool taken)
{
	unsigned changed = 0;

	for (unsigned i = offset / BLOCK; i < (offset + bytes) / BLOCK; i++) {
		changed += model->taken[i] != taken;
		model->taken[i] = taken;
	}
	ck_assert_uint_eq(changed, bytes / BLOCK);
	model->n_taken += taken ? changed : -changed;
}

/* Returns the largest free aligned power of two, found block by block. */
static uint64_t model_largest(const struct model *model)
{
	for (uint64_t size = BUDDY_BYTES; size >= BLOCK; size /= 2)
		for (uint64_t at = 0; at < BUDDY_BYTES; at += size) {
			unsigned i = at / BLOCK;
			while (i < (at + size) / BLOCK && !model->taken[i])
				i++;
			if (i == (at + size) / BLOCK)
				return size;
		}
	return 0;
}

static void expect_agreement(const struct buddy *buddy, const struct model *model)
{
	ck_assert_uint_eq(buddy->free_bytes, BUDDY_BYTES - model->n_taken * BLOCK);
	ck_assert_uint_eq(buddy_largest(buddy), model_largest(model));
	ck_assert_int_eq(buddy_is_empty(buddy), model->n_taken == 0);
}

START_TEST(every_size)
{
	for (uint64_t bytes = BLOCK; bytes <= BUDDY_BYTES; bytes += BLOCK) {
		struct buddy buddy;
		struct model model = {0};
		uint64_t offset;

		buddy_init(&buddy);
		ck_assert_int_eq(buddy_alloc(&buddy, bytes, &offset), 0);
		ck_assert_uint_eq(offset % power_above(bytes), 0);
		model_set(&model, offset, bytes, true);
		expect_agreement(&buddy, &model);
		buddy_free(&buddy, offset, bytes);
		model_set(&model, offset, bytes, false);
		expect_agreement(&buddy, &model);
	}
}
END_TEST

START_TEST(exhaustion)
{
	for (uint64_t bytes = BLOCK; bytes <= BUDDY_BYTES; bytes *= 2) {
		struct buddy buddy;
		struct model model = {0};
		uint64_t offset, untouched = 12345;

		buddy_init(&buddy);
		for (uint64_t n = 0; n < BUDDY_BYTES / bytes; n++) {
			ck_assert_int_eq(buddy_alloc(&buddy, bytes, &offset), 0);
			ck_assert_uint_eq(offset % bytes, 0);
			model_set(&model, offset, bytes, true);
		}
		ck_assert_uint_eq(buddy_largest(&buddy), 0);
		ck_assert_int_eq(buddy_alloc(&buddy, BLOCK, &untouched), -ENOSPC);
		ck_assert_uint_eq(untouched, 12345);
		for (uint64_t at = 0; at < BUDDY_BYTES; at += bytes)
			buddy_free(&buddy, at, bytes);
		ck_assert(buddy_is_empty(&buddy));
		ck_assert_uint_eq(buddy_largest(&buddy), BUDDY_BYTES);
	}
}
END_TEST

/* A state rebuilt from the allocations, in any order, equals the original state. */
START_TEST(taken_at_their_places)
{
	uint64_t state = unit_seed();

	for (int round = 0; round < 200; round++) {
		struct buddy buddy, again;
		uint64_t offsets[BLOCKS], bytes[BLOCKS];
		unsigned n = 0;

		buddy_init(&buddy);
		buddy_init(&again);
		do
			bytes[n] = (1 + unit_random(&state) % 40) * BLOCK;
		while (n < BLOCKS - 1 && buddy_alloc(&buddy, bytes[n], &offsets[n]) == 0 && ++n);
		for (unsigned i = 0; i < n; i += 1 + unit_random(&state) % 3) {
			buddy_free(&buddy, offsets[i], bytes[i]);
			bytes[i] = 0;
		}
		for (unsigned i = n; i-- > 0;)
			if (bytes[i])
				ck_assert_int_eq(buddy_alloc_at(&again, offsets[i], bytes[i]), 0);
		ck_assert_mem_eq(&again, &buddy, sizeof(buddy));
	}
}
END_TEST

START_TEST(what_is_taken_is_not_taken_again)
{
	struct buddy buddy, before;

	buddy_init(&buddy);
	ck_assert_int_eq(buddy_alloc_at(&buddy, 3 * BLOCK, BLOCK), 0);
	before = buddy;
	for (unsigned from = 0; from <= 3; from++) {
		ck_assert_int_eq(buddy_alloc_at(&buddy, from * BLOCK, (4 - from) * BLOCK), -EEXIST);
		ck_assert_mem_eq(&buddy, &before, sizeof(buddy));
	}
	ck_assert_int_eq(buddy_alloc_at(&buddy, 0, BUDDY_BYTES), -EEXIST);
	ck_assert_int_eq(buddy_alloc_at(&buddy, 0, 3 * BLOCK), 0);
	ck_assert_int_eq(buddy_alloc_at(&buddy, 4 * BLOCK, BUDDY_BYTES - 4 * BLOCK), 0);
	ck_assert_uint_eq(buddy.free_bytes, 0);
}
END_TEST

/* With every other block free, half of the bytes are free, and only a single block can be
 * allocated. */
START_TEST(fragmentation_and_coalescing)
{
	struct buddy buddy;
	uint64_t offset;

	buddy_init(&buddy);
	ck_assert_int_eq(buddy_alloc(&buddy, BUDDY_BYTES, &offset), 0);
	for (uint64_t at = 0; at < BUDDY_BYTES; at += 2 * BLOCK)
		buddy_free(&buddy, at, BLOCK);
	ck_assert_uint_eq(buddy.free_bytes, BUDDY_BYTES / 2);
	ck_assert_uint_eq(buddy_largest(&buddy), BLOCK);
	ck_assert_int_eq(buddy_alloc(&buddy, 2 * BLOCK, &offset), -ENOSPC);
	for (uint64_t at = BLOCK; at < BUDDY_BYTES; at += 2 * BLOCK)
		buddy_free(&buddy, at, BLOCK);
	ck_assert_uint_eq(buddy_largest(&buddy), BUDDY_BYTES);
}
END_TEST

START_TEST(surplus_is_usable)
{
	struct buddy buddy;
	uint64_t offset, rest;

	buddy_init(&buddy);
	ck_assert_int_eq(buddy_alloc(&buddy, BUDDY_BYTES - BLOCK, &offset), 0);
	ck_assert_uint_eq(offset, 0);
	ck_assert_int_eq(buddy_alloc(&buddy, BLOCK, &rest), 0);
	ck_assert_uint_eq(rest, BUDDY_BYTES - BLOCK);
	ck_assert_int_eq(buddy_alloc(&buddy, BLOCK, &rest), -ENOSPC);
}
END_TEST

START_TEST(partial_gives)
{
	struct buddy buddy;
	struct model model = {0};
	uint64_t offset;

	buddy_init(&buddy);
	ck_assert_int_eq(buddy_alloc(&buddy, 64 * BLOCK, &offset), 0);
	model_set(&model, offset, 64 * BLOCK, true);
	const unsigned parts[][2] = {{63, 1}, {0, 3}, {17, 30}, {3, 14}, {47, 16}};
	for (unsigned i = 0; i < 5; i++) {
		buddy_free(&buddy, offset + parts[i][0] * BLOCK, parts[i][1] * BLOCK);
		model_set(&model, offset + parts[i][0] * BLOCK, parts[i][1] * BLOCK, false);
		expect_agreement(&buddy, &model);
	}
	ck_assert(buddy_is_empty(&buddy));
}
END_TEST

/* Returns often a small size, and sometimes any size. */
static uint64_t random_size(uint64_t *state)
{
	uint64_t most = 1 + (BLOCKS - 1) / (1 + unit_random(state) % 64);
	return (1 + unit_random(state) % most) * BLOCK;
}

static void random_take(struct buddy *buddy, struct model *model, uint64_t *state)
{
	uint64_t bytes = random_size(state), offset;
	bool fits = model_largest(model) >= power_above(bytes);
	int rc = buddy_alloc(buddy, bytes, &offset);

	ck_assert_int_eq(rc, fits ? 0 : -ENOSPC);
	if (rc < 0)
		return;
	ck_assert_uint_eq(offset % power_above(bytes), 0);
	model_set(model, offset, bytes, true);
}

/* Frees a run of taken blocks, which may span several allocations. */
static void random_give(struct buddy *buddy, struct model *model, uint64_t *state)
{
	unsigned first = unit_random(state) % BLOCKS, n = 0;
	unsigned most = 1 + unit_random(state) % 100;

	while (n < most && first + n < BLOCKS && model->taken[first + n])
		n++;
	if (!n)
		return;
	buddy_free(buddy, first * BLOCK, n * BLOCK);
	model_set(model, first * BLOCK, n * BLOCK, false);
}

START_TEST(against_model)
{
	uint64_t state = unit_seed();
	struct buddy buddy;
	struct model model = {0};

	buddy_init(&buddy);
	for (int i = 0; i < 20000; i++) {
		if (unit_random(&state) % 3)
			random_give(&buddy, &model, &state);
		else
			random_take(&buddy, &model, &state);
		expect_agreement(&buddy, &model);
	}
}
END_TEST

int main(void)
{
	TCase *tcase;
	Suite *suite = unit_suite("buddy", &tcase, 120);
	tcase_add_test(tcase, every_size);
	tcase_add_test(tcase, exhaustion);
	tcase_add_test(tcase, fragmentation_and_coalescing);
	tcase_add_test(tcase, taken_at_their_places);
	tcase_add_test(tcase, what_is_taken_is_not_taken_again);
	tcase_add_test(tcase, surplus_is_usable);
	tcase_add_test(tcase, partial_gives);
	tcase_add_test(tcase, against_model);
	return unit_main(suite);
}
