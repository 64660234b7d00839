/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
#include "backend/system/bounded.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "backend/system/system.h"
#include "tests/unit/unit.h"

#define PAGE  4096
#define LIMIT (16 * PAGE)

static char bytes[2 * LIMIT];

static int object_of_limit(void)
{
	int fd = bounded_new("never");

	ck_assert_int_ge(fd, 0);
	ck_assert_int_eq(bounded_set_limit(fd, LIMIT), 0);
	return fd;
}

START_TEST(only_bounded_objects_are_bounded)
{
	int fd = bounded_new("never"), other = memfd_create("other", MFD_CLOEXEC);

	ck_assert(bounded_is(fd));
	ck_assert(!bounded_is(other));
	ck_assert(!bounded_is(-1));
	ck_assert_uint_eq(bounded_limit(fd), SYSTEM_UNLIMITED);
	ck_assert_uint_eq(bounded_limit(-1), 0);
	ck_assert_int_lt(bounded_set_limit(other, LIMIT), 0);
	ck_assert_int_eq(fcntl(fd, F_GETFD), FD_CLOEXEC);
	close(fd);
	close(other);
}
END_TEST

START_TEST(writes_end_at_the_limit)
{
	int fd = object_of_limit();

	ck_assert_uint_eq(bounded_limit(fd), LIMIT);
	ck_assert_int_eq(pwrite(fd, bytes, LIMIT, 0), LIMIT);
	ck_assert_int_eq(pwrite(fd, bytes, PAGE, LIMIT), -1);
	ck_assert_int_eq(errno, ENOSPC);
	/* A size beyond the limit takes no memory. */
	ck_assert_int_eq(ftruncate(fd, 4 * LIMIT), 0);
	ck_assert_int_eq(pwrite(fd, bytes, PAGE, 2 * LIMIT), -1);
	ck_assert_int_eq(errno, ENOSPC);
	close(fd);
}
END_TEST

START_TEST(stores_end_at_the_limit)
{
	int fd = object_of_limit(), status;

	ck_assert_int_eq(ftruncate(fd, 2 * LIMIT), 0);
	char *at = mmap(NULL, 2 * LIMIT, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);

	ck_assert_ptr_ne(at, MAP_FAILED);
	memset(at, 1, LIMIT);
	fflush(stdout);
	pid_t child = fork();
	if (child == 0) {
		signal(SIGBUS, SIG_DFL);
		*(volatile char *)(at + LIMIT) = 1;
		_exit(0);
	}
	ck_assert_int_eq(waitpid(child, &status, 0), child);
	ck_assert(WIFSIGNALED(status) && WTERMSIG(status) == SIGBUS);
	munmap(at, 2 * LIMIT);
	close(fd);
}
END_TEST

START_TEST(limits_can_be_raised_and_lowered)
{
	int fd = object_of_limit();

	ck_assert_int_eq(bounded_set_limit(fd, 2 * LIMIT), 0);
	ck_assert_int_eq(pwrite(fd, bytes, 2 * LIMIT, 0), 2 * LIMIT);
	ck_assert_int_eq(bounded_set_limit(fd, LIMIT), -EINVAL);
	ck_assert_uint_eq(bounded_limit(fd), 2 * LIMIT);
	ck_assert_int_eq(fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, LIMIT, LIMIT),
			 0);
	ck_assert_int_eq(bounded_set_limit(fd, LIMIT), 0);
	ck_assert_int_eq(bounded_set_limit(fd, SYSTEM_UNLIMITED), 0);
	ck_assert_uint_eq(bounded_limit(fd), SYSTEM_UNLIMITED);
	close(fd);
}
END_TEST

/* As a later daemon has the object: by a descriptor that came from a keeper. */
START_TEST(every_descriptor_of_the_object_leads_to_its_limit)
{
	int first = object_of_limit(), second = dup(first);

	close(first);
	ck_assert_int_eq(bounded_set_limit(second, 2 * LIMIT), 0);
	ck_assert_uint_eq(bounded_limit(second), 2 * LIMIT);
	close(second);
}
END_TEST

START_TEST(each_object_has_its_own_limit)
{
	int one = object_of_limit(), other = object_of_limit();

	ck_assert_int_eq(bounded_set_limit(one, 2 * LIMIT), 0);
	ck_assert_uint_eq(bounded_limit(other), LIMIT);
	ck_assert_int_eq(pwrite(one, bytes, 2 * LIMIT, 0), 2 * LIMIT);
	ck_assert_int_eq(pwrite(other, bytes, LIMIT, 0), LIMIT);
	close(one);
	close(other);
}
END_TEST

int main(void)
{
	int probe = bounded_new("never");
	TCase *tests;
	Suite *suite = unit_suite("bounded", &tests, 60);

	if (probe < 0) {
		printf("no tmpfs of its own can be made here: %s\n", strerror(errno));
		return 77;
	}
	close(probe);
	tcase_add_test(tests, only_bounded_objects_are_bounded);
	tcase_add_test(tests, writes_end_at_the_limit);
	tcase_add_test(tests, stores_end_at_the_limit);
	tcase_add_test(tests, limits_can_be_raised_and_lowered);
	tcase_add_test(tests, every_descriptor_of_the_object_leads_to_its_limit);
	tcase_add_test(tests, each_object_has_its_own_limit);
	return unit_main(suite);
}
