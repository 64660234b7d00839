/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
#include "backend/system/system.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/unit/unit.h"

#define MIB (1ULL << 20)

static unsigned fstatfs_calls;

/* Replaces the C library's function for all code of this program. */
int fstatfs(int fd, struct statfs *fs)
{
	fstatfs_calls++;
	return (int)syscall(SYS_fstatfs, fd, fs);
}

static struct system_usage usage_of(struct system_memory *memory)
{
	struct system_usage usage;

	ck_assert_int_eq(system_usage(memory, &usage), 0);
	return usage;
}

static int object(struct system_memory *memory, enum system_pages pages)
{
	int fd;

	ck_assert_int_eq(system_object_new(memory, pages, SYSTEM_TMPFS_SHARED, &fd), 0);
	return fd;
}

START_TEST(test_objects_are_private_and_go_with_their_fd)
{
	struct system_memory *memory;
	struct stat st;

	ck_assert_int_eq(system_memory_open(16 * MIB, &memory), 0);

	int one = object(memory, SYSTEM_PAGES_SMALL), two = object(memory, SYSTEM_PAGES_SMALL);

	ck_assert_int_eq(fcntl(one, F_GETFD), FD_CLOEXEC);
	ck_assert_int_eq(fstat(one, &st), 0);
	ck_assert_int_eq(st.st_size, 0);
	ck_assert_int_eq(pwrite(one, "a", 1, 0), 1);
	ck_assert_int_eq(fstat(two, &st), 0);
	ck_assert_int_eq(st.st_size, 0);
	if (usage_of(memory).bounded_by_kernel)
		ck_assert_uint_eq(usage_of(memory).free, 16 * MIB - 4096);
	close(one);
	close(two);
	ck_assert_uint_eq(usage_of(memory).free, 16 * MIB);
	system_memory_close(memory);
}
END_TEST

/* A process with a descriptor of an object gets no access by mode, and cannot add a seal against
 * other processes. */
START_TEST(test_objects_are_their_owners)
{
	struct system_memory *memory;
	struct stat st;

	ck_assert_int_eq(system_memory_open(16 * MIB, &memory), 0);
	for (int pages = SYSTEM_PAGES_SMALL; pages <= SYSTEM_PAGES_HUGE; pages++) {
		int fd = object(memory, pages);

		ck_assert_int_eq(fstat(fd, &st), 0);
		ck_assert_uint_eq(st.st_mode & 07777, 0600);
		ck_assert_int_eq(fcntl(fd, F_ADD_SEALS, F_SEAL_WRITE), -1);
		ck_assert_int_eq(fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK), -1);
		ck_assert_int_eq(ftruncate(fd, 4096), 0);
		ck_assert_int_eq(ftruncate(fd, 0), 0);
		close(fd);
	}
	system_memory_close(memory);
}
END_TEST

START_TEST(test_kernel_keeps_the_bound)
{
	struct system_memory *memory;

	ck_assert_int_eq(system_memory_open(8 * MIB, &memory), 0);
	if (!usage_of(memory).bounded_by_kernel) {
		system_memory_close(memory);
		return;
	}

	int small = object(memory, SYSTEM_PAGES_SMALL);

	ck_assert_int_eq(fallocate(small, 0, 0, (off_t)(9 * MIB)), -1);
	ck_assert_int_eq(errno, ENOSPC);
	ck_assert_int_eq(fallocate(small, 0, 0, (off_t)(6 * MIB)), 0);

	/* Objects with huge pages share the limit. */
	int huge = object(memory, SYSTEM_PAGES_HUGE);

	ck_assert_int_eq(fallocate(huge, 0, 0, (off_t)(4 * MIB)), -1);
	ck_assert_int_eq(errno, ENOSPC);
	ck_assert_int_eq(fallocate(huge, 0, 0, (off_t)(2 * MIB)), 0);
	ck_assert_uint_eq(usage_of(memory).free, 0);
	ck_assert_int_eq(fallocate(small, 0, 0, (off_t)(7 * MIB)), -1);
	close(small);
	ck_assert_uint_eq(usage_of(memory).free, 6 * MIB);
	ck_assert_int_eq(fallocate(huge, 0, 0, (off_t)(8 * MIB)), 0);
	close(huge);
	system_memory_close(memory);
}
END_TEST

/* The kernel's bounds of the two mounts follow each other only once both can have objects. */
START_TEST(test_small_objects_do_not_ask_for_bounds)
{
	struct system_memory *memory;

	ck_assert_int_eq(system_memory_open(8 * MIB, &memory), 0);
	/* The daemon makes both mounts at the start, for its keeper. */
	system_memory_mount(memory, SYSTEM_PAGES_HUGE);
	fstatfs_calls = 0;
	close(object(memory, SYSTEM_PAGES_SMALL));
	ck_assert_uint_eq(fstatfs_calls, 0);
	if (usage_of(memory).bounded_by_kernel) {
		close(object(memory, SYSTEM_PAGES_HUGE));
		fstatfs_calls = 0;
		close(object(memory, SYSTEM_PAGES_SMALL));
		ck_assert_uint_eq(fstatfs_calls, 2);
	}
	system_memory_close(memory);
}
END_TEST

/* Returns the KiB of huge pages in the mapping of an object. */
static long huge_kib(const void *address)
{
	FILE *smaps = fopen("/proc/self/smaps", "r");
	char line[512], start[32];
	bool found = false;
	long kib = -1;

	snprintf(start, sizeof(start), "%lx-", (unsigned long)address);
	while (kib < 0 && fgets(line, sizeof(line), smaps)) {
		found = found || strncmp(line, start, strlen(start)) == 0;
		if (found && strncmp(line, "ShmemPmdMapped:", 15) == 0)
			kib = strtol(line + 15, NULL, 10);
	}
	fclose(smaps);
	return kib;
}

START_TEST(test_huge_pages_when_asked_for)
{
	struct system_memory *memory;

	ck_assert_int_eq(system_memory_open(64 * MIB, &memory), 0);
	if (usage_of(memory).bounded_by_kernel &&
	    access("/sys/kernel/mm/transparent_hugepage/enabled", F_OK) == 0) {
		int fd = object(memory, SYSTEM_PAGES_HUGE);
		char *at;

		ck_assert_int_eq(fallocate(fd, 0, 0, (off_t)(16 * MIB)), 0);
		at = mmap(NULL, 16 * MIB, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
		ck_assert_ptr_ne(at, MAP_FAILED);
		for (uint64_t i = 0; i < 16 * MIB; i += 4096)
			at[i] = 1;
		ck_assert_int_gt(huge_kib(at), 0);
		munmap(at, 16 * MIB);
		close(fd);
	}
	system_memory_close(memory);
}
END_TEST

START_TEST(test_account_bounds_memfds_only)
{
	struct system_memory *memory;

	ck_assert_int_eq(system_memory_open(MIB, &memory), 0);

	bool bounded = usage_of(memory).bounded_by_kernel;

	ck_assert_int_eq(system_account(memory, SYSTEM_TMPFS_SHARED, (int64_t)MIB), 0);
	ck_assert_int_eq(system_account(memory, SYSTEM_TMPFS_SHARED, 1), bounded ? 0 : -ENOSPC);
	if (!bounded)
		ck_assert_uint_eq(usage_of(memory).free, 0);
	ck_assert_int_eq(system_account(memory, SYSTEM_TMPFS_SHARED, -(int64_t)MIB), 0);
	system_memory_close(memory);
}
END_TEST

START_TEST(test_no_more_fds_is_no_space)
{
	struct system_memory *memory;
	struct rlimit limit;
	int fds[64], n = 0, rc;

	ck_assert_int_eq(system_memory_open(MIB, &memory), 0);
	ck_assert_int_eq(getrlimit(RLIMIT_NOFILE, &limit), 0);
	ck_assert_uint_eq(limit.rlim_cur, limit.rlim_max);
	limit.rlim_cur = 32;
	ck_assert_int_eq(setrlimit(RLIMIT_NOFILE, &limit), 0);
	while (n < 64 && (rc = system_object_new(memory, SYSTEM_PAGES_SMALL, SYSTEM_TMPFS_SHARED,
						 &fds[n])) == 0)
		n++;
	ck_assert_int_eq(rc, -ENOSPC);
	while (n)
		close(fds[--n]);
	system_memory_close(memory);
}
END_TEST

/* Drops privilege: the same calls work on memfds. */
static void unprivileged(void)
{
	if (geteuid() == 0)
		ck_assert_int_eq(setresuid(65534, 65534, 65534), 0);
}

int main(void)
{
	TCase *tcase, *plain = tcase_create("unprivileged");
	Suite *suite = unit_suite("system", &tcase, 60);
	TCase *cases[] = {tcase, plain};

	tcase_add_checked_fixture(plain, unprivileged, NULL);
	suite_add_tcase(suite, plain);
	for (int i = 0; i < 2; i++) {
		tcase_add_test(cases[i], test_objects_are_private_and_go_with_their_fd);
		tcase_add_test(cases[i], test_objects_are_their_owners);
		tcase_add_test(cases[i], test_kernel_keeps_the_bound);
		tcase_add_test(cases[i], test_small_objects_do_not_ask_for_bounds);
		tcase_add_test(cases[i], test_huge_pages_when_asked_for);
		tcase_add_test(cases[i], test_account_bounds_memfds_only);
		tcase_add_test(cases[i], test_no_more_fds_is_no_space);
	}
	return unit_main(suite);
}
