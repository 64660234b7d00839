/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* The attributes of files in host/, and how many system calls they take: the kernel asks for them
 * whenever a file is created, and once a second afterwards, or each time while programs may store
 * unseen. */
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "common/clock.h"
#include "fs/holders/inode_lease.h"
#include "fs/tree/inode_unseen.h"
#include "tests/unit/fs_fixture.h"
#include "tests/unit/unit.h"

static unsigned fstats;

/* Replaces the C library's function for all code of this program. */
int fstat(int fd, struct stat *st)
{
	fstats++;
	return (int)syscall(SYS_newfstatat, fd, "", st, AT_EMPTY_PATH);
}

static struct inode *host_file(const char *name)
{
	struct inode *dir = gpu(fixture.n_volumes - 1);

	ck_assert_ptr_nonnull(dir->volume->system);
	ck_assert_int_eq(make_file(dir, name), 0);
	return at(dir, name);
}

START_TEST(attributes_take_one_call)
{
	struct inode *file = host_file("file");
	struct stat st;

	ck_assert_int_eq(write_to(file, "bytes", 5, 0), 5);
	fstats = 0;
	inode_stat(file, &st);
	ck_assert_uint_eq(fstats, 1);
	ck_assert_int_eq(st.st_size, 5);
	ck_assert_int_eq(st.st_blocks, 8);
	ck_assert_int_eq(st.st_mtim.tv_sec * CLOCK_SECOND + st.st_mtim.tv_nsec,
			 file_written(file->file));
}
END_TEST

START_TEST(empty_file_takes_none)
{
	struct inode *file = host_file("empty");
	struct stat st;

	fstats = 0;
	inode_stat(file, &st);
	ck_assert_uint_eq(fstats, 0);
	ck_assert_int_eq(st.st_size, 0);
	ck_assert_int_eq(st.st_blocks, 0);
	ck_assert_int_ne(st.st_mtim.tv_sec, 0);
}
END_TEST

/* A writer could hide behind leases that it ends: each end would count as one of the others'. */
START_TEST(leases_beyond_the_count_are_not_forgotten)
{
	struct inode *file = host_file("leased");

	for (unsigned i = 0; i < UINT16_MAX + 1U; i++)
		inode_unseen_begin(file);
	for (unsigned i = 0; i < UINT16_MAX; i++)
		inode_unseen_end(file);
	ck_assert(inode_has_unseen_stores(file));
}
END_TEST

START_TEST(ended_leases_store_no_more)
{
	struct inode *file = host_file("ended");

	inode_unseen_begin(file);
	ck_assert(inode_has_unseen_stores(file));
	inode_unseen_end(file);
	ck_assert(!inode_has_unseen_stores(file));
}
END_TEST

int main(void)
{
	TCase *tests;
	Suite *suite = unit_suite("inode_stat", &tests, 60);

	tcase_add_checked_fixture(tests, fixture_up, fixture_down);
	tcase_add_test(tests, attributes_take_one_call);
	tcase_add_test(tests, empty_file_takes_none);
	tcase_add_test(tests, leases_beyond_the_count_are_not_forgotten);
	tcase_add_test(tests, ended_leases_store_no_more);
	return unit_main(suite);
}
