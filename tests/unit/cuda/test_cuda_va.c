/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
#include "backend/cuda/va.h"

#include <errno.h>
#include <stdbool.h>

#include "backend/backend.h"
#include "tests/unit/unit.h"

#define UNITS 197 /* a few words and a part of a word */

/* The model that va is compared with: a flag per unit. */
struct model {
	bool taken[UNITS];
};

/* Returns the lowest hole of the given number of units, or UNITS. */
static unsigned model_fit(const struct model *model, unsigned units)
{
	for (unsigned at = 0; at + units <= UNITS; at++) {
		unsigned n = 0;
		while (n < units && !model->taken[at + n])
			n++;
		if (n == units)
			return at;
	}
	return UNITS;
}

static void model_set(struct model *model, unsigned at, unsigned units, bool taken)
{
	for (unsigned i = at; i < at + units; i++) {
		ck_assert_int_ne(model->taken[i], taken);
		model->taken[i] = taken;
	}
}

START_TEST(whole_range)
{
	struct va va;
	uint64_t offset;

	ck_assert_int_eq(va_init(&va, UNITS * CHUNK_ALIGN), 0);
	ck_assert_int_eq(va_alloc(&va, (UNITS + 1) * CHUNK_ALIGN, &offset), -ENOSPC);
	ck_assert_int_eq(va_alloc(&va, UNITS * CHUNK_ALIGN, &offset), 0);
	ck_assert_uint_eq(offset, 0);
	ck_assert_int_eq(va_alloc(&va, CHUNK_ALIGN, &offset), -ENOSPC);
	va_free(&va, 0, UNITS * CHUNK_ALIGN);
	ck_assert_int_eq(va_alloc(&va, CHUNK_ALIGN, &offset), 0);
	ck_assert_uint_eq(offset, 0);
	va_destroy(&va);
}
END_TEST

/* Freed units between two holes merge with the holes. */
START_TEST(holes_merge)
{
	struct va va;
	uint64_t offset;

	ck_assert_int_eq(va_init(&va, 4 * CHUNK_ALIGN), 0);
	for (unsigned i = 0; i < 4; i++)
		ck_assert_int_eq(va_alloc(&va, CHUNK_ALIGN, &offset), 0);
	va_free(&va, 0, CHUNK_ALIGN);
	va_free(&va, 2 * CHUNK_ALIGN, CHUNK_ALIGN);
	ck_assert_int_eq(va_alloc(&va, 2 * CHUNK_ALIGN, &offset), -ENOSPC);
	va_free(&va, CHUNK_ALIGN, CHUNK_ALIGN);
	ck_assert_int_eq(va_alloc(&va, 3 * CHUNK_ALIGN, &offset), 0);
	ck_assert_uint_eq(offset, 0);
	va_destroy(&va);
}
END_TEST

struct piece {
	unsigned at, units;
};

static void random_take(struct va *va, struct model *model, struct piece *piece, uint64_t *state)
{
	unsigned units = 1 + (unsigned)(unit_random(state) % 40);
	unsigned wanted = model_fit(model, units);
	uint64_t offset;

	int rc = va_alloc(va, units * CHUNK_ALIGN, &offset);
	if (wanted == UNITS) {
		ck_assert_int_eq(rc, -ENOSPC);
		return;
	}
	ck_assert_int_eq(rc, 0);
	ck_assert_uint_eq(offset, wanted * CHUNK_ALIGN);
	model_set(model, wanted, units, true);
	*piece = (struct piece){.at = wanted, .units = units};
}

START_TEST(against_model)
{
	uint64_t state = unit_seed();
	struct va va;
	struct model model = {0};
	struct piece pieces[24] = {0};

	ck_assert_int_eq(va_init(&va, UNITS * CHUNK_ALIGN), 0);
	for (unsigned i = 0; i < 20000; i++) {
		struct piece *piece = &pieces[unit_random(&state) % 24];
		if (!piece->units) {
			random_take(&va, &model, piece, &state);
			continue;
		}
		va_free(&va, piece->at * CHUNK_ALIGN, piece->units * CHUNK_ALIGN);
		model_set(&model, piece->at, piece->units, false);
		piece->units = 0;
	}
	va_destroy(&va);
}
END_TEST

int main(void)
{
	TCase *tcase;
	Suite *suite = unit_suite("cuda_va", &tcase, 60);
	tcase_add_test(tcase, whole_range);
	tcase_add_test(tcase, holes_merge);
	tcase_add_test(tcase, against_model);
	return unit_main(suite);
}
