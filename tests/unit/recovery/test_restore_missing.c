/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* Memory that a daemon does not find is missing from the files with the memory, and from no other
 * file. */
#include "fs/file/internal.h"
#include "tests/unit/restore_actor.h"
#include "tests/unit/restore_daemon.h"

static struct fs second, third;
static struct held left, left_again;
static struct fdstore_ops left_holder, left_again_holder;
static uint64_t seed;

static void next_up(struct held *from, struct held *to, struct fdstore_ops *to_holder,
		    struct fs *fs)
{
	seed = hash_seed;
	held_freeze(from, FREEZE_JOURNAL, to);
	*to_holder = held_ops(to);
	ck_assert_int_eq(daemon_up(fs, to_holder, FS_MOUNT_KEPT), 0);
	log_setup(LOG_LEVEL_ERROR, 0);
}

static void next_down(struct fs *fs, struct held *of)
{
	daemon_down(fs);
	held_free(of);
	hash_seed = seed;
}

static struct inode *made(struct inode *dir, const char *name, size_t bytes)
{
	static char data[5 * MIB];

	ck_assert_int_eq(make_file(dir, name), 0);
	memset(data, name[0], sizeof(data));
	ck_assert_int_eq(write_to(at(dir, name), data, bytes, 0), (ssize_t)bytes);
	return at(dir, name);
}

static ssize_t bytes_from(struct fs *fs, const struct inode *file, char *to, size_t bytes)
{
	struct inode *inode = inode_find(fs, file->ino);
	struct inode_call call;

	inode_call_init(&call, fs, inode, worker_copier(fs));
	return file_read(inode->file, &call.call, to, bytes, 0);
}

static void expect_there(struct fs *fs, const struct inode *file, char filled)
{
	char bytes[100], wanted[100];

	memset(wanted, filled, sizeof(wanted));
	ck_assert_int_eq(bytes_from(fs, file, bytes, sizeof(bytes)), sizeof(bytes));
	ck_assert_int_eq(memcmp(bytes, wanted, sizeof(bytes)), 0);
}

/* Checks that all calls on the file's data fail and change no byte. */
static void expect_missing(struct fs *fs, const struct inode *file)
{
	struct inode *inode = inode_find(fs, file->ino);
	struct inode_call call;
	struct file_move *move;
	char bytes[100];

	inode_call_init(&call, fs, inode, worker_copier(fs));
	ck_assert_int_eq(bytes_from(fs, file, bytes, sizeof(bytes)), -EIO);
	ck_assert_int_eq(file_write(inode->file, &call.call, "x", 1, 0), -EIO);
	ck_assert_int_eq(file_write(inode->file, &call.call, "x", 1, 100 * MIB), -EIO);
	ck_assert_int_eq(file_truncate(inode->file, &call.call, 5), -EIO);
	ck_assert_int_eq(file_allocate(inode->file, &call.call, 0, 0, MIB), -EIO);
	ck_assert_int_eq(file_allocate(inode->file, &call.call,
				       FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, 1),
			 -EIO);
	ck_assert_int_eq(file_seek(inode->file, 0, SEEK_DATA), -EIO);
	ck_assert_int_eq(file_copy(inode->file, 0, inode->file, &call.call, 10 * MIB, 5), -EIO);
	ck_assert_int_eq(file_lease(inode->file, &call.call, FILE_SHARE_WRITE, FILE_MAY_WAIT),
			 -EIO);
	ck_assert_int_eq(file_relayout(inode->file, &call.call), -EIO);
	ck_assert_int_eq(file_move_begin(inode->file, &call.call, &fs->volumes[1], &move), -EIO);
	file_trim(inode->file, &call.call);
}

static void empty(struct fs *fs, const struct inode *file)
{
	struct inode *inode = inode_find(fs, file->ino);
	struct inode_call call;

	inode_call_init(&call, fs, inode, worker_copier(fs));
	ck_assert_int_eq(file_truncate(inode->file, &call.call, 0), 0);
	ck_assert_int_eq(file_write(inode->file, &call.call, "new", 3, 0), 3);
}

static void expect_new(struct fs *fs, const struct inode *file)
{
	char bytes[4] = "";

	ck_assert_int_eq(bytes_from(fs, file, bytes, sizeof(bytes)), 3);
	ck_assert_str_eq(bytes, "new");
}

static uint64_t chunk_of(const struct inode *file, uint32_t extent)
{
	return fdstore_id(FDSTORE_CHUNK, file->file->extents.at[extent].span.chunk->id);
}

/* Replaces a held descriptor, and returns the old descriptor. */
static int put(struct held *of, uint64_t id, int fd)
{
	for (unsigned i = 0; i < of->n; i++) {
		if (of->ids[i] == id) {
			int was = of->fds[i];

			of->fds[i] = fd;
			return was;
		}
	}
	ck_abort_msg("not held");
	return -1;
}

static int nothing(void)
{
	return open("/dev/null", O_RDWR | O_CLOEXEC);
}

/* The missing chunks belong to a single file and to several files; a later daemon finds the chunks.
 */
START_TEST(chunks)
{
	struct inode *whole = made(gpu(0), "whole", 3 * MIB), *small = made(gpu(0), "small", 5000);
	struct inode *beside = made(gpu(0), "beside", 70000), *other = made(gpu(1), "other", 5000);
	struct inode *large = made(gpu(0), "large", 5 * MIB);
	uint64_t ids[2] = {chunk_of(whole, 0), chunk_of(small, 0)};
	int were[2];

	ck_assert_uint_eq(chunk_of(beside, 0), ids[1]);
	for (int i = 0; i < 2; i++)
		were[i] = put(&held, ids[i], nothing());
	next_up(&held, &left, &left_holder, &second);
	expect_missing(&second, whole);
	expect_missing(&second, small);
	expect_missing(&second, beside);
	expect_there(&second, large, 'l');
	expect_there(&second, other, 'o');
	ck_assert_uint_eq(file_size(inode_find(&second, whole->ino)->file), 3 * MIB);
	/* The missing memory goes to no other file, and the journal keeps the records of the files.
	 */
	if (_i)
		checkpoint(&second);
	for (int i = 0; i < 2; i++) {
		close(put(&held, ids[i], were[i]));
		close(put(&left, ids[i], fcntl(were[i], F_DUPFD_CLOEXEC, 0)));
	}
	next_up(&left, &left_again, &left_again_holder, &third);
	expect_there(&third, whole, 'w');
	expect_there(&third, small, 's');
	expect_there(&third, beside, 'b');
	next_down(&third, &left_again);
	next_down(&second, &left);
}
END_TEST

/* A truncated file is usable again, and a removed file stays removed. */
START_TEST(emptied_and_removed)
{
	struct inode *whole = made(gpu(0), "whole", 3 * MIB), *small = made(gpu(0), "small", 5000);
	struct inode *beside = made(gpu(0), "beside", 70000);
	uint64_t ids[2] = {chunk_of(whole, 0), chunk_of(small, 0)};
	uint64_t gone = beside->ino;
	int were[2];

	for (int i = 0; i < 2; i++)
		were[i] = put(&held, ids[i], nothing());
	next_up(&held, &left, &left_holder, &second);
	empty(&second, whole);
	empty(&second, small);
	struct inode *top = inode_find(&second, second.volumes[0].root_ino);

	ck_assert_int_eq(tree_unlink(&second, top, "beside"), 0);
	ck_assert_ptr_null(inode_find(&second, gone));
	for (int i = 0; i < 2; i++)
		close(put(&held, ids[i], were[i]));
	next_up(&left, &left_again, &left_again_holder, &third);
	expect_new(&third, whole);
	expect_new(&third, small);
	ck_assert_ptr_null(inode_find(&third, gone));
	/* The keeper no longer holds the removed file's chunk. */
	for (unsigned i = 0; i < left_again.n; i++)
		ck_assert(left_again.ids[i] != ids[1]);
	next_down(&third, &left_again);
	next_down(&second, &left);
}
END_TEST

START_TEST(objects)
{
	struct inode *top = inode_find(&fixture, fixture.volumes[fixture.n_volumes - 1].root_ino);
	struct inode *one = made(top, "one", 5000), *two = made(top, "two", 5000);
	uint64_t id = fdstore_id(FDSTORE_HOST, one->file->journaled.object_id);
	int was = held_take(&held, id);

	held_drop(&held, id);
	next_up(&held, &left, &left_holder, &second);
	expect_missing(&second, one);
	ck_assert_int_lt(file_object(inode_find(&second, one->ino)->file, &(struct file_call){0}),
			 0);
	expect_there(&second, two, 't');
	checkpoint(&second);
	next_up(&left, &left_again, &left_again_holder, &third);
	expect_missing(&third, one);
	empty(&third, one);
	expect_new(&third, one);
	next_down(&third, &left_again);
	next_down(&second, &left);
	ck_assert_int_eq(held_hold(&held, id, was), 0);
	close(was);
}
END_TEST

/* Writes a record that no real file can have. */
static void record_nonsense(const struct inode *file, struct journal_extent extent)
{
	struct journal_file image = {.ino = file->ino, .n_extents = 1};
	struct journal_piece piece = {.kind = JOURNAL_FILE,
				      .bytes = sizeof(image),
				      .fixed = &image,
				      .tail = {{&extent, sizeof(extent)}}};

	journal_append(fixture.journal, &piece, 1, NULL);
}

START_TEST(nonsense)
{
	struct inode *one = made(gpu(0), "one", 5000), *two = made(gpu(0), "two", 3 * MIB);
	const struct extent *ones = &one->file->extents.at[0], *twos = &two->file->extents.at[0];
	const struct journal_extent extents[] = {
	    {.offset = 0, .bytes = 4097, .chunk = twos->span.chunk->id},
	    {.offset = 0, .bytes = twos->span.bytes, .chunk = twos->span.chunk->id},
	    {.offset = 0, .bytes = 4096, .chunk = ones->span.chunk->id, .into = ones->span.offset},
	};
	struct inode *bad = made(gpu(0), "zbad", 5000); /* found after the other files */

	record_nonsense(bad, extents[_i]);
	next_up(&held, &left, &left_holder, &second);
	expect_missing(&second, bad);
	expect_there(&second, one, 'o');
	expect_there(&second, two, 't');
	checkpoint(&second);
	next_up(&left, &left_again, &left_again_holder, &third);
	expect_missing(&third, bad);
	empty(&third, bad);
	expect_new(&third, bad);
	expect_there(&third, one, 'o');
	expect_there(&third, two, 't');
	next_down(&third, &left_again);
	next_down(&second, &left);
}
END_TEST

int main(void)
{
	TCase *tcase;
	Suite *suite = unit_suite("restore_missing", &tcase, 60);

	tcase_add_checked_fixture(tcase, up, down);
	tcase_add_loop_test(tcase, chunks, 0, 2);
	tcase_add_test(tcase, emptied_and_removed);
	tcase_add_test(tcase, objects);
	tcase_add_loop_test(tcase, nonsense, 0, 3);
	return unit_main(suite);
}
