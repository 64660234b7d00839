/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* Private copies: their content, and the user that is charged, and for how long. */
#include <errno.h>
#include <stdlib.h>

#include "fs/share/copy.h"
#include "tests/unit/fs_fixture.h"
#include "tests/unit/unit.h"

#define MIB    (1ULL << 20)
#define READER 4321

static struct inode *filled(const char *name, char byte, size_t bytes)
{
	char *data = malloc(bytes);

	memset(data, byte, bytes);
	ck_assert_int_eq(make_file(gpu(0), name), 0);
	ck_assert_int_eq(write_to(at(gpu(0), name), data, bytes, 0), (ssize_t)bytes);
	free(data);
	return at(gpu(0), name);
}

static bool all_are(struct inode *inode, char byte, size_t from, size_t to)
{
	char *data = malloc(to - from);
	bool same = read_from(inode, data, to - from, from) == (ssize_t)(to - from);

	for (size_t i = 0; same && i < to - from; i++)
		same = data[i] == byte;
	free(data);
	return same;
}

static uint64_t used(void)
{
	return pool_usage(fixture.volumes[0].pool).chunk_bytes;
}

static void expect_as_before(uint64_t bytes, int64_t sum, int64_t files)
{
	ck_assert_uint_eq(used(), bytes);
	ck_assert_int_eq(gpu(0)->dir->rbytes, sum);
	ck_assert_int_eq(gpu(0)->dir->rfiles, files);
}

START_TEST(a_copy_is_the_readers_while_it_lasts)
{
	struct inode *file = filled("file", 'f', 3 * MIB + 17), *copy;
	uint64_t before = used();
	int64_t bytes = gpu(0)->dir->rbytes;

	file->gid = 99;
	ck_assert_int_eq(share_copy(&fixture, file, READER, &copy), 0);
	ck_assert_uint_eq(copy->uid, READER);
	ck_assert_uint_eq(copy->nlink, 0);
	ck_assert_uint_eq(file_size(copy->file), 3 * MIB + 17);
	ck_assert(all_are(copy, 'f', 0, 3 * MIB + 17));
	ck_assert_uint_eq(used(), before + 4 * MIB);
	ck_assert_int_eq(gpu(0)->dir->rbytes, bytes + 4 * (int64_t)MIB);
	ck_assert_int_eq(gpu(0)->dir->rfiles, 2);
	/* Changes of the file and of its copy do not show in the other. */
	ck_assert_int_eq(write_to(file, "x", 1, 0), 1);
	ck_assert_int_eq(write_to(copy, "y", 1, 5), 1);
	ck_assert(all_are(copy, 'f', 0, 5));
	ck_assert(all_are(file, 'f', 1, MIB));
	inode_put(&fixture, copy, 1);
	expect_as_before(before, bytes, 1);
}
END_TEST

START_TEST(holes_and_nothing_at_all)
{
	struct inode *file = filled("file", 'f', 100), *copy;
	struct inode_call call;

	inode_call_init(&call, &fixture, file, worker_copier(&fixture));
	ck_assert_int_eq(file_truncate(file->file, &call.call, 9 * MIB), 0);
	ck_assert_int_eq(write_to(file, "end", 3, 7 * MIB), 3);
	ck_assert_int_eq(share_copy(&fixture, file, READER, &copy), 0);
	ck_assert_uint_eq(file_size(copy->file), 9 * MIB);
	ck_assert(all_are(copy, 'f', 0, 100));
	ck_assert(all_are(copy, 0, 100, 7 * MIB));
	ck_assert(all_are(copy, 0, 7 * MIB + 3, 9 * MIB));
	inode_put(&fixture, copy, 1);
	ck_assert_int_eq(file_truncate(file->file, &call.call, 0), 0);
	ck_assert_int_eq(share_copy(&fixture, file, READER, &copy), 0);
	ck_assert_uint_eq(file_size(copy->file), 0);
	inode_put(&fixture, copy, 1);
}
END_TEST

/* A copy that fails for lack of room leaves no memory allocated. */
START_TEST(limits_hold)
{
	struct inode *file = filled("file", 'f', 8 * MIB), *copy;
	struct pool *pool = fixture.volumes[0].pool;
	struct pool_limits limits = pool_limits(pool);
	uint64_t before = used();
	int64_t bytes = gpu(0)->dir->rbytes;

	pool_set_limits(pool, &(struct pool_limits){.size = 12 * MIB, .reserve = limits.reserve});
	ck_assert_int_eq(share_copy(&fixture, file, READER, &copy), -ENOSPC);
	expect_as_before(before, bytes, 1);
	pool_set_limits(pool, &limits);
	atomic_store(&gpu(0)->dir->max_bytes, 12 * MIB);
	ck_assert_int_eq(share_copy(&fixture, file, READER, &copy), -EDQUOT);
	expect_as_before(before, bytes, 1);
	atomic_store(&gpu(0)->dir->max_bytes, UINT64_MAX);
	atomic_store(&gpu(0)->dir->max_files, 1);
	ck_assert_int_eq(share_copy(&fixture, file, READER, &copy), -EDQUOT);
	expect_as_before(before, bytes, 1);
	atomic_store(&gpu(0)->dir->max_files, UINT64_MAX);
	ck_assert_int_eq(share_copy(&fixture, file, READER, &copy), 0);
	inode_put(&fixture, copy, 1);
	expect_as_before(before, bytes, 1);
}
END_TEST

/* Pieces of 4 KiB at odd places, each of which takes 2 MiB in the copy; two pieces share 2 MiB. */
static struct inode *scattered(const char *name)
{
	struct attr_values small = {.page_size = PAGE_SIZE_4K};

	ck_assert_int_eq(make_file(gpu(0), name), 0);
	struct inode *file = at(gpu(0), name);

	atomic_store(&file->attrs, small);
	for (uint64_t place = MIB; place < 20 * MIB; place += 4 * MIB)
		ck_assert_int_eq(write_to(file, "x", 1, place), 1);
	ck_assert_int_eq(write_to(file, "x", 1, MIB + MIB / 2), 1);
	return file;
}

static void expect_takes_all_or_nothing(struct inode *file, uint64_t bytes)
{
	struct pool *pool = fixture.volumes[0].pool;
	struct pool_limits limits = pool_limits(pool), tight = limits;
	struct inode *copy;
	uint64_t before = used(), takes = pool_allocations(pool);
	int64_t sum = gpu(0)->dir->rbytes, files = gpu(0)->dir->rfiles;

	tight.size = before + bytes - CHUNK_ALIGN;
	pool_set_limits(pool, &tight);
	ck_assert_int_eq(share_copy(&fixture, file, READER, &copy), -ENOSPC);
	ck_assert_uint_eq(pool_allocations(pool), takes);
	pool_set_limits(pool, &limits);
	atomic_store(&gpu(0)->dir->max_bytes, (uint64_t)sum + bytes - 1);
	ck_assert_int_eq(share_copy(&fixture, file, READER, &copy), -EDQUOT);
	ck_assert_uint_eq(pool_allocations(pool), takes);
	expect_as_before(before, sum, files);
	tight.size = before + bytes;
	pool_set_limits(pool, &tight);
	atomic_store(&gpu(0)->dir->max_bytes, (uint64_t)sum + bytes);
	ck_assert_int_eq(share_copy(&fixture, file, READER, &copy), 0);
	ck_assert_uint_eq(used(), before + bytes);
	inode_put(&fixture, copy, 1);
	pool_set_limits(pool, &limits);
	atomic_store(&gpu(0)->dir->max_bytes, UINT64_MAX);
	expect_as_before(before, sum, files);
}

START_TEST(a_copy_without_room_is_not_begun)
{
	expect_takes_all_or_nothing(filled("file", 'f', 8 * MIB), 8 * MIB);
	expect_takes_all_or_nothing(scattered("scattered"), 10 * MIB);
}
END_TEST

/* A directory's attributes apply to the files in the directory, not to a copy. */
START_TEST(attributes_of_its_own)
{
	struct attr_values values = {.mapping = MAPPING_PERSISTENT, .page_size = PAGE_SIZE_4K};
	struct inode *file = filled("file", 'f', 100), *copy;

	atomic_store(&gpu(0)->attrs, values);
	ck_assert_int_eq(share_copy(&fixture, file, READER, &copy), 0);
	ck_assert_uint_eq(file_mapped(copy->file), 0);
	ck_assert_uint_eq(file_allocated(copy->file), 2 * MIB);
	inode_put(&fixture, copy, 1);
}
END_TEST

START_TEST(none_of_a_host_file)
{
	struct inode *host = inode_find(&fixture, fixture.volumes[2].root_ino), *copy;

	ck_assert_int_eq(make_file(host, "file"), 0);
	ck_assert_int_eq(share_copy(&fixture, at(host, "file"), READER, &copy), -ENOTSUP);
}
END_TEST

int main(void)
{
	TCase *tests;
	Suite *suite = unit_suite("private copies", &tests, 120);

	tcase_add_checked_fixture(tests, fixture_up, fixture_down);
	tcase_add_test(tests, a_copy_is_the_readers_while_it_lasts);
	tcase_add_test(tests, holes_and_nothing_at_all);
	tcase_add_test(tests, limits_hold);
	tcase_add_test(tests, a_copy_without_room_is_not_begun);
	tcase_add_test(tests, attributes_of_its_own);
	tcase_add_test(tests, none_of_a_host_file);
	return unit_main(suite);
}
