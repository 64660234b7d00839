/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* The names of a directory: search by name, listing in order, cookies that stay valid through
 * changes. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/hash.h"
#include "fs/tree/dir.h"
#include "tests/unit/unit.h"

static struct dir *dir;

static void up(void)
{
	hash_seed_init();
	dir = dir_new();
	ck_assert_ptr_nonnull(dir);
}

static void down(void)
{
	struct dentry *entry;

	while ((entry = dir_before(dir, DIR_COOKIE_END))) {
		dir_remove(dir, entry);
		free(entry);
	}
	ck_assert_uint_eq(dir->n_names, 0);
	dir_free(dir);
}

static struct dentry *add(const char *name)
{
	struct dentry *entry = dentry_new(name, NULL);

	ck_assert_ptr_nonnull(entry);
	ck_assert_int_eq(dir_add(dir, entry), 0);
	return entry;
}

static void take(const char *name)
{
	struct dentry *entry = dir_find(dir, name);

	ck_assert_ptr_nonnull(entry);
	dir_remove(dir, entry);
	free(entry);
}

START_TEST(finds_what_was_added)
{
	char longest[256];

	memset(longest, 'x', 255);
	longest[255] = 0;
	ck_assert_ptr_null(dir_find(dir, "a"));
	ck_assert_ptr_null(dir_before(dir, DIR_COOKIE_END));
	add("a");
	add(longest);
	ck_assert_str_eq(dir_find(dir, "a")->name, "a");
	ck_assert_uint_eq(dir_find(dir, longest)->length, 255);
	ck_assert_ptr_null(dir_find(dir, "ab"));
	ck_assert_ptr_null(dir_find(dir, ""));
	take("a");
	ck_assert_ptr_null(dir_find(dir, "a"));
}
END_TEST

/* Covers every size of the table of names, up and down. */
START_TEST(finds_all_of_many)
{
	enum { NAMES = 5000 };
	char name[32];

	for (unsigned i = 0; i < NAMES; i++) {
		snprintf(name, sizeof(name), "name %u", i);
		ck_assert_ptr_null(dir_find(dir, name));
		add(name);
	}
	for (unsigned gone = 0; gone < NAMES; gone++) {
		snprintf(name, sizeof(name), "name %u", gone);
		take(name);
		ck_assert_ptr_null(dir_find(dir, name));
		snprintf(name, sizeof(name), "name %u", NAMES - 1 - (NAMES - 1 - gone) / 2);
		ck_assert_int_eq(dir_find(dir, name) != NULL, gone < NAMES - 1);
	}
}
END_TEST

/* A reader in the middle of a listing sees every name that stays exactly once, whatever names are
 * added and removed meanwhile. */
START_TEST(cookies_hold)
{
	enum { NAMES = 3000 };
	static unsigned seen[NAMES];
	uint64_t random = unit_seed(), cookie = DIR_COOKIE_END;
	unsigned extra = 0;
	struct dentry *entry;
	char name[32];

	memset(seen, 0, sizeof(seen));
	for (unsigned i = 0; i < NAMES; i++) {
		snprintf(name, sizeof(name), "stay%u", i);
		add(name);
		snprintf(name, sizeof(name), "go%u", i);
		add(name);
	}
	for (unsigned gone = 0; (entry = dir_before(dir, cookie));) {
		unsigned number;

		ck_assert_uint_lt(entry->cookie, cookie);
		cookie = entry->cookie;
		/* The test adds a name for each listed name: a listing with the added names would
		 * not end. */
		ck_assert(strncmp(entry->name, "extra", 5) != 0);
		if (sscanf(entry->name, "stay%u", &number) == 1)
			seen[number]++;
		if (unit_random(&random) % 2 && gone < NAMES) {
			snprintf(name, sizeof(name), "go%u", gone++);
			take(name);
		}
		snprintf(name, sizeof(name), "extra%u", extra++);
		add(name);
	}
	for (unsigned i = 0; i < NAMES; i++)
		ck_assert_uint_eq(seen[i], 1);
}
END_TEST

START_TEST(memory_follows_the_names)
{
	char name[32];

	for (unsigned i = 0; i < 10000; i++) {
		snprintf(name, sizeof(name), "%u", i);
		add(name);
	}
	for (unsigned i = 0; i < 10000; i++) {
		snprintf(name, sizeof(name), "%u", i);
		take(name);
	}
	ck_assert_uint_le(dir->cap_order, 128);
	/* A name is made and removed again and again: the list of cookies does not grow. */
	for (unsigned i = 0; i < 10000; i++) {
		add("again");
		take("again");
	}
	ck_assert_uint_le(dir->cap_order, 128);
}
END_TEST

START_TEST(against_a_model)
{
	enum { NAMES = 64, STEPS = 20000 };
	bool there[NAMES] = {false};
	uint64_t random = unit_seed();
	char name[32];

	for (unsigned step = 0; step < STEPS; step++) {
		unsigned n = (unsigned)(unit_random(&random) % NAMES), count = 0;

		snprintf(name, sizeof(name), "name%u", n);
		ck_assert(there[n] == (dir_find(dir, name) != NULL));
		if (there[n])
			take(name);
		else
			add(name);
		there[n] = !there[n];
		for (unsigned i = 0; i < NAMES; i++)
			count += there[i];
		ck_assert_uint_eq(dir->n_names, count);
		if (step % 100)
			continue;
		for (struct dentry *entry = dir_before(dir, DIR_COOKIE_END); entry;
		     entry = dir_before(dir, entry->cookie))
			count--;
		ck_assert_uint_eq(count, 0);
	}
}
END_TEST

int main(void)
{
	TCase *tests;
	Suite *suite = unit_suite("dir", &tests, 60);

	tcase_add_checked_fixture(tests, up, down);
	tcase_add_test(tests, finds_what_was_added);
	tcase_add_test(tests, finds_all_of_many);
	tcase_add_test(tests, cookies_hold);
	tcase_add_test(tests, memory_follows_the_names);
	tcase_add_test(tests, against_a_model);
	return unit_main(suite);
}
