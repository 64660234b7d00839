/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* The spool as a user sees the spool: saved files are present at the next mount, whatever happened
 * in between. */
#include <errno.h>
#include <sys/file.h>
#include <sys/resource.h>

#include "fs/holders/inode_lease.h"
#include "tests/unit/spool_fixture.h"

#define BLOCKS 5
#define BYTES  ((size_t)(BLOCKS * SPOOL_BLOCK - 12345))

static char pattern[BYTES], seen[BYTES];

static void up(void)
{
	uint64_t state = unit_seed();

	unit_fill(pattern, sizeof(pattern), &state);
	spool_up();
	ck_assert_int_eq(persist(gpu(0), "disk"), 0);
}

static struct inode *file_of(struct inode *dir, const char *name, size_t bytes)
{
	ck_assert_int_eq(make_file(dir, name), 0);
	if (bytes)
		put_bytes(at(dir, name), pattern, bytes, 0);
	return at(dir, name);
}

static void expect_bytes(struct inode *inode, const char *wanted, size_t bytes)
{
	ck_assert_uint_eq(file_size(inode->file), bytes);
	memset(seen, 0x55, sizeof(seen));
	ck_assert_int_eq(get_bytes(inode, seen, bytes, 0), (ssize_t)bytes);
	ck_assert(memcmp(seen, wanted, bytes) == 0);
}

START_TEST(bytes_and_attributes_come_back)
{
	struct inode *file = file_of(gpu(0), "weights", BYTES);
	struct tree_attrs attrs = {.mask = TREE_MODE | TREE_UID | TREE_GID | TREE_MTIME,
				   .mode = 04640,
				   .uid = 7,
				   .gid = 8,
				   .mtime = -1234567890123};

	ck_assert_int_eq(inode_attr_set(&fixture, NULL, file, ATTR_COPY, "dma", 3, 0), 0);
	tree_set_attrs(&fixture, file, &attrs);
	int64_t btime = file->btime, ctime = file->fields->ctime;

	remount();
	file = at(gpu(0), "weights");
	ck_assert_uint_eq(file->mode, S_IFREG | 04640);
	ck_assert_uint_eq(file->uid, 7);
	ck_assert_uint_eq(file->gid, 8);
	ck_assert_int_eq(file->btime, btime);
	ck_assert_int_eq(file->fields->ctime, ctime);
	struct attr_values values = atomic_load(&file->attrs);

	ck_assert_int_eq(values.copy, COPYING_DMA);
	expect_bytes(file, pattern, BYTES);
	ck_assert_int_eq(file->fields->mtime, attrs.mtime);
}
END_TEST

START_TEST(nothing_that_is_volatile_comes_back)
{
	file_of(gpu(0), "kept", 10);
	ck_assert_int_eq(persist(file_of(gpu(0), "lost", 10), "volatile"), 0);
	file_of(gpu(1), "other", 10);
	remount();
	ck_assert(is_there(gpu(0), "kept"));
	ck_assert(!is_there(gpu(0), "lost"));
	ck_assert(!is_there(gpu(1), "other"));
}
END_TEST

START_TEST(a_tree_comes_back)
{
	struct inode *dir, *file;

	make_dir(gpu(0), "a");
	make_dir(at(gpu(0), "a"), "empty");
	dir = at(gpu(0), "a");
	file = file_of(dir, "file", 100);
	ck_assert_int_eq(tree_link(&fixture, file, gpu(0), "hard"), 0);
	inode_put(&fixture, file, 1);
	ck_assert_int_eq(make(dir, "link", S_IFLNK | 0777), 0);
	ck_assert_int_eq(make(dir, "fifo", S_IFIFO | 0600), 0);
	ck_assert_int_eq(make(dir, "device", S_IFBLK | 0600), 0);
	remount();
	dir = at(gpu(0), "a");
	ck_assert(S_ISDIR(at(dir, "empty")->mode));
	ck_assert_ptr_eq(at(dir, "file"), at(gpu(0), "hard"));
	ck_assert_str_eq(at(dir, "link")->target, "target");
	ck_assert(S_ISFIFO(at(dir, "fifo")->mode));
	ck_assert(S_ISBLK(at(dir, "device")->mode));
	ck_assert_uint_eq(at(dir, "device")->rdev, MADE_RDEV);
	struct tally sum = {0};

	tally(gpu(0), &sum);
	ck_assert_int_eq(sum.files, 6);
}
END_TEST

START_TEST(holes_stay_holes)
{
	struct inode *file = file_of(gpu(0), "sparse", 0);
	struct inode_call call;

	inode_call_init(&call, &fixture, file, worker_copier(&fixture));
	ck_assert_int_eq(file_truncate(file->file, &call.call, 1ULL << 40), 0);
	put_bytes(file, "here", 4, 3ULL << 30);
	int64_t end = file_seek(file->file, 3ULL << 30, SEEK_HOLE);

	remount();
	file = at(gpu(0), "sparse");
	ck_assert_int_eq(get_bytes(file, seen, 6, (3ULL << 30) - 1), 6);
	ck_assert_mem_eq(seen, "\0here\0", 6);
	ck_assert_uint_eq(file_size(file->file), 1ULL << 40);
	ck_assert_int_eq(file_seek(file->file, 0, SEEK_DATA), 3LL << 30);
	ck_assert_int_eq(file_seek(file->file, 3ULL << 30, SEEK_HOLE), end);
	ck_assert_int_eq(file_seek(file->file, (uint64_t)end, SEEK_DATA), -ENXIO);
}
END_TEST

START_TEST(only_what_changed_is_written)
{
	struct inode *file = file_of(gpu(0), "file", BYTES);

	ck_assert_int_eq(spool_save(&fixture, file), 0);
	uint64_t before = saved_bytes();

	ck_assert_uint_eq(before, BYTES);
	ck_assert_int_eq(spool_save(&fixture, file), 0);
	ck_assert_uint_eq(saved_bytes(), before);
	put_bytes(file, "x", 1, 3 * SPOOL_BLOCK);
	ck_assert_int_eq(spool_save(&fixture, file), 0);
	ck_assert_uint_eq(saved_bytes(), before + SPOOL_BLOCK);
	/* Leases mark the blocks as unknown. */
	spool_mark_unknown(file);
	ck_assert_int_eq(spool_save(&fixture, file), 0);
	ck_assert_uint_eq(saved_bytes(), before + SPOOL_BLOCK);
	pattern[3 * SPOOL_BLOCK] = 'x';
	remount();
	expect_bytes(at(gpu(0), "file"), pattern, BYTES);
}
END_TEST

/* A save without a change writes neither bytes nor a record. */
START_TEST(an_unchanged_file_is_not_written)
{
	struct inode *file = file_of(gpu(0), "file", 10);

	ck_assert_int_eq(spool_save(&fixture, file), 0);
	uint64_t saves = spool_counters(&fixture).saves;

	ck_assert_int_eq(spool_save(&fixture, file), 0);
	ck_assert_uint_eq(spool_counters(&fixture).saves, saves);
	/* The clock of the times advances only with the kernel's timer. */
	for (int64_t before = file->fields->mtime; file->fields->mtime == before;)
		inode_touch_write(file);
	ck_assert_int_eq(spool_save(&fixture, file), 0);
	ck_assert_uint_eq(spool_counters(&fixture).saves, saves + 1);
}
END_TEST

static bool is_on_disk(const char *path)
{
	char text[128];

	snprintf(text, sizeof(text), "%s/%s", spool_at, path);
	return access(text, F_OK) == 0;
}

START_TEST(files_below_a_directory_are_saved)
{
	struct spool_saved saved;

	ck_assert_int_eq(make_dir(gpu(0), "dir"), 0);
	ck_assert_int_eq(make_dir(gpu(0), "other"), 0);
	file_of(at(gpu(0), "dir"), "file", 10);
	file_of(at(gpu(0), "other"), "file", 10);
	ck_assert_int_eq(spool_save_below(&fixture, at(gpu(0), "dir"), SPOOL_ALL_USERS, &saved), 0);
	ck_assert_uint_eq(saved.bytes, 10);
	ck_assert_uint_eq(saved.failed, 0);
	ck_assert(is_on_disk("gpu0/dir/file"));
	ck_assert(!is_on_disk("gpu0/other/file"));
	ck_assert_int_eq(spool_save_below(&fixture, NULL, SPOOL_ALL_USERS, &saved), 0);
	ck_assert(is_on_disk("gpu0/other/file"));
}
END_TEST

START_TEST(a_users_own_files_are_saved)
{
	struct tree_attrs owner = {.mask = TREE_UID, .uid = 4711};
	struct spool_saved saved;

	ck_assert_int_eq(make_dir(gpu(0), "dir"), 0);
	file_of(at(gpu(0), "dir"), "of_user", 10);
	file_of(at(gpu(0), "dir"), "of_another", 10);
	tree_set_attrs(&fixture, at(at(gpu(0), "dir"), "of_user"), &owner);
	ck_assert_int_eq(spool_save_below(&fixture, NULL, 4711, &saved), 0);
	ck_assert_uint_eq(saved.bytes, 10);
	ck_assert(is_on_disk("gpu0/dir/of_user"));
	ck_assert(!is_on_disk("gpu0/dir/of_another"));
}
END_TEST

static void set_quota(struct inode *dir, const char *bytes)
{
	ck_assert_int_eq(inode_attr_set(&fixture, worker_copier(&fixture), dir, ATTR_QUOTA_BYTES,
					bytes, strlen(bytes), 0),
			 0);
}

/* The quota comes back with its directory, and files larger than a lowered quota come back too. */
START_TEST(quotas_come_back)
{
	ck_assert_int_eq(make_dir(gpu(0), "dir"), 0);
	file_of(at(gpu(0), "dir"), "file", BYTES);
	ck_assert_int_eq(spool_save(&fixture, at(at(gpu(0), "dir"), "file")), 0);
	set_quota(at(gpu(0), "dir"), "4096");
	remount();
	ck_assert_uint_eq(at(gpu(0), "dir")->dir->max_bytes, 4096);
	expect_bytes(at(at(gpu(0), "dir"), "file"), pattern, BYTES);
	ck_assert_int_eq(make_file(at(gpu(0), "dir"), "more"), 0);
	ck_assert_int_eq(write_to(at(at(gpu(0), "dir"), "more"), "x", 1, 0), -EDQUOT);
}
END_TEST

START_TEST(what_sharers_wrote_is_found)
{
	struct inode *file = file_of(gpu(0), "file", BYTES);

	ck_assert_int_eq(spool_save(&fixture, file), 0);
	ck_assert_int_eq(inode_lease_get(&fixture, file), 0);
	ck_assert_int_eq(write_to(file, "unseen", 6, SPOOL_BLOCK), 6);
	inode_lease_put(&fixture, file, 1);
	ck_assert_int_eq(spool_save(&fixture, file), 0);
	memcpy(pattern + SPOOL_BLOCK, "unseen", 6);
	remount();
	expect_bytes(at(gpu(0), "file"), pattern, BYTES);
}
END_TEST

START_TEST(shorter_and_longer)
{
	struct inode *file = file_of(gpu(0), "file", BYTES);
	struct inode_call call;
	uint64_t small = SPOOL_BLOCK + 100;

	ck_assert_int_eq(spool_save(&fixture, file), 0);
	inode_call_init(&call, &fixture, file, worker_copier(&fixture));
	ck_assert_int_eq(file_truncate(file->file, &call.call, small), 0);
	spool_mark_dirty(file, small, BYTES - small);
	ck_assert_int_eq(spool_save(&fixture, file), 0);
	ck_assert_int_eq(file_truncate(file->file, &call.call, BYTES), 0);
	spool_mark_dirty(file, small, BYTES - small);
	ck_assert_int_eq(spool_save(&fixture, file), 0);
	memset(pattern + small, 0, BYTES - small);
	remount();
	expect_bytes(at(gpu(0), "file"), pattern, BYTES);
}
END_TEST

/* After a crash the names are the last saved names: changed names are saved at once. */
START_TEST(names_are_followed)
{
	struct inode *a = file_of(gpu(0), "a", 10), *b = file_of(gpu(0), "b", 20);

	file_of(gpu(0), "gone", 30);
	ck_assert_int_eq(spool_save(&fixture, a), 0);
	ck_assert_int_eq(spool_save(&fixture, b), 0);
	ck_assert_int_eq(spool_save(&fixture, at(gpu(0), "gone")), 0);
	ck_assert_int_eq(rename_to(gpu(0), "a", gpu(0), "b", RENAME_EXCHANGE), 0);
	ck_assert_int_eq(tree_unlink(&fixture, gpu(0), "gone"), 0);
	make_dir(gpu(0), "dir");
	ck_assert_int_eq(rename_to(gpu(0), "b", at(gpu(0), "dir"), "c", 0), 0);
	ck_assert_int_eq(spool_save(&fixture, gpu(0)), 0);
	mount_crash();
	mount_up();
	ck_assert_uint_eq(file_size(at(gpu(0), "a")->file), 20);
	ck_assert(!is_there(gpu(0), "b"));
	ck_assert(!is_there(gpu(0), "gone"));
	expect_bytes(at(at(gpu(0), "dir"), "c"), pattern, 10);
}
END_TEST

START_TEST(moved_to_another_gpu)
{
	file_of(gpu(0), "file", BYTES);
	ck_assert_int_eq(spool_save(&fixture, at(gpu(0), "file")), 0);
	ck_assert_int_eq(rename_to(gpu(0), "file", gpu(1), "there", 0), 0);
	remount();
	ck_assert(!is_there(gpu(0), "file"));
	expect_bytes(at(gpu(1), "there"), pattern, BYTES);
	/* Bytes that are only in the spool move too. */
	remount();
	ck_assert_int_eq(rename_to(gpu(1), "there", gpu(0), "back", 0), 0);
	expect_bytes(at(gpu(0), "back"), pattern, BYTES);
}
END_TEST

START_TEST(a_name_is_never_another_files)
{
	struct inode *a = file_of(gpu(0), "a", 10);

	ck_assert_int_eq(spool_save(&fixture, a), 0);
	ck_assert_int_eq(rename_to(gpu(0), "a", gpu(0), "b", 0), 0);
	struct inode *new = file_of(gpu(0), "a", 20);

	ck_assert_int_eq(spool_save(&fixture, new), 0);
	mount_crash();
	mount_up();
	ck_assert_uint_eq(file_size(at(gpu(0), "a")->file), 20);
	ck_assert_uint_eq(file_size(at(gpu(0), "b")->file), 10);
}
END_TEST

/* A file without a recall keeps its copy through any number of mounts. */
START_TEST(bytes_may_stay_away)
{
	file_of(gpu(0), "file", BYTES);
	remount();
	ck_assert_uint_eq(file_allocated(at(gpu(0), "file")->file), 0);
	ck_assert_int_eq(rename_to(gpu(0), "file", gpu(0), "renamed", 0), 0);
	remount();
	remount();
	ck_assert_uint_eq(saved_bytes(), 0);
	expect_bytes(at(gpu(0), "renamed"), pattern, BYTES);
}
END_TEST

START_TEST(refused_without_a_spool)
{
	mount_crash();
	fixture_up();
	ck_assert_int_eq(persist(gpu(0), "disk"), -ENOTSUP);
	ck_assert_int_eq(spool_save(&fixture, gpu(0)), 0);
	fixture_down();
	mount_up();
}
END_TEST

START_TEST(directories_that_are_refused)
{
	mount_crash();
	chmod(spool_at, 0720);
	ck_assert_int_eq(mount_try(""), -EINVAL);
	chmod(spool_at, 0700);
	if (geteuid() == 0) {
		ck_assert_int_eq(chown(spool_at, 1, 1), 0);
		ck_assert_int_eq(mount_try(""), -EINVAL);
		ck_assert_int_eq(chown(spool_at, 0, 0), 0);
	}
	char path[128];

	snprintf(path, sizeof(path), "%s/.spool/lock", spool_at);
	int other = open(path, O_RDWR);

	ck_assert_int_eq(flock(other, LOCK_EX), 0);
	ck_assert_int_eq(mount_try(""), -EBUSY);
	close(other);
	mount_up();
}
END_TEST

START_TEST(a_full_disk)
{
	struct inode *file = file_of(gpu(0), "file", BYTES);
	struct rlimit limit, small;

	ck_assert_int_eq(spool_save(&fixture, file), 0);
	for (unsigned i = 0; i < BLOCKS; i++)
		put_bytes(file, "new", 3, i * SPOOL_BLOCK);
	ck_assert_int_eq(getrlimit(RLIMIT_FSIZE, &limit), 0);
	small = (struct rlimit){.rlim_cur = 2 * SPOOL_BLOCK, .rlim_max = limit.rlim_max};
	setrlimit(RLIMIT_FSIZE, &small);
	int rc = spool_save(&fixture, file);

	struct spool_saved saved;
	int all = spool_save_below(&fixture, NULL, SPOOL_ALL_USERS, &saved);

	setrlimit(RLIMIT_FSIZE, &limit);
	ck_assert_int_eq(rc, -EFBIG);
	ck_assert_int_eq(all, -EFBIG);
	ck_assert_uint_eq(saved.failed, 1);
	ck_assert_uint_eq(saved.first_failed, file->ino);
	ck_assert_uint_eq(spool_counters(&fixture).errors, 2);
	/* Memory has the new bytes, and the disk the old bytes, until the disk has room. */
	ck_assert_int_eq(get_bytes(file, seen, 3, 0), 3);
	ck_assert_mem_eq(seen, "new", 3);
	mount_crash();
	mount_up();
	expect_bytes(at(gpu(0), "file"), pattern, BYTES);
	put_bytes(at(gpu(0), "file"), "new", 3, 0);
	memcpy(pattern, "new", 3);
	remount();
	expect_bytes(at(gpu(0), "file"), pattern, BYTES);
}
END_TEST

START_TEST(removed_from_the_disk)
{
	char path[128];

	file_of(gpu(0), "file", 10);
	ck_assert_int_eq(spool_save(&fixture, at(gpu(0), "file")), 0);
	snprintf(path, sizeof(path), "%s/gpu0/file", spool_at);
	ck_assert_int_eq(access(path, R_OK), 0);
	ck_assert_int_eq(persist(at(gpu(0), "file"), "volatile"), 0);
	ck_assert_int_eq(spool_save(&fixture, gpu(0)), 0);
	ck_assert_int_ne(access(path, R_OK), 0);
	snprintf(path, sizeof(path), "%s/.spool/data", spool_at);
	struct stat st;

	for (unsigned id = 1; id < 10; id++) {
		char name[16];

		snprintf(name, sizeof(name), "%u", id);
		ck_assert_int_ne(fstatat(spool_of(&fixture)->data, name, &st, 0), 0);
	}
}
END_TEST

static Suite *suite(void)
{
	TCase *tcase;
	Suite *all = unit_suite("spool", &tcase, 60);

	tcase_add_checked_fixture(tcase, up, spool_down);
	tcase_add_test(tcase, bytes_and_attributes_come_back);
	tcase_add_test(tcase, nothing_that_is_volatile_comes_back);
	tcase_add_test(tcase, a_tree_comes_back);
	tcase_add_test(tcase, holes_stay_holes);
	tcase_add_test(tcase, only_what_changed_is_written);
	tcase_add_test(tcase, an_unchanged_file_is_not_written);
	tcase_add_test(tcase, files_below_a_directory_are_saved);
	tcase_add_test(tcase, a_users_own_files_are_saved);
	tcase_add_test(tcase, quotas_come_back);
	tcase_add_test(tcase, what_sharers_wrote_is_found);
	tcase_add_test(tcase, shorter_and_longer);
	tcase_add_test(tcase, names_are_followed);
	tcase_add_test(tcase, moved_to_another_gpu);
	tcase_add_test(tcase, a_name_is_never_another_files);
	tcase_add_test(tcase, bytes_may_stay_away);
	tcase_add_test(tcase, refused_without_a_spool);
	tcase_add_test(tcase, directories_that_are_refused);
	tcase_add_test(tcase, a_full_disk);
	tcase_add_test(tcase, removed_from_the_disk);
	return all;
}

int main(void)
{
	return unit_main(suite());
}
