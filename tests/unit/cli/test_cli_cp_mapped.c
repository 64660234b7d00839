/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* gpumem cp into tmpfs: a read into the mapped target fills exactly the range, and a part that the
 * mapping cannot take is written instead. */
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "client/cli/core/buffer.h"
#include "client/cli/cp/cp.h"
#include "tests/unit/sized_file.h"
#include "tests/unit/unit.h"

#define PAGE	     4096
#define SIZE	     (16 * 1024 * 1024 + 100)
#define SOURCE_BYTES (1024 * 1024)
/* Threads that copy the same file. */
#define CROWD 3

static struct cp cp;
static struct cp_file file;
static int source;
static unsigned char bytes[SOURCE_BYTES];

static void setup(void)
{
	uint64_t state = unit_seed();

	unit_fill(bytes, sizeof(bytes), &state);
	source = some_file(0);
	ck_assert_int_eq(pwrite(source, bytes, sizeof(bytes), 0), sizeof(bytes));
	cp = (struct cp){.options.threads = CROWD};
	/* A memfd is a file of the kernel's own tmpfs. The file is sparse: no huge pages. */
	file =
	    (struct cp_file){.out = some_file(SIZE), .size = SIZE, .sparse = true, .users = CROWD};
	cp_mapped_begin(&cp, &file);
}

static void teardown(void)
{
	cp_mapped_end(&file);
	ck_assert_ptr_null(file.mapped);
	close(file.out);
	close(source);
}

static off_t memory_of(int fd)
{
	struct stat st;

	ck_assert_int_eq(fstat(fd, &st), 0);
	return (off_t)st.st_blocks * 512;
}

static long resident_shared_pages(void)
{
	FILE *statm = fopen("/proc/self/statm", "r");
	long pages = -1;

	ck_assert_ptr_nonnull(statm);
	ck_assert_int_eq(fscanf(statm, "%*d %*d %ld", &pages), 1);
	fclose(statm);
	return pages;
}

static const struct {
	uint64_t offset, bytes, at;
} ranges[] = {
    {0, SOURCE_BYTES, 0},
    {PAGE, PAGE, 0},
    {PAGE - 1, 2, 7},
    {12345, 54321, 999},
    {SIZE - 100, 100, 0},
    {SIZE - 1, 1, 0},
    {SIZE - 70000, 70000, PAGE},
    {3 * PAGE + 1, PAGE - 1, 0},
    {2097152 - 10, SOURCE_BYTES - 1, 1},
};

/* The range has its bytes, and only the pages of the range have memory. */
START_TEST(fills)
{
	uint64_t offset = ranges[_i].offset, length = ranges[_i].bytes;
	uint64_t first = offset / PAGE * PAGE, end = (offset + length + PAGE - 1) / PAGE * PAGE;
	size_t whole = (end < SIZE ? end : SIZE) - first;
	unsigned char *wanted = calloc(1, whole), *got = malloc(whole);

	ck_assert(wanted && got);
	memcpy(wanted + (offset - first), bytes + ranges[_i].at, length);
	ck_assert(cp_mapped_fill(&file, offset, length, source, ranges[_i].at));
	ck_assert_int_eq(pread(file.out, got, whole, first), (ssize_t)whole);
	ck_assert_mem_eq(got, wanted, whole);
	ck_assert_int_eq(size_of(file.out), SIZE);
	ck_assert_int_eq(memory_of(file.out), (off_t)(end - first));
	free(wanted);
	free(got);
}
END_TEST

/* Neighbouring ranges share a page and are filled in any order. */
START_TEST(joins)
{
	unsigned char got[10007];

	ck_assert(cp_mapped_fill(&file, 5000, 5000, source, 5000));
	ck_assert(cp_mapped_fill(&file, 0, 5000, source, 0));
	ck_assert(cp_mapped_fill(&file, 10000, 7, source, 10000));
	ck_assert_int_eq(pread(file.out, got, sizeof(got), 0), sizeof(got));
	ck_assert_mem_eq(got, bytes, sizeof(got));
}
END_TEST

/* The target's pages do not stay mapped: the copy would seem to take its memory twice. */
START_TEST(keeps_nothing_mapped)
{
	long before = resident_shared_pages();

	for (uint64_t at = 0; at + SOURCE_BYTES <= SIZE; at += SOURCE_BYTES)
		ck_assert(cp_mapped_fill(&file, at, SOURCE_BYTES, source, 0));
	ck_assert_int_lt(resident_shared_pages() - before, SIZE / PAGE / 4);
}
END_TEST

START_TEST(source_ends)
{
	ck_assert(!cp_mapped_fill(&file, 0, 1000, source, SOURCE_BYTES - 10));
	ck_assert(!cp_mapped_fill(&file, 0, 1000, source, SOURCE_BYTES));
	ck_assert(!cp_mapped_fill(&file, 0, 1000, -1, 0));
}
END_TEST

/* Another process may truncate the target at any time; a store there would raise SIGBUS. */
START_TEST(target_is_cut)
{
	ck_assert_int_eq(ftruncate(file.out, 3 * PAGE), 0);
	ck_assert(!cp_mapped_fill(&file, 0, 8 * PAGE, source, 0));
	ck_assert(!cp_mapped_fill(&file, 4 * PAGE, PAGE, source, 0));
	ck_assert(cp_mapped_fill(&file, 0, 3 * PAGE, source, 0));
	ck_assert_int_eq(size_of(file.out), 3 * PAGE);
}
END_TEST

/* The sizes to which the target is cut before a part of the file is copied. */
static const off_t cuts[] = {SIZE, SOURCE_BYTES / 2 + 100, 3 * PAGE, 1, 0};

/* Copies the source, a file of a single part, by the given step. */
static void copy_part(enum cp_step step, struct cp_buffers *buffers)
{
	unsigned char *got = malloc(SOURCE_BYTES);

	file.in = source;
	file.in_direct = -1;
	file.method = CP_RANGES;
	file.sparse = false;
	file.step = step;
	file.room_made = true;
	file.part_bytes = SOURCE_BYTES;
	file.parts = 1;
	ck_assert_int_eq(cp_marks_reserve(&file, 1, false), 0);
	ck_assert(cp_part(&cp, &file, buffers));
	ck_assert_int_eq(file.error, 0);
	ck_assert_int_eq(pread(file.out, got, SOURCE_BYTES, 0), SOURCE_BYTES);
	ck_assert_mem_eq(got, bytes, SOURCE_BYTES);
	free((void *)file.marks);
	free(got);
}

/* The last cuts leave no room for the part in the mapping. */
START_TEST(copies)
{
	struct cp_buffers buffers = {.data = buffer_new(CP_BUFFER_BYTES)};

	ck_assert_ptr_nonnull(buffers.data);
	ck_assert_int_eq(ftruncate(file.out, cuts[_i]), 0);
	copy_part(CP_BUFFER, &buffers);
	buffer_free(buffers.data, CP_BUFFER_BYTES);
}
END_TEST

/* The same copy from staging memory. */
START_TEST(copies_from_staging)
{
	int memory = some_file(SOURCE_BYTES);
	char *base = mmap(NULL, SOURCE_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, memory, 0);
	struct cp_buffers buffers = {.staging.memory = {memory, memory, NULL, base, SOURCE_BYTES},
				     .staging.touched = true};
	struct stat st;

	ck_assert_ptr_ne(base, MAP_FAILED);
	ck_assert_int_eq(fstat(source, &st), 0);
	buffers.staging.device = st.st_dev;
	ck_assert_int_eq(ftruncate(file.out, cuts[_i]), 0);
	copy_part(CP_STAGED_OUT, &buffers);
	munmap(base, SOURCE_BYTES);
	close(memory);
}
END_TEST

/* With few threads the waits for each other are short, so the threads write. */
START_TEST(writes_where_few_are_at_it)
{
	file.users = CROWD - 1;
	ck_assert(!cp_mapped_fill(&file, 0, PAGE, source, 0));
	ck_assert_int_eq(memory_of(file.out), 0);
	file.users = CROWD;
	ck_assert(cp_mapped_fill(&file, 0, PAGE, source, 0));
}
END_TEST

/* A file without a mapping is written completely: small files, a failed map, a copy with verify, a
 * single thread. */
START_TEST(not_for_all)
{
	struct cp_file small = {.out = file.out, .size = 100}, same = {.out = -1, .size = SIZE};
	struct cp verifying = {.options = {.threads = CROWD, .verify = true}};
	struct cp one = {.options.threads = 1};

	ck_assert_ptr_nonnull(file.mapped);
	cp_mapped_begin(&cp, &small);
	ck_assert_ptr_null(small.mapped);
	cp_mapped_begin(&cp, &same);
	same.out = file.out;
	cp_mapped_begin(&verifying, &same);
	cp_mapped_begin(&one, &same);
	ck_assert_ptr_null(same.mapped);
	ck_assert(!cp_mapped_fill(&same, 0, 1000, source, 0));
	ck_assert_int_eq(memory_of(file.out), 0);
}
END_TEST

int main(void)
{
	TCase *tcase;
	Suite *suite = unit_suite("cli_cp_mapped", &tcase, 60);

	tcase_add_checked_fixture(tcase, setup, teardown);
	tcase_add_loop_test(tcase, fills, 0, sizeof(ranges) / sizeof(ranges[0]));
	tcase_add_test(tcase, joins);
	tcase_add_test(tcase, keeps_nothing_mapped);
	tcase_add_test(tcase, source_ends);
	tcase_add_test(tcase, target_is_cut);
	tcase_add_loop_test(tcase, copies, 0, sizeof(cuts) / sizeof(cuts[0]));
	tcase_add_loop_test(tcase, copies_from_staging, 0, sizeof(cuts) / sizeof(cuts[0]));
	tcase_add_test(tcase, writes_where_few_are_at_it);
	tcase_add_test(tcase, not_for_all);
	return unit_main(suite);
}
