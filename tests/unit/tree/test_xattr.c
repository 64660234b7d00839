/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* Stored extended attributes, as described in xattr(7). */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/xattr.h>

#include "fs/tree/xattr.h"
#include "tests/unit/unit.h"

static struct xattr *list;

static void up(void)
{
	list = NULL;
}

static void down(void)
{
	xattr_free(list);
}

START_TEST(set_get_remove)
{
	char value[8];

	ck_assert_int_eq(xattr_get(list, "user.a", value, 8), -ENODATA);
	ck_assert_int_eq(xattr_set(&list, "user.a", "one", 3, 0), 0);
	ck_assert_int_eq(xattr_set(&list, "user.b", "", 0, 0), 0);
	ck_assert_int_eq(xattr_get(list, "user.a", value, 8), 3);
	ck_assert_mem_eq(value, "one", 3);
	ck_assert_int_eq(xattr_get(list, "user.b", value, 8), 0);
	ck_assert_int_eq(xattr_set(&list, "user.a", "three", 5, 0), 0);
	ck_assert_int_eq(xattr_get(list, "user.a", NULL, 0), 5);
	ck_assert_int_eq(xattr_get(list, "user.a", value, 4), -ERANGE);
	ck_assert_int_eq(xattr_get(list, "user.", value, 8), -ENODATA);
	ck_assert_int_eq(xattr_remove(&list, "user.c"), -ENODATA);
	ck_assert_int_eq(xattr_remove(&list, "user.a"), 0);
	ck_assert_int_eq(xattr_get(list, "user.a", value, 8), -ENODATA);
	ck_assert_int_eq(xattr_get(list, "user.b", value, 8), 0);
}
END_TEST

START_TEST(create_and_replace)
{
	ck_assert_int_eq(xattr_set(&list, "user.a", "1", 1, XATTR_REPLACE), -ENODATA);
	ck_assert_int_eq(xattr_set(&list, "user.a", "1", 1, XATTR_CREATE), 0);
	ck_assert_int_eq(xattr_set(&list, "user.a", "2", 1, XATTR_CREATE), -EEXIST);
	ck_assert_int_eq(xattr_set(&list, "user.a", "2", 1, XATTR_REPLACE), 0);
}
END_TEST

START_TEST(names_listed)
{
	char names[64];

	ck_assert_uint_eq(xattr_list(list, XATTR_NAMES_ALL, names, sizeof(names)), 0);
	ck_assert_int_eq(xattr_set(&list, "user.a", "1", 1, 0), 0);
	ck_assert_int_eq(xattr_set(&list, "trusted.b", "1", 1, 0), 0);
	ck_assert_uint_eq(xattr_list(list, XATTR_NAMES_ALL, NULL, 0), 17);
	ck_assert_uint_eq(xattr_list(list, XATTR_NAMES_ALL, names, sizeof(names)), 17);
	ck_assert_mem_eq(names, "user.a\0trusted.b", 17);
	/* A name that does not fit is not written in part. */
	memset(names, 'x', sizeof(names));
	ck_assert_uint_eq(xattr_list(list, XATTR_NAMES_ALL, names, 10), 17);
	ck_assert_mem_eq(names, "user.a\0xxx", 10);
	ck_assert_uint_eq(xattr_list(list, XATTR_NAMES_BUT_TRUSTED, names, sizeof(names)), 7);
	ck_assert_str_eq(names, "user.a");
}
END_TEST

START_TEST(bounded)
{
	static char value[XATTRS_BYTES_MAX + 1];
	char name[32];
	unsigned set = 0;

	ck_assert_int_eq(xattr_set(&list, "user.a", value, sizeof(value), 0), -ENOSPC);
	ck_assert_int_eq(xattr_set(&list, "user.a", value, XATTRS_BYTES_MAX, 0), -ENOSPC);
	ck_assert_int_eq(xattr_set(&list, "user.a", value, XATTRS_BYTES_MAX - 7, 0), 0);
	ck_assert_int_eq(xattr_set(&list, "user.b", "", 0, 0), -ENOSPC);
	/* The old value makes room for the new value. */
	ck_assert_int_eq(xattr_set(&list, "user.a", value, XATTRS_BYTES_MAX - 8, 0), 0);
	ck_assert_int_eq(xattr_set(&list, "user.a", "", 0, 0), 0);
	do {
		snprintf(name, sizeof(name), "user.n%u", set++);
	} while (xattr_set(&list, name, "", 0, 0) == 0);
	ck_assert_uint_le(xattr_list(list, XATTR_NAMES_ALL, NULL, 0), XATTRS_BYTES_MAX);
	ck_assert_uint_gt(set, 5000);
}
END_TEST

int main(void)
{
	TCase *tests;
	Suite *suite = unit_suite("xattr", &tests, 60);

	tcase_add_checked_fixture(tests, up, down);
	tcase_add_test(tests, set_get_remove);
	tcase_add_test(tests, create_and_replace);
	tcase_add_test(tests, names_listed);
	tcase_add_test(tests, bounded);
	return unit_main(suite);
}
