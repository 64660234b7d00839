/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
#include "fs/keeper/fd_table.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tests/unit/sized_file.h"
#include "tests/unit/unit.h"

#define IDS   300
#define STEPS 20000

static uint64_t id_of(unsigned n)
{
	return (uint64_t)(1 + n % 3) << FD_TABLE_KIND_SHIFT | n;
}

static void expect_all(const struct fd_table *held, const off_t *sizes)
{
	uint64_t id = 0, before = 0;
	unsigned seen = 0, wanted = 0;
	int fd;

	for (unsigned n = 0; n < IDS; n++)
		wanted += sizes[n] > 0;
	while (fd_table_next(held, id, &id, &fd) == 0) {
		unsigned n = (unsigned)(id & UINT32_MAX);

		ck_assert_uint_gt(id, before);
		ck_assert_uint_eq(id, id_of(n));
		ck_assert_int_eq(size_of(fd), sizes[n]);
		before = id;
		seen++;
	}
	ck_assert_uint_eq(seen, wanted);
	ck_assert_uint_eq(held->count, wanted);
}

START_TEST(as_a_table_of_them)
{
	static off_t sizes[IDS]; /* 0: not held */
	struct fd_table held = {0};
	uint64_t state = unit_seed();

	for (unsigned step = 0; step < STEPS; step++) {
		unsigned n = (unsigned)(unit_random(&state) % IDS);
		int known = fd_table_get(&held, id_of(n));

		ck_assert_int_eq(known >= 0, sizes[n] > 0);
		if (known >= 0)
			ck_assert_int_eq(size_of(known), sizes[n]);
		if (unit_random(&state) % 2) {
			sizes[n] = step + 1;
			ck_assert_int_eq(fd_table_put(&held, id_of(n), some_file(sizes[n])), 0);
		} else {
			ck_assert_int_eq(fd_table_drop(&held, id_of(n)), sizes[n] ? 0 : -ENOENT);
			sizes[n] = 0;
		}
		if (step % 100 == 0)
			expect_all(&held, sizes);
	}
	expect_all(&held, sizes);
	fd_table_close(&held);
	ck_assert_uint_eq(held.count, 0);
}
END_TEST

START_TEST(what_goes_is_closed)
{
	struct fd_table held = {0};
	int first = some_file(1), second = some_file(2), third = some_file(3);

	ck_assert_int_eq(fd_table_put(&held, id_of(1), first), 0);
	ck_assert_int_eq(fd_table_put(&held, id_of(1), second), 0);
	ck_assert_int_eq(fcntl(first, F_GETFD), -1);
	ck_assert_int_eq(fd_table_drop(&held, id_of(1)), 0);
	ck_assert_int_eq(fcntl(second, F_GETFD), -1);
	ck_assert_int_eq(fd_table_put(&held, id_of(2), third), 0);
	fd_table_close(&held);
	ck_assert_int_eq(fcntl(third, F_GETFD), -1);
}
END_TEST

START_TEST(bad_ids)
{
	struct fd_table held = {0};
	int fd = some_file(1);
	uint64_t id;

	ck_assert_int_eq(fd_table_put(&held, (uint64_t)FD_TABLE_KINDS << FD_TABLE_KIND_SHIFT, fd),
			 -EINVAL);
	ck_assert_int_eq(fd_table_put(&held, id_of(1), -1), -EINVAL);
	ck_assert_int_eq(fd_table_get(&held, UINT64_MAX), -ENOENT);
	ck_assert_int_eq(fd_table_drop(&held, UINT64_MAX), -ENOENT);
	ck_assert_int_eq(fd_table_next(&held, UINT64_MAX - 1, &id, &fd), -ENOENT);
	ck_assert_int_eq(close(fd), 0);
}
END_TEST

int main(void)
{
	TCase *tcase;
	Suite *suite = unit_suite("fd_table", &tcase, 60);

	tcase_add_test(tcase, as_a_table_of_them);
	tcase_add_test(tcase, what_goes_is_closed);
	tcase_add_test(tcase, bad_ids);
	return unit_main(suite);
}
