/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* The bytes and memory of a file, as a user would notice, case by case. */
#include <fcntl.h>
#include <unistd.h>

#include "tests/unit/file_fixture.h"

static struct fixture f;

static void setup(void)
{
	fixture_open(&f, 64 * MIB, 16 * MIB);
}

static void teardown(void)
{
	fixture_close(&f);
}

static void write_byte_at(struct file *file, uint64_t offset, char value)
{
	ck_assert_int_eq(file_write(file, &f.call, &value, 1, offset), 1);
}

static char byte_at(struct file *file, uint64_t offset)
{
	char value = 0x7f;

	ck_assert_int_eq(file_read(file, &f.call, &value, 1, offset), 1);
	return value;
}

static void write_pattern(struct file *file, uint64_t offset, uint64_t bytes, char value)
{
	char *from = malloc(bytes);

	memset(from, value, bytes);
	ck_assert_int_eq(file_write(file, &f.call, from, bytes, offset), (ssize_t)bytes);
	free(from);
}

static uint64_t span_bytes(int volume)
{
	return pool_usage(f.volumes[volume].pool).span_bytes;
}

static uint64_t device_free(int volume)
{
	struct volume_usage usage;

	ck_assert_int_eq(volume_usage(&f.volumes[volume], &usage), 0);
	return usage.free;
}

START_TEST(test_empty_files_cost_nothing)
{
	struct file *file = fixture_file(&f, _i);
	char byte;

	ck_assert_uint_le(sizeof(struct file), 176);
	ck_assert_uint_eq(file_size(file), 0);
	ck_assert_uint_eq(file_allocated(file), 0);
	ck_assert_int_eq(file_read(file, &f.call, &byte, 1, 0), 0);
	ck_assert_int_eq(file_seek(file, 0, SEEK_DATA), -ENXIO);
	ck_assert_int_eq(file_seek(file, 0, SEEK_HOLE), -ENXIO);
	ck_assert_int_eq(file_truncate(file, &f.call, 0), 0);
	ck_assert_int_eq(atomic_load(&file->object.fd), -1);
	file_free(file, &f.call);
}
END_TEST

START_TEST(test_unit_follows_size)
{
	struct file *file = fixture_file(&f, GPU0);

	write_byte_at(file, 0, 'a');
	ck_assert_uint_eq(file_allocated(file), 4 * KIB);
	write_byte_at(file, 5000, 'b');
	ck_assert_uint_eq(file_allocated(file), 64 * KIB);
	write_byte_at(file, 3 * MIB, 'c');
	ck_assert_uint_eq(file_allocated(file), 64 * KIB + 2 * MIB);
	ck_assert_int_eq(byte_at(file, 0), 'a');
	ck_assert_int_eq(byte_at(file, 5000), 'b');
	ck_assert_int_eq(byte_at(file, 4999), 0);
	ck_assert_int_eq(byte_at(file, 2 * MIB), 0);
	ck_assert_int_eq(byte_at(file, 3 * MIB), 'c');
	file_free(file, &f.call);
}
END_TEST

START_TEST(test_truncate_in_a_hole)
{
	struct file *file = fixture_file(&f, _i);

	ck_assert_int_eq(file_truncate(file, &f.call, 10 * MIB), 0);
	write_byte_at(file, 9 * MIB, 'x');
	ck_assert_int_eq(file_truncate(file, &f.call, 5 * MIB + 17), 0);
	ck_assert_uint_eq(file_size(file), 5 * MIB + 17);
	ck_assert_uint_eq(file_allocated(file), 0);
	ck_assert_int_eq(file_truncate(file, &f.call, 10 * MIB), 0);
	ck_assert_int_eq(byte_at(file, 9 * MIB), 0);
	ck_assert_int_eq(file_seek(file, 0, SEEK_DATA), -ENXIO);
	ck_assert_int_eq(file_seek(file, 1, SEEK_HOLE), 1);
	file_free(file, &f.call);
}
END_TEST

START_TEST(test_no_stale_bytes_after_shrink_and_grow)
{
	static const uint64_t ends[] = {1, 100, 4096, 70000, 2 * MIB, 3 * MIB + 5};
	struct file *file = fixture_file(&f, _i);

	for (unsigned i = 0; i < 6; i++) {
		write_pattern(file, 0, 4 * MIB, 'p');
		ck_assert_int_eq(file_truncate(file, &f.call, ends[i]), 0);
		ck_assert_int_eq(file_truncate(file, &f.call, 4 * MIB), 0);
		ck_assert_int_eq(byte_at(file, ends[i] - 1), 'p');
		ck_assert_int_eq(byte_at(file, ends[i]), 0);
		ck_assert_int_eq(byte_at(file, 4 * MIB - 1), 0);
		ck_assert_int_eq(file_truncate(file, &f.call, ends[i]), 0);
		write_byte_at(file, 5 * MIB, 'q');
		ck_assert_int_eq(byte_at(file, ends[i]), 0);
	}
	file_free(file, &f.call);
}
END_TEST

/* A file written from front to back has few chunks, and after the writer's close the file holds
 * only the memory that its size needs. */
START_TEST(test_growing_and_trim)
{
	struct file *file = fixture_file(&f, GPU0);
	uint64_t size = 40 * MIB + 100 * KIB;

	for (uint64_t at = 0; at < size; at += 100 * KIB)
		write_pattern(file, at, 100 * KIB, (char)(at / MIB));
	size = file_size(file);
	ck_assert_uint_le(file->extents.count, 20);
	ck_assert_uint_gt(span_bytes(GPU0), align_up(size, CHUNK_ALIGN));
	ck_assert_uint_le(file_allocated(file), align_up(size, CHUNK_ALIGN));

	file_trim(file, &f.call);
	ck_assert_uint_eq(span_bytes(GPU0), align_up(size, CHUNK_ALIGN));
	ck_assert_uint_eq(file_allocated(file), align_up(size, CHUNK_ALIGN));
	for (uint64_t at = 0; at < size; at += 100 * KIB)
		ck_assert_int_eq(byte_at(file, at + 1), (char)(at / MIB));
	file_free(file, &f.call);
}
END_TEST

START_TEST(test_announced_size_is_not_passed)
{
	struct file *file = fixture_file(&f, GPU0);

	ck_assert_int_eq(file_truncate(file, &f.call, 7 * MIB), 0);
	for (uint64_t at = 0; at < 7 * MIB; at += MIB)
		write_pattern(file, at, MIB, 's');
	ck_assert_uint_eq(span_bytes(GPU0), 8 * MIB);
	file_free(file, &f.call);
}
END_TEST

START_TEST(test_device_fills_to_the_last_chunk)
{
	struct file *file = fixture_file(&f, GPU0);
	uint64_t at = 0;
	char *from = malloc(MIB);
	ssize_t n;

	memset(from, 'f', MIB);
	while ((n = file_write(file, &f.call, from, MIB - 5, at)) > 0)
		at += (uint64_t)n;
	ck_assert_int_eq(n, -ENOSPC);
	ck_assert_uint_eq(at, 64 * MIB);
	ck_assert_uint_eq(file_size(file), 64 * MIB);
	ck_assert_uint_eq(device_free(GPU0), 0);
	/* Writes within the allocated memory succeed. */
	ck_assert_int_eq(file_write(file, &f.call, from, MIB, 5 * MIB), (ssize_t)MIB);
	/* The device has no memory for a copy into a smaller chunk, yet the truncated bytes are
	 * gone. */
	ck_assert_int_eq(file_truncate(file, &f.call, 3 * MIB + 1), 0);
	ck_assert_int_eq(file_truncate(file, &f.call, 64 * MIB), 0);
	ck_assert_int_eq(byte_at(file, 3 * MIB), 'f');
	ck_assert_int_eq(byte_at(file, 3 * MIB + 1), 0);
	ck_assert_uint_gt(device_free(GPU0), 40 * MIB);
	free(from);
	file_free(file, &f.call);
}
END_TEST

START_TEST(test_allocate_is_all_or_nothing)
{
	struct file *file = fixture_file(&f, GPU0), *other = fixture_file(&f, GPU0);

	write_byte_at(file, 3 * MIB, 'k');
	write_byte_at(other, 0, 'o');

	uint64_t before = span_bytes(GPU0);

	ck_assert_int_eq(file_allocate(file, &f.call, 0, 0, 64 * MIB), -ENOSPC);
	ck_assert_int_eq(file_allocate(file, &f.call, 0, 0, 63 * MIB), -ENOSPC);
	ck_assert_uint_eq(span_bytes(GPU0), before);
	ck_assert_uint_eq(file_size(file), 3 * MIB + 1);
	ck_assert_int_eq(byte_at(file, 3 * MIB), 'k');

	atomic_store(&f.quota_owner.limit, (int64_t)(20 * MIB));
	ck_assert_int_eq(file_allocate(file, &f.call, 0, 0, 30 * MIB), -EDQUOT);
	ck_assert_uint_eq(span_bytes(GPU0), before);
	ck_assert_int_eq(file_allocate(file, &f.call, 0, 0, 14 * MIB), 0);
	ck_assert_uint_eq(file_size(file), 14 * MIB);
	ck_assert_int_eq(byte_at(file, 3 * MIB), 'k');
	ck_assert_int_eq(byte_at(file, 14 * MIB - 1), 0);
	file_free(file, &f.call);
	file_free(other, &f.call);
}
END_TEST

START_TEST(test_allocate_takes_few_chunks)
{
	struct file *file = fixture_file(&f, GPU0);

	ck_assert_int_eq(file_allocate(file, &f.call, 0, 0, 40 * MIB), 0);
	ck_assert_uint_eq(file->extents.count, 3); /* of at most 16 MiB */
	ck_assert_uint_eq(file_allocated(file), 40 * MIB);
	file_free(file, &f.call);
}
END_TEST

START_TEST(test_keep_size_survives_trim_and_goes_with_truncate)
{
	struct file *file = fixture_file(&f, GPU0);

	write_byte_at(file, 0, 'a');
	ck_assert_int_eq(file_allocate(file, &f.call, FALLOC_FL_KEEP_SIZE, 0, 10 * MIB), 0);
	ck_assert_uint_eq(file_size(file), 1);
	ck_assert_uint_eq(file_allocated(file), 10 * MIB);
	file_trim(file, &f.call);
	ck_assert_uint_eq(file_allocated(file), 10 * MIB);
	ck_assert_int_eq(file_truncate(file, &f.call, 1), 0);
	ck_assert_uint_eq(file_allocated(file), 4 * KIB);
	ck_assert_int_eq(byte_at(file, 0), 'a');
	file_free(file, &f.call);
}
END_TEST

START_TEST(test_punch_gives_memory_back)
{
	struct file *file = fixture_file(&f, GPU0);
	int punch = FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE;

	ck_assert_int_eq(file_allocate(file, &f.call, 0, 0, 12 * MIB), 0);
	write_pattern(file, 0, 12 * MIB, 'h');
	ck_assert_uint_eq(file->extents.count, 1);
	ck_assert_int_eq(file_allocate(file, &f.call, punch, 3 * MIB, 6 * MIB), 0);
	ck_assert_uint_eq(file_allocated(file), 8 * MIB);
	ck_assert_uint_eq(file_size(file), 12 * MIB);
	ck_assert_int_eq(byte_at(file, 3 * MIB - 1), 'h');
	ck_assert_int_eq(byte_at(file, 3 * MIB), 0);
	ck_assert_int_eq(byte_at(file, 9 * MIB - 1), 0);
	ck_assert_int_eq(byte_at(file, 9 * MIB), 'h');
	ck_assert_int_eq(file_seek(file, 0, SEEK_HOLE), (int64_t)(4 * MIB));
	ck_assert_int_eq(file_seek(file, 4 * MIB, SEEK_DATA), (int64_t)(8 * MIB));
	ck_assert_int_eq(file_seek(file, 8 * MIB, SEEK_HOLE), (int64_t)(12 * MIB));
	/* Beyond the end the call succeeds and does not change the file. */
	ck_assert_int_eq(file_allocate(file, &f.call, punch, 100 * MIB, MIB), 0);
	file_free(file, &f.call);
}
END_TEST

START_TEST(test_punch_splits_small_blocks)
{
	struct file *file = fixture_file(&f, GPU0);
	int punch = FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE;

	write_pattern(file, 0, 256 * KIB, 'b');
	ck_assert_int_eq(file_allocate(file, &f.call, punch, 5000, 100000), 0);
	ck_assert_uint_eq(file_allocated(file), 256 * KIB - 92 * KIB);
	ck_assert_int_eq(byte_at(file, 4999), 'b');
	ck_assert_int_eq(byte_at(file, 5000), 0);
	ck_assert_int_eq(byte_at(file, 104999), 0);
	ck_assert_int_eq(byte_at(file, 105000), 'b');
	file_free(file, &f.call);
}
END_TEST

START_TEST(test_zero_range)
{
	struct file *file = fixture_file(&f, _i);

	write_pattern(file, 0, 300000, 'z');
	ck_assert_int_eq(file_allocate(file, &f.call, FALLOC_FL_ZERO_RANGE, 1000, 400000), 0);
	ck_assert_uint_eq(file_size(file), 401000);
	ck_assert_int_eq(byte_at(file, 999), 'z');
	ck_assert_int_eq(byte_at(file, 1000), 0);
	ck_assert_int_eq(byte_at(file, 299999), 0);
	ck_assert_uint_ge(file_allocated(file), 400000);
	ck_assert_int_eq(
	    file_allocate(file, &f.call, FALLOC_FL_ZERO_RANGE | FALLOC_FL_KEEP_SIZE, 500000, 1000),
	    0);
	ck_assert_uint_eq(file_size(file), 401000);
	file_free(file, &f.call);
}
END_TEST

START_TEST(test_limits)
{
	struct file *file = fixture_file(&f, _i);
	int punch = FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE;
	char bytes[16] = "0123456789";

	ck_assert_int_eq(file_write(file, &f.call, bytes, 0, FILE_SIZE_MAX + 1), 0);
	ck_assert_int_eq(file_write(file, &f.call, bytes, 1, FILE_SIZE_MAX), -EFBIG);
	ck_assert_int_eq(file_write(file, &f.call, bytes, 10, FILE_SIZE_MAX - 4), 4);
	ck_assert_uint_eq(file_size(file), FILE_SIZE_MAX);
	ck_assert_int_eq(file_read(file, &f.call, bytes, 16, FILE_SIZE_MAX - 4), 4);
	ck_assert_mem_eq(bytes, "0123", 4);
	ck_assert_int_eq(file_truncate(file, &f.call, FILE_SIZE_MAX + 1), -EFBIG);
	ck_assert_int_eq(file_allocate(file, &f.call, 0, FILE_SIZE_MAX, 1), -EFBIG);
	ck_assert_int_eq(file_allocate(file, &f.call, FALLOC_FL_PUNCH_HOLE, 0, 1), -EOPNOTSUPP);
	ck_assert_int_eq(file_allocate(file, &f.call, FALLOC_FL_COLLAPSE_RANGE, 0, 1), -EOPNOTSUPP);
	ck_assert_int_eq(file_allocate(file, &f.call, punch, FILE_SIZE_MAX - 10, 100), 0);
	ck_assert_int_eq(byte_at(file, FILE_SIZE_MAX - 1), 0);
	ck_assert_int_eq(file_seek(file, 0, SEEK_CUR), -EINVAL);
	ck_assert_int_eq(file_seek(file, FILE_SIZE_MAX, SEEK_HOLE), -ENXIO);
	file_free(file, &f.call);
}
END_TEST

/* Runs for every pair of kinds of volume. */
START_TEST(test_copy)
{
	struct file *from = fixture_file(&f, _i / VOLUMES), *to = fixture_file(&f, _i % VOLUMES);

	ck_assert_int_eq(file_truncate(from, &f.call, 9 * MIB), 0);
	write_pattern(from, 1000, 3 * MIB, 'c');
	write_pattern(from, 8 * MIB, 500, 'd');
	write_pattern(to, 0, 100, 't');
	write_pattern(to, 6 * MIB + 100, 100, 'o');

	ck_assert_int_eq(file_copy(from, 500, to, &f.call, 50, 100 * MIB),
			 (ssize_t)(9 * MIB - 500));
	ck_assert_uint_eq(file_size(to), 9 * MIB - 450);
	ck_assert_int_eq(byte_at(to, 49), 't');
	ck_assert_int_eq(byte_at(to, 50), 0);
	ck_assert_int_eq(byte_at(to, 549), 0);
	ck_assert_int_eq(byte_at(to, 550), 'c');
	ck_assert_int_eq(byte_at(to, 3 * MIB + 549), 'c');
	ck_assert_int_eq(byte_at(to, 3 * MIB + 550), 0);
	ck_assert_int_eq(byte_at(to, 6 * MIB + 150), 0);
	ck_assert_int_eq(byte_at(to, 8 * MIB - 450), 'd');
	ck_assert_uint_lt(file_allocated(to), 9 * MIB);
	ck_assert_int_eq(file_copy(from, 9 * MIB, to, &f.call, 0, 1), 0);
	ck_assert_int_eq(file_copy(from, 0, to, &f.call, FILE_SIZE_MAX, 1), -EFBIG);
	file_free(from, &f.call);
	file_free(to, &f.call);
}
END_TEST

START_TEST(test_copy_within_one_file)
{
	struct file *file = fixture_file(&f, _i);

	write_pattern(file, 0, 100000, 'w');
	ck_assert_int_eq(file_copy(file, 0, file, &f.call, 50000, 100000), -EINVAL);
	ck_assert_int_eq(file_copy(file, 0, file, &f.call, 100000, 100000), 100000);
	ck_assert_uint_eq(file_size(file), 200000);
	ck_assert_int_eq(byte_at(file, 199999), 'w');
	file_free(file, &f.call);
}
END_TEST

START_TEST(test_copy_to_a_full_device)
{
	struct file *from = fixture_file(&f, GPU1), *to = fixture_file(&f, GPU0);
	struct file *rest = fixture_file(&f, GPU0);

	write_pattern(from, 0, 20 * MIB, 'y');
	ck_assert_int_eq(file_allocate(rest, &f.call, 0, 0, 58 * MIB), 0);
	ck_assert_int_eq(file_copy(from, 0, to, &f.call, 0, 20 * MIB), (ssize_t)(6 * MIB));
	ck_assert_uint_eq(file_size(to), 6 * MIB);
	ck_assert_int_eq(byte_at(to, 6 * MIB - 1), 'y');
	ck_assert_int_eq(file_copy(from, 0, to, &f.call, 6 * MIB, 20 * MIB), -ENOSPC);
	file_free(from, &f.call);
	file_free(to, &f.call);
	file_free(rest, &f.call);
}
END_TEST

START_TEST(test_device_errors_reach_the_caller)
{
	struct file *from = fixture_file(&f, GPU0), *to = fixture_file(&f, GPU1);
	char bytes[100];

	write_pattern(from, 0, 3 * MIB, 'e');
	write_byte_at(to, 0, 'k');

	uint64_t before = span_bytes(GPU1);

	atomic_store(&fixture_work_left, 0);
	ck_assert_int_eq(file_read(from, &f.call, bytes, sizeof(bytes), 0), -EIO);
	ck_assert_int_eq(file_write(from, &f.call, bytes, sizeof(bytes), 0), -EIO);
	ck_assert_int_eq(file_copy(from, 0, to, &f.call, 1, 3 * MIB), -EIO);
	ck_assert_int_eq(file_relayout(from, &f.call), -EIO);
	atomic_store(&fixture_work_left, -1);

	/* The memory that was allocated for the failed copy is freed. */
	ck_assert_uint_eq(span_bytes(GPU1), before);
	ck_assert_uint_eq(file_size(to), 1);
	ck_assert_int_eq(byte_at(to, 0), 'k');
	ck_assert_int_eq(byte_at(from, 3 * MIB - 1), 'e');
	check_layout(to);
	file_free(from, &f.call);
	file_free(to, &f.call);
}
END_TEST

/* A device reset marked chunks as lost: file_lost counts the bytes, and I/O fails until the file is
 * truncated. */
START_TEST(test_lost_memory)
{
	struct file *file = fixture_file(&f, GPU0), *other = fixture_file(&f, GPU0);
	char byte;

	write_pattern(file, 0, 4 * MIB, 'l');
	write_pattern(file, 4 * MIB, 4 * MIB, 'k');
	write_pattern(other, 0, 2 * MIB, 'o');
	ck_assert_uint_eq(file_lost(file), 0);

	struct extent *first = &file->extents.at[0];

	ck_assert_uint_gt(file->extents.count, 1);
	atomic_store(&first->span.chunk->lost, true);
	ck_assert_uint_eq(file_lost(file), first->span.bytes);
	ck_assert_uint_eq(file_lost(other), 0);
	ck_assert_int_eq(file_read(file, &f.call, &byte, 1, 0), -EIO);
	ck_assert_int_eq(byte_at(file, 8 * MIB - 1), 'k');
	ck_assert_int_eq(byte_at(other, 0), 'o');
	ck_assert_int_eq(file_truncate(file, &f.call, 0), 0);
	ck_assert_uint_eq(file_lost(file), 0);
	write_byte_at(file, 0, 'n');
	ck_assert_int_eq(byte_at(file, 0), 'n');
	file_free(file, &f.call);
	file_free(other, &f.call);
}
END_TEST

START_TEST(test_move)
{
	int from = _i / VOLUMES, to = _i % VOLUMES;
	struct file *file = fixture_file(&f, from);
	struct file_move *move;

	ck_assert_int_eq(file_truncate(file, &f.call, 11 * MIB), 0);
	write_pattern(file, 100, 3 * MIB, 'm');
	write_pattern(file, 9 * MIB, 10, 'n');
	for (int end = FILE_MOVE_ABORT; end <= FILE_MOVE_COMMIT; end++) {
		ck_assert_int_eq(file_move_begin(file, &f.call, &f.volumes[to], &move), 0);
		/* Other threads ask while the thread of the rename waits for locks of the tree. */
		ck_assert_uint_eq(file_size(file), 11 * MIB);
		ck_assert_uint_gt(file_allocated(file), 3 * MIB);
		ck_assert_int_ne(file_object(file, &f.call), -1);
		file_move_end(move, (enum file_move_end)end);
		file_move_free(move);
		ck_assert_ptr_eq(file_volume(file), &f.volumes[end ? to : from]);
		ck_assert_uint_eq(file_size(file), 11 * MIB);
		ck_assert_int_eq(byte_at(file, 99), 0);
		ck_assert_int_eq(byte_at(file, 100), 'm');
		ck_assert_int_eq(byte_at(file, 3 * MIB + 99), 'm');
		ck_assert_int_eq(byte_at(file, 3 * MIB + 100), 0);
		ck_assert_int_eq(byte_at(file, 9 * MIB + 9), 'n');
		ck_assert_int_eq(atomic_load(&f.quota_owner.total),
				 (int64_t)atomic_load(&file->allocated));
	}
	ck_assert_int_eq(file_seek(file, 5 * MIB, SEEK_HOLE), (int64_t)(5 * MIB));
	if (from != to && from != HOST)
		ck_assert_uint_eq(span_bytes(from), 0);
	if (from != to && from == HOST)
		ck_assert_uint_eq(device_free(HOST), 64 * MIB);

	/* The file moves back with its bytes, and then there and back again without bytes. */
	for (int i = 0; i < 4; i++) {
		ck_assert_int_eq(
		    file_move_begin(file, &f.call, &f.volumes[i & 1 ? to : from], &move), 0);
		file_move_end(move, FILE_MOVE_COMMIT);
		file_move_free(move);
		if (i > 1)
			ck_assert_uint_eq(file_size(file), 0);
		else
			ck_assert_int_eq(byte_at(file, 9 * MIB), 'n');
		if (i == 1)
			ck_assert_int_eq(file_truncate(file, &f.call, 0), 0);
	}
	file_free(file, &f.call);
}
END_TEST

START_TEST(test_move_without_room)
{
	struct file *file = fixture_file(&f, GPU0), *rest = fixture_file(&f, GPU1);
	struct file_move *move;

	write_pattern(file, 0, 5 * MIB, 'r');
	ck_assert_int_eq(file_allocate(rest, &f.call, 0, 0, 60 * MIB), 0);
	ck_assert_int_eq(file_move_begin(file, &f.call, &f.volumes[GPU1], &move), -ENOSPC);
	ck_assert_ptr_eq(file_volume(file), &f.volumes[GPU0]);
	ck_assert_int_eq(byte_at(file, 5 * MIB - 1), 'r');
	ck_assert_uint_eq(span_bytes(GPU1), 60 * MIB);
	file_free(file, &f.call);
	file_free(rest, &f.call);
}
END_TEST

START_TEST(test_relayout)
{
	struct file *file = fixture_file(&f, GPU0);

	write_pattern(file, 0, 5 * MIB + 3, 'l');
	f.call.attrs.page_size = PAGE_SIZE_4K;
	ck_assert_int_eq(file_relayout(file, &f.call), 0);
	ck_assert_uint_eq(file_allocated(file), 5 * MIB + 4 * KIB);
	f.call.attrs.page_size = PAGE_SIZE_2M;
	ck_assert_int_eq(file_relayout(file, &f.call), 0);
	ck_assert_uint_eq(file_allocated(file), 6 * MIB);
	ck_assert_uint_eq(file->extents.count, 1);
	ck_assert_int_eq(byte_at(file, 5 * MIB + 2), 'l');
	check_beyond_end(&f, file);

	f.call.attrs.page_size = PAGE_SIZE_1G;
	ck_assert_int_eq(file_relayout(file, &f.call), -ENOSPC);
	ck_assert_uint_eq(file_allocated(file), 6 * MIB);
	atomic_store(&f.quota_owner.limit, (int64_t)(4 * MIB));
	f.call.attrs.page_size = PAGE_SIZE_64K;
	ck_assert_int_eq(file_relayout(file, &f.call), 0); /* less than before the relayout */
	ck_assert_int_eq(byte_at(file, 5 * MIB + 2), 'l');
	f.call.attrs.page_size = PAGE_SIZE_2M;
	ck_assert_int_eq(file_relayout(file, &f.call), -EDQUOT);
	ck_assert_uint_eq(file_allocated(file), 5 * MIB + 64 * KIB);
	file_free(file, &f.call);
}
END_TEST

START_TEST(test_describe)
{
	struct file *file = fixture_file(&f, _i);
	char *text = NULL;
	size_t length;
	FILE *out = open_memstream(&text, &length);

	write_byte_at(file, 0, 'a');
	write_byte_at(file, 4 * MIB, 'b');
	ck_assert_int_eq(file_describe(file, out), 0);
	fclose(out);
	if (_i == HOST)
		ck_assert_str_eq(text, "0 4096 0 object\n4194304 1 4194304 object\n");
	else
		ck_assert_str_eq(text, "0 4096 0 block\n4194304 2097152 0 chunk\n");
	free(text);
	file_free(file, &f.call);
}
END_TEST

START_TEST(test_object_is_the_file)
{
	struct file *file = fixture_file(&f, HOST), *device = fixture_file(&f, GPU0);
	int fd = file_object(file, &f.call);
	char byte;

	ck_assert_int_ge(fd, 0);
	ck_assert_int_eq(file_object(file, &f.call), fd);
	ck_assert_int_eq(pwrite(fd, "direct", 6, 10), 6);
	ck_assert_uint_eq(file_size(file), 16);
	ck_assert_int_eq(byte_at(file, 10), 'd');
	write_byte_at(file, 11, 'X');
	ck_assert_int_eq(pread(fd, &byte, 1, 11), 1);
	ck_assert_int_eq(byte, 'X');
	ck_assert_int_eq(file_object(device, &f.call), -ENOTSUP);
	ck_assert_int_eq(atomic_load(file_backing_id(file)), 0);

	/* The object stays the file's while the kernel uses the object. */
	struct file_move *move;

	atomic_store(file_backing_id(file), 7);
	ck_assert_int_eq(file_move_begin(file, &f.call, &f.volumes[GPU0], &move), -ETXTBSY);
	ck_assert_int_eq(file_relayout(file, &f.call), -EBUSY);
	ck_assert_int_eq(file_object(file, &f.call), fd);
	file_free(file, &f.call);
	file_free(device, &f.call);
}
END_TEST

START_TEST(test_object_keeps_to_the_quota)
{
	struct file *file = fixture_file(&f, HOST);

	atomic_store(&f.quota_owner.limit, (int64_t)(64 * KIB));
	write_pattern(file, 0, 64 * KIB, 'q');
	ck_assert_int_eq(file_write(file, &f.call, "x", 1, 64 * KIB), -EDQUOT);
	ck_assert_uint_eq(file_size(file), 64 * KIB);
	write_pattern(file, 1000, 60 * KIB, 'r'); /* overwrites existing bytes */
	ck_assert_int_eq(file_allocate(file, &f.call, 0, 0, 65 * KIB), -EDQUOT);
	ck_assert_int_eq(file_truncate(file, &f.call, 4 * KIB), 0);
	ck_assert_int_eq(atomic_load(&f.quota_owner.total), (int64_t)(4 * KIB));
	ck_assert_int_eq(file_write(file, &f.call, "x", 1, 64 * KIB), 1);
	file_free(file, &f.call);
}
END_TEST

START_TEST(test_mapping_attribute)
{
	struct file *file = fixture_file(&f, GPU0), *small = fixture_file(&f, GPU0);

	f.call.attrs.mapping = MAPPING_PERSISTENT;
	write_byte_at(small, 0, 'p');
	f.call.attrs.mapping = MAPPING_TRANSIENT;
	write_byte_at(file, 0, 't');
	write_byte_at(file, 2 * MIB, 't');
	file_apply_mapping(file, &f.call);

	struct chunk *shared = small->extents.at[0].span.chunk;

	ck_assert_ptr_eq(file->extents.at[0].span.chunk, shared);
	ck_assert_int_eq(atomic_load(&shared->bar_policy), MAP_PERSISTENT);
	ck_assert_int_eq(atomic_load(&file->extents.at[1].span.chunk->bar_policy), MAP_TRANSIENT);
	ck_assert_uint_eq(file_mapped(file), 0); /* the device has no BAR */
	file_free(file, &f.call);
	file_free(small, &f.call);
}
END_TEST

START_TEST(test_usage)
{
	struct file *file = fixture_file(&f, _i);
	struct volume_usage before, after;

	ck_assert_int_eq(volume_usage(&f.volumes[_i], &before), 0);
	ck_assert_uint_eq(before.total, 64 * MIB);
	ck_assert_uint_eq(before.held, 0);
	ck_assert_int_eq(file_allocate(file, &f.call, 0, 0, 10 * MIB), 0);
	ck_assert_int_eq(volume_usage(&f.volumes[_i], &after), 0);
	ck_assert_uint_eq(after.free, before.free - 10 * MIB);
	ck_assert_uint_eq(after.available, before.available - 10 * MIB);
	ck_assert_uint_eq(after.held, 10 * MIB);
	file_free(file, &f.call);
}
END_TEST

int main(void)
{
	TCase *tcase;
	Suite *suite = unit_suite("file", &tcase, 120);

	tcase_add_checked_fixture(tcase, setup, teardown);
	tcase_add_loop_test(tcase, test_empty_files_cost_nothing, 0, VOLUMES);
	tcase_add_test(tcase, test_unit_follows_size);
	tcase_add_loop_test(tcase, test_truncate_in_a_hole, 0, VOLUMES);
	tcase_add_loop_test(tcase, test_no_stale_bytes_after_shrink_and_grow, 0, VOLUMES);
	tcase_add_test(tcase, test_growing_and_trim);
	tcase_add_test(tcase, test_announced_size_is_not_passed);
	tcase_add_test(tcase, test_device_fills_to_the_last_chunk);
	tcase_add_test(tcase, test_allocate_is_all_or_nothing);
	tcase_add_test(tcase, test_allocate_takes_few_chunks);
	tcase_add_test(tcase, test_keep_size_survives_trim_and_goes_with_truncate);
	tcase_add_test(tcase, test_punch_gives_memory_back);
	tcase_add_test(tcase, test_punch_splits_small_blocks);
	tcase_add_loop_test(tcase, test_zero_range, 0, VOLUMES);
	tcase_add_loop_test(tcase, test_limits, 0, VOLUMES);
	tcase_add_loop_test(tcase, test_copy, 0, VOLUMES * VOLUMES);
	tcase_add_loop_test(tcase, test_copy_within_one_file, 0, VOLUMES);
	tcase_add_test(tcase, test_copy_to_a_full_device);
	tcase_add_test(tcase, test_device_errors_reach_the_caller);
	tcase_add_test(tcase, test_lost_memory);
	tcase_add_loop_test(tcase, test_move, 0, VOLUMES * VOLUMES);
	tcase_add_test(tcase, test_move_without_room);
	tcase_add_test(tcase, test_relayout);
	tcase_add_loop_test(tcase, test_describe, 0, VOLUMES);
	tcase_add_test(tcase, test_object_is_the_file);
	tcase_add_test(tcase, test_object_keeps_to_the_quota);
	tcase_add_test(tcase, test_mapping_attribute);
	tcase_add_loop_test(tcase, test_usage, 0, VOLUMES);
	return unit_main(suite);
}
