/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* Calls that make a file longer, each with a gap of zeroes behind the old end, and the check that
 * no byte shows that a program stored behind the end before. */
#ifndef TESTS_MOUNT_GROWTH_H
#define TESTS_MOUNT_GROWTH_H

#include "tests/mount/prog.h"

#define GROWTH_OLD 100	/* the size before */
#define GROWTH_NEW 3000 /* the size afterwards, in the same page */

static inline void growth_truncate(int fd)
{
	OK(ftruncate(fd, GROWTH_NEW));
}

static inline void growth_truncate_far(int fd)
{
	OK(ftruncate(fd, 3 * MIB));
	OK(ftruncate(fd, GROWTH_NEW));
}

static inline void growth_allocate(int fd)
{
	OK(fallocate(fd, 0, GROWTH_OLD + 10, GROWTH_NEW - GROWTH_OLD - 10));
}

static void (*const growths[])(int fd) = {growth_truncate, growth_truncate_far, growth_allocate};
enum { GROWTHS = sizeof(growths) / sizeof(growths[0]) };

/* A file of GROWTH_OLD bytes of 'x'. */
static inline int growth_file(void)
{
	char bytes[GROWTH_OLD];
	int fd = OK(open("file", O_RDWR | O_CREAT | O_TRUNC, 0600));

	memset(bytes, 'x', sizeof(bytes));
	write_all(fd, bytes, sizeof(bytes), 0);
	return fd;
}

static inline void growth_check(int fd, int growth)
{
	char last;

	growths[growth](fd);
	EQUAL(size_of(fd), GROWTH_NEW);
	read_all(fd, &last, 1, GROWTH_OLD - 1);
	EQUAL(last, 'x');
	zero_check(fd, GROWTH_OLD, GROWTH_NEW - GROWTH_OLD);
}

#endif
