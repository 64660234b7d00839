/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* Files that tests can tell apart by the size. */
#ifndef TESTS_UNIT_SIZED_FILE_H
#define TESTS_UNIT_SIZED_FILE_H

#include <check.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

static inline int some_file(off_t size)
{
	int fd = memfd_create("kept", MFD_CLOEXEC);

	ck_assert_int_ge(fd, 0);
	ck_assert_int_eq(ftruncate(fd, size), 0);
	return fd;
}

static inline off_t size_of(int fd)
{
	struct stat st;

	ck_assert_int_eq(fstat(fd, &st), 0);
	return st.st_size;
}

#endif
