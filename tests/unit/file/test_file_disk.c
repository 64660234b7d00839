/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* Extents on a disk: moves between all places, requests in place, and a disk that is full or
 * fails. */
#include <fcntl.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#include "fs/file/export.h"
#include "tests/unit/file_fixture.h"

#define DEVICE_BYTES (16 * MIB)
#define SPILL_BYTES  (8 * MIB)
#define DISK_BYTES   (40 * MIB)
#define SIZE	     (10 * MIB + 12345)

static struct fixture fixture;
static unsigned char *data;

/* Writes to the disk before the failing write, or negative: no failure. */
static int writes_left = -1, write_error;

/* Instead of the C library's: backend/disk.c writes by this function alone. */
ssize_t pwritev2(int fd, const struct iovec *pieces, int n, off_t offset, int flags)
{
	if (writes_left == 0) {
		errno = write_error;
		return -1;
	}
	writes_left -= writes_left > 0;
	return syscall(SYS_pwritev2, fd, pieces, n, offset, 0, flags);
}

static void up(void)
{
	uint64_t state = unit_seed();

	fixture_open(&fixture, DEVICE_BYTES, 8 * MIB);
	fixture_spill(&fixture, SPILL_BYTES);
	fixture_disk(&fixture, DISK_BYTES);
	data = malloc(SIZE);
	unit_fill(data, SIZE, &state);
	writes_left = -1;
}

static void down(void)
{
	free(data);
	fixture_close(&fixture);
}

static struct file *file_filled(uint64_t bytes)
{
	struct file *file = fixture_file(&fixture, GPU0);

	ck_assert_int_eq(file_truncate(file, &fixture.call, bytes), 0);
	ck_assert_int_eq(file_write(file, &fixture.call, data, bytes, 0), (ssize_t)bytes);
	return file;
}

static void expect_bytes(struct file *file, uint64_t bytes)
{
	unsigned char *found = malloc(SIZE);

	ck_assert_int_eq(file_read(file, &fixture.call, found, SIZE, 0), (ssize_t)bytes);
	ck_assert_mem_eq(found, data, bytes);
	check_beyond_end(&fixture, file);
	check_layout(file);
	free(found);
}

static uint64_t disk_bytes(void)
{
	return pool_usage(fixture.volumes[GPU0].disk).span_bytes;
}

static const uint64_t sizes[] = {1, 100 * KIB, 2 * MIB, 5 * MIB + 17};

START_TEST(between_all_places)
{
	static const enum memory_place places[] = {PLACE_DISK, PLACE_GPU,  PLACE_HOST,
						   PLACE_DISK, PLACE_HOST, PLACE_GPU};
	struct file *file = file_filled(sizes[_i]);
	uint64_t charged = (uint64_t)atomic_load(&fixture.quota_owner.total), moved;

	for (unsigned i = 0; i < sizeof(places) / sizeof(places[0]); i++) {
		ck_assert_int_eq(file_place(file, &fixture.call, places[i], UINT64_MAX, &moved), 0);
		ck_assert_uint_eq(moved, charged);
		ck_assert_uint_eq(file_bytes_in(file, places[i]), moved);
		ck_assert_uint_eq(disk_bytes(), places[i] == PLACE_DISK ? moved : 0);
		expect_bytes(file, sizes[_i]);
	}
	ck_assert_uint_le(atomic_load(&fixture.disk.held),
			  CHUNK_ALIGN); /* for the next small file */
	file_free(file, &fixture.call);
}
END_TEST

/* The same requests to a file on the disk and to a file on the GPU give the same bytes. */
START_TEST(requests_in_place)
{
	struct file *file = file_filled(SIZE), *same = file_filled(SIZE / 4);
	unsigned char *found = malloc(SIZE), *expected = malloc(SIZE);
	struct file *both[] = {file, same};
	uint64_t moved;

	ck_assert_int_eq(file_truncate(file, &fixture.call, SIZE / 4), 0);
	ck_assert_int_eq(file_place(file, &fixture.call, PLACE_DISK, UINT64_MAX, &moved), 0);
	for (int i = 0; i < 2; i++) {
		ck_assert_int_eq(file_write(both[i], &fixture.call, data + 5000, 70001, 4097),
				 70001);
		ck_assert_int_eq(file_allocate(both[i], &fixture.call,
					       FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
					       100 * KIB, 33 * KIB),
				 0);
		ck_assert_int_eq(
		    file_allocate(both[i], &fixture.call, FALLOC_FL_ZERO_RANGE, 1001, 300 * KIB),
		    0);
		ck_assert_int_eq(
		    file_copy(both[i], 400 * KIB, both[i], &fixture.call, 1 * MIB, 200 * KIB),
		    200 * KIB);
		ck_assert_int_eq(file_truncate(both[i], &fixture.call, 2 * MIB + 5), 0);
		ck_assert_int_eq(file_truncate(both[i], &fixture.call, 3 * MIB), 0);
	}
	ck_assert_uint_gt(file_bytes_in(file, PLACE_DISK), 0);
	ck_assert_uint_eq(file_bytes_in(same, PLACE_DISK), 0);
	ck_assert_int_eq(file_read(file, &fixture.call, found, SIZE, 0), 3 * MIB);
	ck_assert_int_eq(file_read(same, &fixture.call, expected, SIZE, 0), 3 * MIB);
	ck_assert_mem_eq(found, expected, 3 * MIB);
	/* Between the places. */
	ck_assert_int_eq(file_copy(file, 0, same, &fixture.call, 123, 2 * MIB), 2 * MIB);
	ck_assert_int_eq(file_read(same, &fixture.call, expected, 2 * MIB, 123), 2 * MIB);
	ck_assert_mem_eq(found, expected, 2 * MIB);
	free(found);
	free(expected);
	file_free(file, &fixture.call);
	file_free(same, &fixture.call);
}
END_TEST

/* Small files share a chunk: zeroes written to one do not reach another. */
START_TEST(small_files)
{
	enum { FILES = 3, BYTES = 40 * KIB };
	static const unsigned char zeroes[10 * KIB];
	unsigned char found[BYTES];
	struct file *files[FILES];
	uint64_t moved;

	for (int i = 0; i < FILES; i++) {
		files[i] = file_filled(BYTES);
		ck_assert_int_eq(
		    file_place(files[i], &fixture.call, PLACE_DISK, UINT64_MAX, &moved), 0);
	}
	ck_assert_int_eq(
	    file_allocate(files[1], &fixture.call, FALLOC_FL_ZERO_RANGE, 3 * KIB, sizeof(zeroes)),
	    0);
	ck_assert_int_eq(file_read(files[1], &fixture.call, found, BYTES, 0), BYTES);
	ck_assert_mem_eq(found + 3 * KIB, zeroes, sizeof(zeroes));
	ck_assert_mem_eq(found, data, 3 * KIB);
	ck_assert_mem_eq(found + 13 * KIB, data + 13 * KIB, 27 * KIB);
	expect_bytes(files[0], BYTES);
	expect_bytes(files[2], BYTES);
	for (int i = 0; i < FILES; i++)
		file_free(files[i], &fixture.call);
}
END_TEST

/* The file stays where it was, whole, at whatever write the disk fails. */
START_TEST(failing_disk)
{
	static const int errors[] = {EIO, ENOSPC};
	struct file *file = file_filled(SIZE);
	uint64_t charged = (uint64_t)atomic_load(&fixture.quota_owner.total), moved;

	for (int n = 0; n < 4; n++) {
		writes_left = n / 2;
		write_error = errors[n % 2];
		int rc = file_place(file, &fixture.call, PLACE_DISK, UINT64_MAX, &moved);

		writes_left = -1;
		ck_assert_int_eq(rc, -errors[n % 2]);
		ck_assert_uint_eq(disk_bytes(), file_bytes_in(file, PLACE_DISK));
		ck_assert_uint_eq((uint64_t)atomic_load(&fixture.quota_owner.total), charged);
		expect_bytes(file, SIZE);
	}
	/* A write to bytes on the disk is told its error. */
	ck_assert_int_eq(file_place(file, &fixture.call, PLACE_DISK, UINT64_MAX, &moved), 0);
	writes_left = 0;
	write_error = EIO;
	ck_assert_int_eq(file_write(file, &fixture.call, data, 4096, 0), -EIO);
	writes_left = -1;
	ck_assert_int_eq(file_write(file, &fixture.call, data, 4096, 0), 4096);
	expect_bytes(file, SIZE);
	file_free(file, &fixture.call);
}
END_TEST

START_TEST(lease_brings_memory_back)
{
	static const uint8_t residents[] = {RESIDENT_GPU, RESIDENT_DISK, RESIDENT_HOST};
	struct file *file = file_filled(4 * MIB);
	uint64_t moved;

	ck_assert_int_eq(file_place(file, &fixture.call, PLACE_DISK, UINT64_MAX, &moved), 0);
	fixture.call.attrs.resident = residents[_i] & 7;
	int kind = file_lease(file, &fixture.call, FILE_SHARE_WRITE, FILE_MAY_WAIT);

	ck_assert_int_eq(kind, FILE_LEASE_HOLDS);
	ck_assert_uint_eq(
	    file_bytes_in(file, residents[_i] == RESIDENT_HOST ? PLACE_HOST : PLACE_GPU), 4 * MIB);
	ck_assert_int_eq(file_place(file, &fixture.call, PLACE_DISK, UINT64_MAX, &moved), -EBUSY);
	expect_bytes(file, 4 * MIB);
	file_lease_end(file, (enum file_lease_kind)kind);
	file_free(file, &fixture.call);
}
END_TEST

/* As file_call.make_room, when no file may leave. */
static bool make_no_room(void *owner, const struct volume *volume, enum memory_place place,
			 enum place_short why, uint64_t bytes, const struct file *but)
{
	(void)owner, (void)volume, (void)place, (void)why, (void)bytes, (void)but;
	return false;
}

START_TEST(new_memory_goes_to_the_disk_at_last)
{
	fixture.call.make_room = make_no_room;
	struct file *file = fixture_file(&fixture, GPU0);

	for (uint64_t at = 0; at < 50 * MIB; at += MIB)
		ck_assert_int_eq(file_write(file, &fixture.call, data + at / 16, MIB, at), MIB);
	ck_assert_uint_ge(file_bytes_in(file, PLACE_GPU), 12 * MIB);
	ck_assert_uint_ge(file_bytes_in(file, PLACE_HOST), 4 * MIB);
	ck_assert_uint_gt(file_bytes_in(file, PLACE_DISK), 20 * MIB);
	for (uint64_t at = 0; at < 50 * MIB; at += MIB) {
		unsigned char *found = malloc(MIB);

		ck_assert_int_eq(file_read(file, &fixture.call, found, MIB, at), MIB);
		ck_assert_mem_eq(found, data + at / 16, MIB);
		free(found);
	}
	/* All places are full. */
	ssize_t n = MIB;

	for (uint64_t at = 50 * MIB; at < 80 * MIB && n > 0; at += MIB)
		n = file_write(file, &fixture.call, data, MIB, at);
	ck_assert_int_eq(n, -ENOSPC);
	ck_assert_uint_le(atomic_load(&fixture.disk.held), DISK_BYTES);
	file_free(file, &fixture.call);
}
END_TEST

/* The fastest place with room. */
START_TEST(place_out)
{
	struct file *small = file_filled(4 * MIB), *large = file_filled(SIZE);

	ck_assert_int_eq(file_place_out(small, &fixture.call), 0);
	ck_assert_uint_eq(file_bytes_in(small, PLACE_HOST), 4 * MIB);
	ck_assert_int_eq(file_place_out(large, &fixture.call), 0);
	ck_assert_uint_eq(file_bytes_in(large, PLACE_GPU), 0);
	ck_assert_uint_gt(file_bytes_in(large, PLACE_DISK), 0);
	expect_bytes(small, 4 * MIB);
	expect_bytes(large, SIZE);
	file_free(small, &fixture.call);
	file_free(large, &fixture.call);
}
END_TEST

int main(void)
{
	TCase *tests;
	Suite *suite = unit_suite("file_disk", &tests, 60);

	tcase_add_checked_fixture(tests, up, down);
	tcase_add_loop_test(tests, between_all_places, 0, sizeof(sizes) / sizeof(sizes[0]));
	tcase_add_test(tests, requests_in_place);
	tcase_add_test(tests, small_files);
	tcase_add_test(tests, failing_disk);
	tcase_add_loop_test(tests, lease_brings_memory_back, 0, 3);
	tcase_add_test(tests, new_memory_goes_to_the_disk_at_last);
	tcase_add_test(tests, place_out);
	return unit_main(suite);
}
