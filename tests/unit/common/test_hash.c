/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* Hash tables without memory: the caller learns that an item cannot be added, and the table stays
 * usable. */
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>

#define uthash_malloc(bytes) limited_malloc(bytes)

static unsigned allocations_left;

static void *limited_malloc(size_t bytes)
{
	return allocations_left && allocations_left-- ? malloc(bytes) : NULL;
}

#include "common/hash.h"
#include "tests/unit/unit.h"

#define ITEMS 2000

struct item {
	UT_hash_handle hh;
	uint32_t key;
};

static struct item items[ITEMS], *table;

static bool item_add(uint32_t key)
{
	items[key].key = key;
	return HASH_ADD_NEW(hh, table, key, sizeof(items[key].key), &items[key]);
}

static bool item_is_there(uint32_t key)
{
	struct item *found = NULL;

	HASH_FIND(hh, table, &key, sizeof(key), found);
	return found == &items[key];
}

/* A table takes two allocations: the table and its buckets. */
START_TEST(no_memory_for_a_table)
{
	for (unsigned given = 0; given < 2; given++) {
		allocations_left = given;
		ck_assert(!item_add(7));
		ck_assert_ptr_null(table);
		ck_assert(!item_is_there(7));
	}
	allocations_left = 2;
	ck_assert(item_add(7));
	ck_assert(item_is_there(7));
	HASH_CLEAR(hh, table);
}
END_TEST

START_TEST(no_memory_for_more_buckets)
{
	unsigned refused = 0;

	allocations_left = 2;
	for (uint32_t key = 0; key < ITEMS; key++) {
		if (!item_add(key)) {
			refused++;
			ck_assert(!item_is_there(key));
			ck_assert_uint_eq(HASH_COUNT(table), key);
			allocations_left = 1;
			ck_assert(item_add(key));
		}
		ck_assert(item_is_there(key));
	}
	ck_assert_uint_gt(refused, 2);
	for (uint32_t key = 0; key < ITEMS; key++)
		ck_assert(item_is_there(key));
	HASH_CLEAR(hh, table);
}
END_TEST

int main(void)
{
	TCase *tests;
	Suite *suite = unit_suite("hash", &tests, 60);

	tcase_add_test(tests, no_memory_for_a_table);
	tcase_add_test(tests, no_memory_for_more_buckets);
	return unit_main(suite);
}
