/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* Extents that leave the GPU for system memory and come back, and new memory on a full GPU. */
#include <fcntl.h>
#include <stdlib.h>

#include "fs/file/export.h"
#include "tests/unit/file_fixture.h"

#define DEVICE_BYTES (16 * MIB)
#define SPILL_BYTES  (24 * MIB)
#define SIZE	     (10 * MIB + 12345)

static struct fixture fixture;
static unsigned char *data;

static void up(void)
{
	uint64_t state = unit_seed();

	fixture_open(&fixture, DEVICE_BYTES, 8 * MIB);
	fixture_spill(&fixture, SPILL_BYTES);
	data = malloc(SIZE);
	unit_fill(data, SIZE, &state);
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

static int place_all(struct file *file, enum memory_place place, uint64_t *moved)
{
	return file_place(file, &fixture.call, place, UINT64_MAX, moved);
}

static struct pool_usage usage_of(enum memory_place place)
{
	return pool_usage(volume_pool(&fixture.volumes[GPU0], place));
}

static const uint64_t sizes[] = {1, 4 * KIB, 100 * KIB, 2 * MIB, SIZE};

START_TEST(bytes_leave_and_come_back)
{
	struct file *file = file_filled(sizes[_i]);
	uint64_t allocated = file_allocated(file), moved;
	int64_t charged = atomic_load(&fixture.quota_owner.total);
	uint32_t extents = file->extents.count;

	for (int turn = 0; turn < 2; turn++) {
		ck_assert_int_eq(place_all(file, PLACE_HOST, &moved), 0);
		ck_assert_uint_eq(moved, (uint64_t)charged);
		ck_assert_uint_eq(file_bytes_in(file, PLACE_HOST), moved);
		ck_assert_uint_eq(file_bytes_in(file, PLACE_GPU), 0);
		ck_assert_uint_eq(usage_of(PLACE_GPU).span_bytes, 0);
		ck_assert_uint_eq(usage_of(PLACE_HOST).span_bytes, moved);
		expect_bytes(file, sizes[_i]);
		ck_assert_int_eq(place_all(file, PLACE_HOST, &moved), 0);
		ck_assert_uint_eq(moved, 0);

		ck_assert_int_eq(place_all(file, PLACE_GPU, &moved), 0);
		ck_assert_uint_eq(moved, (uint64_t)charged);
		ck_assert_uint_eq(file_bytes_in(file, PLACE_HOST), 0);
		ck_assert_uint_eq(usage_of(PLACE_HOST).span_bytes, 0);
		expect_bytes(file, sizes[_i]);
	}
	ck_assert_uint_eq(file_allocated(file), allocated);
	ck_assert_int_eq(atomic_load(&fixture.quota_owner.total), charged);
	ck_assert_uint_le(file->extents.count, extents);
	file_free(file, &fixture.call);
}
END_TEST

START_TEST(holes_stay_holes)
{
	struct file *file = fixture_file(&fixture, GPU0);
	uint64_t moved;

	ck_assert_int_eq(file_truncate(file, &fixture.call, 12 * MIB), 0);
	ck_assert_int_eq(file_write(file, &fixture.call, data, 100, 5 * MIB), 100);
	uint64_t allocated = file_allocated(file);

	ck_assert_int_eq(place_all(file, PLACE_HOST, &moved), 0);
	ck_assert_uint_eq(file_allocated(file), allocated);
	ck_assert_int_eq(file_seek(file, 0, SEEK_DATA) / (int64_t)CHUNK_ALIGN, 2);
	/* New memory is where the file belongs, beside memory that has left. */
	ck_assert_int_eq(file_write(file, &fixture.call, data, 100, 0), 100);
	ck_assert_uint_gt(file_bytes_in(file, PLACE_GPU), 0);
	ck_assert_uint_eq(file_bytes_in(file, PLACE_HOST), moved);
	file_free(file, &fixture.call);
}
END_TEST

START_TEST(some_bytes_leave_from_the_front)
{
	struct file *file = file_filled(SIZE);
	uint64_t moved, first = file->extents.at[0].span.bytes;

	ck_assert_int_eq(file_place(file, &fixture.call, PLACE_HOST, 1, &moved), 0);
	ck_assert_uint_eq(moved, first);
	ck_assert_int_eq(file->extents.at[0].span.chunk->place, PLACE_HOST);
	ck_assert_uint_eq(file_bytes_in(file, PLACE_GPU) + moved, atomic_load(&file->allocated));
	expect_bytes(file, SIZE);
	file_free(file, &fixture.call);
}
END_TEST

START_TEST(leased_memory_stays)
{
	struct file *file = file_filled(4 * MIB);
	uint64_t moved;
	int kind = file_lease(file, &fixture.call, FILE_SHARE_WRITE, FILE_MAY_WAIT);

	ck_assert_int_eq(kind, FILE_LEASE_HOLDS);
	ck_assert_int_eq(place_all(file, PLACE_HOST, &moved), -EBUSY);
	ck_assert_uint_eq(moved, 0);
	ck_assert_uint_eq(file_bytes_in(file, PLACE_HOST), 0);
	file_lease_end(file, (enum file_lease_kind)kind);
	ck_assert_int_eq(place_all(file, PLACE_HOST, &moved), 0);
	ck_assert_uint_eq(moved, 4 * MIB);
	file_free(file, &fixture.call);
}
END_TEST

START_TEST(lease_brings_memory_back)
{
	struct file *file = file_filled(4 * MIB);
	uint64_t moved;

	ck_assert_int_eq(place_all(file, PLACE_HOST, &moved), 0);
	ck_assert_int_eq(file_lease(file, &fixture.call, FILE_SHARE_WRITE, FILE_NO_WAIT),
			 -EINPROGRESS);
	int kind = file_lease(file, &fixture.call, FILE_SHARE_WRITE, FILE_MAY_WAIT);

	ck_assert_int_eq(kind, FILE_LEASE_HOLDS);
	ck_assert_uint_eq(file_bytes_in(file, PLACE_HOST), 0);
	expect_bytes(file, 4 * MIB);
	file_lease_end(file, (enum file_lease_kind)kind);
	file_free(file, &fixture.call);
}
END_TEST

START_TEST(lease_of_a_file_that_belongs_there)
{
	struct file *file = file_filled(4 * MIB);
	struct file_chunk chunks[8];
	struct file_place place;
	uint64_t moved;

	fixture.call.attrs.resident = RESIDENT_HOST;
	ck_assert_int_eq(place_all(file, PLACE_HOST, &moved), 0);
	int kind = file_lease(file, &fixture.call, FILE_SHARE_WRITE, FILE_MAY_WAIT);

	ck_assert_int_eq(kind, FILE_LEASE_HOLDS);
	ck_assert_uint_eq(file_bytes_in(file, PLACE_GPU), 0);
	int n = file_export(file, NULL, FILE_SHARE_WRITE, FILE_MAY_WAIT, 0, chunks, 8, &place);

	ck_assert_int_gt(n, 0);
	file_chunks_close(chunks, (uint32_t)n);
	file_lease_end(file, (enum file_lease_kind)kind);
	/* Back on the GPU, as setxattr(2) does. */
	fixture.call.attrs.resident = RESIDENT_GPU;
	ck_assert_int_eq(file_place_all(file, &fixture.call, PLACE_GPU), 0);
	ck_assert_uint_eq(file_bytes_in(file, PLACE_HOST), 0);
	file_free(file, &fixture.call);
}
END_TEST

START_TEST(full_spill)
{
	struct file *one = file_filled(SIZE), *two = fixture_file(&fixture, GPU0);
	uint64_t moved;

	ck_assert_int_eq(place_all(one, PLACE_HOST, &moved), 0);
	ck_assert_int_eq(file_allocate(two, &fixture.call, 0, 0, 14 * MIB), 0);
	ck_assert_int_eq(place_all(two, PLACE_HOST, &moved), -ENOSPC);
	check_layout(two);
	ck_assert_uint_eq(file_bytes_in(two, PLACE_HOST), moved);
	ck_assert_uint_le(usage_of(PLACE_HOST).chunk_bytes, SPILL_BYTES);
	expect_bytes(one, SIZE);
	file_free(one, &fixture.call);
	file_free(two, &fixture.call);
}
END_TEST

START_TEST(failing_copy)
{
	struct file *file = file_filled(SIZE);
	uint64_t moved;

	for (int n = 0; n < 2; n++) {
		atomic_store(&fixture_work_left, n);
		int rc = place_all(file, PLACE_HOST, &moved);

		atomic_store(&fixture_work_left, -1);
		ck_assert_int_eq(rc, -EIO);
		ck_assert_uint_eq(usage_of(PLACE_HOST).span_bytes, moved);
		ck_assert_uint_eq(file_bytes_in(file, PLACE_HOST), moved);
		expect_bytes(file, SIZE);
	}
	file_free(file, &fixture.call);
}
END_TEST

/* Drains the chunks that the file shares; *moved: how many bytes of the file have moved. */
static int compact(struct file *file, enum memory_place place, uint64_t *moved)
{
	struct pool *pool = volume_pool(&fixture.volumes[GPU0], place);

	pool_drain(pool, 0);
	uint64_t drained = file_drained(file);
	int rc = file_compact(file, &fixture.call, moved);

	ck_assert_uint_eq(file_drained(file), drained - *moved);
	pool_drain_end(pool);
	return rc;
}

START_TEST(blocks_move_within_their_place)
{
	enum memory_place place = _i ? PLACE_HOST : PLACE_GPU;

	fixture.call.attrs.page_size = PAGE_SIZE_64K;
	struct file *file = file_filled(4 * MIB + 192 * KIB), *other = file_filled(100 * KIB);
	int64_t charged = atomic_load(&fixture.quota_owner.total);
	uint64_t moved;

	if (_i)
		ck_assert_int_eq(place_all(file, place, &moved), 0);
	/* The owner may have no more there. */
	int64_t away = atomic_load(&fixture.quota_owner.spilled[place]);

	atomic_store(&fixture.quota_owner.spill_limit, away);
	uint64_t used = usage_of(place).span_bytes, allocated = file_allocated(file);
	struct chunk *whole = file->extents.at[0].span.chunk,
		     *shared = file->extents.at[file->extents.count - 1].span.chunk;

	ck_assert_int_eq(compact(file, place, &moved), 0);
	ck_assert_uint_eq(moved, 192 * KIB);
	expect_bytes(file, 4 * MIB + 192 * KIB);
	ck_assert_ptr_eq(file->extents.at[0].span.chunk, whole);
	/* Cut, so that a block of another file fits beside. */
	const struct span *last = &file->extents.at[file->extents.count - 1].span;

	ck_assert_uint_eq(last->bytes, 64 * KIB);
	ck_assert_int_eq(last->chunk->place, place);
	ck_assert_int_eq(last->chunk == shared, false);
	ck_assert_uint_eq(usage_of(place).span_bytes, used);
	ck_assert_uint_eq(file_allocated(file), allocated);
	ck_assert_int_eq(atomic_load(&fixture.quota_owner.total), charged);
	ck_assert_int_eq(atomic_load(&fixture.quota_owner.spilled[place]), away);
	expect_bytes(other, 100 * KIB);
	file_free(file, &fixture.call);
	file_free(other, &fixture.call);
}
END_TEST

START_TEST(blocks_in_use_stay)
{
	struct file *file = file_filled(4 * KIB), *leased = file_filled(2 * MIB);
	struct file *keeps_the_chunk = file_filled(4 * KIB);
	uint64_t moved;

	pool_drain(fixture.volumes[GPU0].pool, 0);
	ck_assert_uint_eq(file_drained(file), 4 * KIB);
	brlock_token token = brlock_read_lock(&file->layout_lock);

	ck_assert_int_eq(file_compact(file, &fixture.call, &moved), -EAGAIN);
	brlock_read_unlock(&file->layout_lock, token);
	ck_assert_int_eq(compact(file, PLACE_GPU, &moved), 0);
	ck_assert_uint_eq(moved, 4 * KIB);

	int kind = file_lease(leased, &fixture.call, FILE_SHARE_WRITE, FILE_MAY_WAIT);

	ck_assert_int_eq(kind, FILE_LEASE_HOLDS);
	fixture.call.attrs.page_size = PAGE_SIZE_4K;
	ck_assert_int_eq(file_allocate(leased, &fixture.call, 0, 2 * MIB, 4 * KIB), 0);
	/* No process has the block: otherwise a lease of an empty file would keep the chunk. */
	struct chunk *given = leased->extents.at[0].span.chunk;

	ck_assert_int_eq(compact(leased, PLACE_GPU, &moved), 0);
	ck_assert_uint_eq(moved, 4 * KIB);
	ck_assert_ptr_eq(leased->extents.at[0].span.chunk, given);
	file_lease_end(leased, (enum file_lease_kind)kind);
	file_free(file, &fixture.call);
	file_free(leased, &fixture.call);
	file_free(keeps_the_chunk, &fixture.call);
}
END_TEST

START_TEST(failing_compaction)
{
	struct file *file = file_filled(192 * KIB), *other = file_filled(4 * KIB);
	struct pool_usage before = usage_of(PLACE_GPU);
	uint64_t moved;

	for (int n = 0; n < 2; n++) {
		atomic_store(&fixture_work_left, n);
		int rc = compact(file, PLACE_GPU, &moved);

		atomic_store(&fixture_work_left, -1);
		ck_assert_int_eq(rc, -EIO);
		ck_assert_uint_eq(moved, 0);
		ck_assert_uint_eq(usage_of(PLACE_GPU).span_bytes, before.span_bytes);
		expect_bytes(file, 192 * KIB);
	}
	file_free(file, &fixture.call);
	file_free(other, &fixture.call);
}
END_TEST

/* Files that make_room may move. */
static struct file *victim;
static unsigned asked;

static bool make_room(void *owner, const struct volume *volume, enum memory_place place,
		      enum place_short why, uint64_t bytes, const struct file *but)
{
	uint64_t moved = 0;

	(void)owner, (void)why;
	asked++;
	ck_assert_ptr_eq(volume, &fixture.volumes[GPU0]);
	if (place == PLACE_GPU && victim && victim != but)
		file_place(victim, &fixture.call, PLACE_HOST, bytes, &moved);
	return moved;
}

START_TEST(write_makes_room)
{
	victim = file_filled(SIZE);
	fixture.call.make_room = make_room;
	struct file *file = file_filled(SIZE);

	ck_assert_uint_gt(asked, 0);
	ck_assert_uint_gt(file_bytes_in(victim, PLACE_HOST), 0);
	ck_assert_uint_eq(file_bytes_in(file, PLACE_HOST), 0);
	expect_bytes(file, SIZE);
	expect_bytes(victim, SIZE);
	file_free(file, &fixture.call);
	file_free(victim, &fixture.call);
}
END_TEST

START_TEST(new_memory_goes_to_the_spill_at_last)
{
	struct file *first = file_filled(SIZE);

	victim = NULL;
	fixture.call.make_room = make_room;
	struct file *file = file_filled(SIZE);

	ck_assert_uint_gt(file_bytes_in(file, PLACE_HOST), 0);
	ck_assert_uint_eq(file_bytes_in(first, PLACE_HOST), 0);
	expect_bytes(file, SIZE);
	file_free(file, &fixture.call);
	file_free(first, &fixture.call);
}
END_TEST

START_TEST(file_larger_than_the_gpu)
{
	fixture.call.make_room = make_room;
	victim = fixture_file(&fixture, GPU0);
	for (uint64_t at = 0; at < 30 * MIB; at += MIB)
		ck_assert_int_eq(file_write(victim, &fixture.call, data + at / 16, MIB, at), MIB);
	ck_assert_uint_gt(file_bytes_in(victim, PLACE_HOST), 10 * MIB);
	for (uint64_t at = 0; at < 30 * MIB; at += MIB) {
		unsigned char *found = malloc(MIB);

		ck_assert_int_eq(file_read(victim, &fixture.call, found, MIB, at), MIB);
		ck_assert_mem_eq(found, data + at / 16, MIB);
		free(found);
	}
	/* More than both places have. */
	ck_assert_int_eq(file_allocate(victim, &fixture.call, 0, 0, 80 * MIB), -ENOSPC);
	ck_assert_uint_le(file_allocated(victim), 32 * MIB);
	/* All that both places have. */
	ck_assert_int_eq(file_truncate(victim, &fixture.call, 0), 0);
	ck_assert_int_eq(file_allocate(victim, &fixture.call, 0, 0, 40 * MIB), 0);
	ck_assert_uint_eq(file_allocated(victim), 40 * MIB);
	file_free(victim, &fixture.call);
}
END_TEST

START_TEST(uses_are_noted)
{
	struct file *file = file_filled(MIB);
	unsigned char byte;

	ck_assert_uint_gt(file_used(file), 0);
	atomic_store(&file->used, 1);
	ck_assert_int_eq(file_read(file, &fixture.call, &byte, 1, 0), 1);
	ck_assert_uint_gt(file_used(file), 1);
	atomic_store(&file->used, 1);
	ck_assert_int_eq(file_write(file, &fixture.call, &byte, 1, 0), 1);
	ck_assert_uint_gt(file_used(file), 1);
	atomic_store(&file->used, 1);
	int kind = file_lease(file, &fixture.call, FILE_SHARE_WRITE, FILE_MAY_WAIT);

	ck_assert_int_ge(kind, 0);
	atomic_store(&file->used, 1);
	file_lease_end(file, (enum file_lease_kind)kind);
	ck_assert_uint_gt(file_used(file), 1);
	file_free(file, &fixture.call);
}
END_TEST

int main(void)
{
	TCase *tests;
	Suite *suite = unit_suite("file_place", &tests, 60);

	tcase_add_checked_fixture(tests, up, down);
	tcase_add_loop_test(tests, bytes_leave_and_come_back, 0,
			    (int)(sizeof(sizes) / sizeof(sizes[0])));
	tcase_add_test(tests, holes_stay_holes);
	tcase_add_test(tests, some_bytes_leave_from_the_front);
	tcase_add_test(tests, leased_memory_stays);
	tcase_add_test(tests, lease_brings_memory_back);
	tcase_add_test(tests, lease_of_a_file_that_belongs_there);
	tcase_add_test(tests, full_spill);
	tcase_add_test(tests, failing_copy);
	tcase_add_loop_test(tests, blocks_move_within_their_place, 0, 2);
	tcase_add_test(tests, blocks_in_use_stay);
	tcase_add_test(tests, failing_compaction);
	tcase_add_test(tests, write_makes_room);
	tcase_add_test(tests, new_memory_goes_to_the_spill_at_last);
	tcase_add_test(tests, file_larger_than_the_gpu);
	tcase_add_test(tests, uses_are_noted);
	return unit_main(suite);
}
