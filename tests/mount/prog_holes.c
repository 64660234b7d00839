/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* check: standin */
/* Holes: SEEK_HOLE and SEEK_DATA compared with a model, punching, zeroing, KEEP_SIZE, truncation.
 */
#include "tests/mount/prog.h"

#include <linux/falloc.h>

#define PUNCH (FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE)
#define MODEL (16 * MIB)

/* A plain directory on tmpfs has no FALLOC_FL_ZERO_RANGE. */
static void zero_range(int fd, int flags, off_t offset, off_t bytes)
{
	if (fallocate(fd, FALLOC_FL_ZERO_RANGE | flags, offset, bytes) == 0)
		return;
	if (errno == EOPNOTSUPP && !prog_on_daemon())
		SKIP("no FALLOC_FL_ZERO_RANGE here");
	FAIL("zero range: %s", strerror(errno));
}

static void truncated_file_is_one_hole(void)
{
	int fd = new_file("file");

	OK(ftruncate(fd, 64 * MIB));
	EQUAL(lseek(fd, 0, SEEK_HOLE), 0);
	EQUAL(lseek(fd, 5 * MIB + 1, SEEK_HOLE), 5 * MIB + 1);
	FAILS(ENXIO, lseek(fd, 0, SEEK_DATA));
}

static void full_file_has_no_hole(void)
{
	int fd = new_file("file");

	pattern_write(fd, 1, 0, 5 * MIB + 100);
	EQUAL(lseek(fd, 0, SEEK_DATA), 0);
	EQUAL(lseek(fd, 4 * MIB + 9, SEEK_DATA), 4 * MIB + 9);
	EQUAL(lseek(fd, 0, SEEK_HOLE), 5 * MIB + 100);
}

static void data_in_the_middle(void)
{
	int fd = new_file("file");

	OK(ftruncate(fd, 64 * MIB));
	pattern_write(fd, 1, 32 * MIB, 10);
	off_t data = OK(lseek(fd, 0, SEEK_DATA));
	off_t hole = OK(lseek(fd, data, SEEK_HOLE));

	CHECK(data <= 32 * MIB && data >= 30 * MIB);
	CHECK(hole >= 32 * MIB + 10 && hole <= 34 * MIB);
	FAILS(ENXIO, lseek(fd, hole, SEEK_DATA));
	EQUAL(lseek(fd, 0, SEEK_HOLE), 0);
}

static void punching_makes_a_hole(void)
{
	int fd = new_file("file");

	pattern_write(fd, 1, 0, 16 * MIB);
	long long blocks = stat_of("file").st_blocks;
	OK(fallocate(fd, PUNCH, 4 * MIB, 8 * MIB));
	EQUAL(size_of(fd), 16 * MIB);
	pattern_check(fd, 1, 0, 4 * MIB);
	zero_check(fd, 4 * MIB, 8 * MIB);
	pattern_check(fd, 1, 12 * MIB, 4 * MIB);
	EQUAL(lseek(fd, 0, SEEK_HOLE), 4 * MIB);
	EQUAL(lseek(fd, 4 * MIB, SEEK_DATA), 12 * MIB);
	CHECK(stat_of("file").st_blocks < blocks);
	pattern_write(fd, 2, 6 * MIB, 100);
	zero_check(fd, 4 * MIB, 2 * MIB);
	zero_check(fd, 6 * MIB + 100, 6 * MIB - 100);
}

static void punching_odd_ranges(void)
{
	int fd = new_file("file");

	pattern_write(fd, 1, 0, 3 * MIB);
	OK(fallocate(fd, PUNCH, 1, 1));
	OK(fallocate(fd, PUNCH, 4000, 70000));
	OK(fallocate(fd, PUNCH, 2 * MIB - 5, 10));
	OK(fallocate(fd, PUNCH, 3 * MIB - 3, 5 * MIB)); /* past the end: the size stays */
	EQUAL(size_of(fd), 3 * MIB);
	pattern_check(fd, 1, 0, 1);
	zero_check(fd, 1, 1);
	pattern_check(fd, 1, 2, 3998);
	zero_check(fd, 4000, 70000);
	pattern_check(fd, 1, 74000, 2 * MIB - 5 - 74000);
	zero_check(fd, 2 * MIB - 5, 10);
	pattern_check(fd, 1, 2 * MIB + 5, 1 * MIB - 8);
	zero_check(fd, 3 * MIB - 3, 3);
}

static void zeroing_a_range(void)
{
	int fd = new_file("file");

	pattern_write(fd, 1, 0, 3 * MIB);
	zero_range(fd, 0, 100, 2 * MIB);
	pattern_check(fd, 1, 0, 100);
	zero_check(fd, 100, 2 * MIB);
	pattern_check(fd, 1, 2 * MIB + 100, 1 * MIB - 100);
	zero_range(fd, FALLOC_FL_KEEP_SIZE, 3 * MIB - 1, 100);
	EQUAL(size_of(fd), 3 * MIB);
	zero_range(fd, 0, 3 * MIB - 2, 102);
	EQUAL(size_of(fd), 3 * MIB + 100);
	zero_check(fd, 3 * MIB - 2, 102);
}

static void allocation_keeps_bytes(void)
{
	int fd = new_file("file");

	pattern_write(fd, 1, 1000, 100);
	OK(fallocate(fd, FALLOC_FL_KEEP_SIZE, 0, 4 * MIB));
	EQUAL(size_of(fd), 1100);
	CHECK(stat_of("file").st_blocks * 512 >= 4 * MIB);
	pattern_check(fd, 1, 1000, 100);
	OK(fallocate(fd, 0, 3 * MIB, 2 * MIB));
	EQUAL(size_of(fd), 5 * MIB);
	zero_check(fd, 0, 1000);
	pattern_check(fd, 1, 1000, 100);
	zero_check(fd, 1100, 5 * MIB - 1100);
}

static void allocated_beyond_the_end_is_not_seen(void)
{
	int fd = new_file("file");

	OK(fallocate(fd, FALLOC_FL_KEEP_SIZE, 0, 4 * MIB));
	EQUAL(size_of(fd), 0);
	EQUAL(pread(fd, (char[10]){0}, 10, 0), 0);
	OK(ftruncate(fd, 1 * MIB));
	zero_check(fd, 0, 1 * MIB);
}

static void truncating_in_the_middle_of_a_hole(void)
{
	int fd = new_file("file");

	pattern_write(fd, 1, 0, 100);
	pattern_write(fd, 1, 20 * MIB, 100);
	OK(ftruncate(fd, 10 * MIB + 5));
	EQUAL(size_of(fd), 10 * MIB + 5);
	pattern_check(fd, 1, 0, 100);
	zero_check(fd, 100, 10 * MIB - 95);
	OK(ftruncate(fd, 30 * MIB));
	zero_check(fd, 10 * MIB, 20 * MIB);
	pattern_write(fd, 3, 10 * MIB, 10);
	pattern_check(fd, 3, 10 * MIB, 10);
	pattern_check(fd, 1, 0, 100);
}

/* All bytes that are not zero must be in ranges reported by SEEK_DATA, and data and holes
 * alternate. */
static void check_map(int fd, const unsigned char *model, off_t size)
{
	off_t at = 0;

	while (at < size) {
		off_t data = lseek(fd, at, SEEK_DATA);

		if (data < 0) {
			CHECK(errno == ENXIO);
			data = size;
		}
		CHECK(data >= at);
		for (off_t i = at; i < data; i++)
			if (model[i])
				FAIL("byte %lld is data but reported as a hole", (long long)i);
		if (data == size)
			return;
		off_t hole = OK(lseek(fd, data, SEEK_HOLE));

		CHECK(hole > data && hole <= size);
		EQUAL(lseek(fd, data, SEEK_DATA), data);
		EQUAL(lseek(fd, hole - 1, SEEK_HOLE), hole);
		at = hole;
	}
}

static void check_bytes(int fd, const unsigned char *model, off_t size)
{
	static unsigned char bytes[MODEL];

	EQUAL(size_of(fd), size);
	read_all(fd, bytes, size, 0);
	for (off_t i = 0; i < size; i++)
		if (bytes[i] != model[i])
			FAIL("byte %lld is %02x, wanted %02x", (long long)i, bytes[i], model[i]);
}

static off_t model_step(int fd, unsigned char *model, off_t size, uint64_t *random)
{
	off_t offset = random_next(random) % MODEL;
	off_t bytes = 1 + random_next(random) % (random_next(random) % 2 ? 3 * MIB : 5000);

	if (random_next(random) % 2) /* half of the offsets are on a border */
		offset &= ~(off_t)(random_next(random) % 2 ? 0xffff : 0xfff);
	if (offset + bytes > MODEL)
		bytes = MODEL - offset;
	switch (random_next(random) % 5) {
	case 0:
	case 1:
		pattern_fill(model + offset, bytes, *random, 0);
		write_all(fd, model + offset, bytes, offset);
		return offset + bytes > size ? offset + bytes : size;
	case 2:
		OK(fallocate(fd, PUNCH, offset, bytes));
		memset(model + offset, 0, bytes);
		return size;
	case 3:
		OK(fallocate(fd, 0, offset, bytes));
		return offset + bytes > size ? offset + bytes : size;
	default:
		OK(ftruncate(fd, offset));
		memset(model + offset, 0, MODEL - offset);
		return offset;
	}
}

static void random_holes(void)
{
	static unsigned char model[MODEL];
	uint64_t seed = seed_from_environment(20240607), random = seed;
	int fd = new_file("file");
	off_t size = 0;

	printf("GPUMEM_SEED=%llu\n", (unsigned long long)seed);
	for (int i = 0; i < 400; i++) {
		size = model_step(fd, model, size, &random);
		check_map(fd, model, size);
		if (i % 10 == 0)
			check_bytes(fd, model, size);
	}
	check_bytes(fd, model, size);
}

PROG(TEST(truncated_file_is_one_hole), TEST(full_file_has_no_hole), TEST(data_in_the_middle),
     TEST(punching_makes_a_hole), TEST(punching_odd_ranges), TEST(zeroing_a_range),
     TEST(allocation_keeps_bytes), TEST(allocated_beyond_the_end_is_not_seen),
     TEST(truncating_in_the_middle_of_a_hole), TEST(random_holes))
