/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* Names and their inodes, used as by system calls. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#include "fs/ledger/ledger.h"
#include "fs/tree/depth.h"
#include "tests/unit/fs_fixture.h"
#include "tests/unit/unit.h"

START_TEST(nothing_in_the_root)
{
	ck_assert_int_eq(make_dir(fixture.root, "dir"), -EPERM);
	ck_assert_int_eq(tree_rmdir(&fixture, fixture.root, "gpu0"), -EPERM);
	ck_assert_int_eq(rename_to(fixture.root, "gpu0", fixture.root, "x", 0), -EPERM);
	ck_assert_int_eq(rename_to(gpu(0), "a", fixture.root, "x", 0), -EPERM);
}
END_TEST

START_TEST(names)
{
	char longest[256], longer[257];

	memset(longest, 'n', 255);
	longest[255] = 0;
	memset(longer, 'n', 256);
	longer[256] = 0;
	ck_assert_int_eq(make_file(gpu(0), longest), 0);
	ck_assert_int_eq(make_file(gpu(0), longest), -EEXIST);
	ck_assert_int_eq(make_file(gpu(0), longer), -ENAMETOOLONG);
	ck_assert_int_eq(tree_unlink(&fixture, gpu(0), longer), -ENAMETOOLONG);
	ck_assert_int_eq(rename_to(gpu(0), longest, gpu(0), longer, 0), -ENAMETOOLONG);
	ck_assert_int_eq(tree_unlink(&fixture, gpu(0), longest), 0);
	ck_assert(!is_there(gpu(0), longest));
}
END_TEST

START_TEST(device_nodes)
{
	static const mode_t types[] = {S_IFCHR, S_IFBLK};
	struct stat st;

	for (int i = 0; i < 2; i++) {
		ck_assert_int_eq(make(gpu(0), "device", types[i] | 0640), 0);
		ck_assert_int_eq(rename_to(gpu(0), "device", gpu(1), "moved", 0), 0);
		inode_stat(at(gpu(1), "moved"), &st);
		ck_assert_uint_eq(st.st_mode, types[i] | 0640);
		ck_assert_uint_eq(st.st_rdev, MADE_RDEV);
		ck_assert_uint_eq(st.st_size, 0);

		struct statx stx = inode_statx(&st, st.st_atim);

		ck_assert_uint_eq(stx.stx_rdev_major, 4095);
		ck_assert_uint_eq(stx.stx_rdev_minor, 1048575);
		ck_assert_int_eq(tree_unlink(&fixture, gpu(1), "moved"), 0);
	}
	ck_assert_int_eq(make(gpu(0), "fifo", S_IFIFO | 0640), 0);
	inode_stat(at(gpu(0), "fifo"), &st);
	ck_assert_uint_eq(st.st_rdev, 0);
}
END_TEST

START_TEST(removing)
{
	ck_assert_int_eq(make_dir(gpu(0), "dir"), 0);
	ck_assert_int_eq(make_file(at(gpu(0), "dir"), "file"), 0);
	ck_assert_int_eq(tree_unlink(&fixture, gpu(0), "dir"), -EISDIR);
	ck_assert_int_eq(tree_rmdir(&fixture, gpu(0), "dir"), -ENOTEMPTY);
	ck_assert_int_eq(tree_rmdir(&fixture, at(gpu(0), "dir"), "file"), -ENOTDIR);
	ck_assert_int_eq(tree_unlink(&fixture, at(gpu(0), "dir"), "none"), -ENOENT);
	ck_assert_int_eq(tree_unlink(&fixture, at(gpu(0), "dir"), "file"), 0);
	ck_assert_uint_eq(gpu(0)->nlink, 3);

	/* No name can be made in a removed directory with a reference. */
	struct inode *dir = at(gpu(0), "dir");

	inode_ref(dir);
	ck_assert_int_eq(tree_rmdir(&fixture, gpu(0), "dir"), 0);
	ck_assert_uint_eq(gpu(0)->nlink, 2);
	ck_assert_int_eq(make_file(dir, "late"), -ENOENT);
	ck_assert_uint_eq(dir->nlink, 0);
	inode_put(&fixture, dir, 1);
}
END_TEST

START_TEST(links)
{
	struct inode *file;

	ck_assert_int_eq(make_dir(gpu(0), "dir"), 0);
	ck_assert_int_eq(make_file(gpu(0), "a"), 0);
	file = at(gpu(0), "a");
	ck_assert_int_eq(write_to(file, "text", 4, 0), 4);
	ck_assert_int_eq(tree_link(&fixture, file, at(gpu(0), "dir"), "b"), 0);
	inode_put(&fixture, file, 1);
	ck_assert_uint_eq(file->nlink, 2);
	ck_assert_int_eq(tree_link(&fixture, file, gpu(1), "c"), -EXDEV);
	ck_assert_int_eq(tree_link(&fixture, at(gpu(0), "dir"), gpu(0), "d"), -EPERM);
	ck_assert_int_eq(tree_link(&fixture, file, gpu(0), "dir"), -EEXIST);

	/* dir pays once the first name is gone. */
	int64_t charged = (int64_t)file->charges.bytes;

	ck_assert_int_gt(charged, 0);
	ck_assert_int_eq(at(gpu(0), "dir")->dir->rbytes, 0);
	ck_assert_int_eq(tree_unlink(&fixture, gpu(0), "a"), 0);
	ck_assert_int_eq(at(gpu(0), "dir")->dir->rbytes, charged);
	ck_assert_int_eq(at(gpu(0), "dir")->dir->rfiles, 1);
	ck_assert_int_eq(gpu(0)->dir->rbytes, charged);

	char text[4];

	ck_assert_int_eq(read_from(file, text, 4, 0), 4);
	ck_assert_mem_eq(text, "text", 4);
	ck_assert_int_eq(tree_unlink(&fixture, at(gpu(0), "dir"), "b"), 0);
	ck_assert_int_eq(gpu(0)->dir->rbytes, 0);
	ck_assert_int_eq(gpu(0)->dir->rfiles, 1);
}
END_TEST

START_TEST(rename_rules)
{
	struct inode *top = gpu(0);

	ck_assert_int_eq(make_dir(top, "d1"), 0);
	ck_assert_int_eq(make_dir(top, "d2"), 0);
	ck_assert_int_eq(make_dir(at(top, "d1"), "sub"), 0);
	ck_assert_int_eq(make_file(at(top, "d2"), "full"), 0);
	ck_assert_int_eq(make_file(top, "f1"), 0);
	ck_assert_int_eq(make_file(top, "f2"), 0);

	ck_assert_int_eq(rename_to(top, "none", top, "x", 0), -ENOENT);
	ck_assert_int_eq(rename_to(top, "f1", top, "d1", 0), -EISDIR);
	ck_assert_int_eq(rename_to(top, "d1", top, "f1", 0), -ENOTDIR);
	ck_assert_int_eq(rename_to(top, "d1", top, "d2", 0), -ENOTEMPTY);
	ck_assert_int_eq(rename_to(top, "d1", at(at(top, "d1"), "sub"), "x", 0), -EINVAL);
	ck_assert_int_eq(rename_to(top, "f1", top, "f2", RENAME_NOREPLACE), -EEXIST);
	ck_assert_int_eq(rename_to(top, "f1", top, "x", RENAME_EXCHANGE), -ENOENT);
	ck_assert_int_eq(rename_to(top, "d1", at(at(top, "d1"), "sub"), "x", RENAME_EXCHANGE),
			 -ENOENT);
	ck_assert_int_eq(rename_to(top, "f1", top, "f1", 0), 0);
	ck_assert_int_eq(rename_to(top, "f1", top, "f2", RENAME_WHITEOUT | RENAME_EXCHANGE),
			 -EINVAL);
	ck_assert_int_eq(rename_to(top, "f1", top, "f2", 1 << 3), -EINVAL);

	uint64_t f1 = at(top, "f1")->ino, d1 = at(top, "d1")->ino;

	ck_assert_int_eq(rename_to(top, "f1", top, "f2", 0), 0);
	ck_assert(!is_there(top, "f1"));
	ck_assert_uint_eq(at(top, "f2")->ino, f1);
	/* A directory and a file change places, in different directories. */
	ck_assert_int_eq(rename_to(top, "d1", at(top, "d2"), "full", RENAME_EXCHANGE), 0);
	ck_assert_uint_eq(at(at(top, "d2"), "full")->ino, d1);
	ck_assert(S_ISREG(at(top, "d1")->mode));
	ck_assert_uint_eq(top->nlink, 3);
	ck_assert_uint_eq(at(top, "d2")->nlink, 3);
	/* A directory replaces an empty directory. */
	ck_assert_int_eq(make_dir(top, "empty"), 0);
	ck_assert_int_eq(rename_to(at(top, "d2"), "full", top, "empty", 0), 0);
	ck_assert_uint_eq(at(top, "empty")->ino, d1);
	ck_assert(is_there(at(top, "empty"), "sub"));

	struct tally sum = {0};

	tally(top, &sum);
	ck_assert_int_eq(sum.files, top->dir->rfiles);
}
END_TEST

static void expect_whiteout(struct inode *dir, const char *name)
{
	struct inode *whiteout = at(dir, name);

	ck_assert_uint_eq(whiteout->mode, S_IFCHR);
	ck_assert_uint_eq(whiteout->rdev, 0);
	ck_assert_uint_eq(whiteout->nlink, 1);
	ck_assert_ptr_eq(whiteout->quota_dir, dir);
	ck_assert_uint_eq(whiteout->uid, 12);
	ck_assert_uint_eq(whiteout->gid, 34);
}

/* The old name is a whiteout: for files and directories, in the same directory and another, with
 * and without a target. A rename that fails leaves no inode behind. */
START_TEST(whiteouts)
{
	struct inode *top = gpu(0);

	ck_assert_int_eq(make_dir(top, "dir"), 0);
	ck_assert_int_eq(make_dir(top, "other"), 0);
	struct inode *other = at(top, "other");

	ck_assert_int_eq(make_file(top, "f"), 0);
	ck_assert_int_eq(rename_to(top, "f", other, "f", RENAME_WHITEOUT), 0);
	expect_whiteout(top, "f");
	ck_assert(S_ISREG(at(other, "f")->mode));
	ck_assert_int_eq(make_file(other, "g"), 0);
	ck_assert_int_eq(rename_to(other, "f", other, "g", RENAME_WHITEOUT), 0);
	expect_whiteout(other, "f");
	ck_assert_int_eq(make_dir(other, "dir"), 0);
	ck_assert_int_eq(rename_to(top, "dir", other, "dir", RENAME_WHITEOUT), 0);
	expect_whiteout(top, "dir");
	ck_assert_uint_eq(top->nlink, 3);
	ck_assert_int_eq(rename_to(other, "g", gpu(1), "g", RENAME_WHITEOUT), 0);
	expect_whiteout(other, "g");
	ck_assert(S_ISREG(at(gpu(1), "g")->mode));

	int64_t inodes = ledger_of(&fixture)->metadata_bytes;

	ck_assert_int_eq(rename_to(top, "none", top, "x", RENAME_WHITEOUT), -ENOENT);
	ck_assert_int_eq(rename_to(top, "f", top, "other", RENAME_WHITEOUT | RENAME_NOREPLACE),
			 -EEXIST);
	ck_assert_int_eq(rename_to(top, "f", top, "f", RENAME_WHITEOUT), 0);
	ck_assert_int_eq(ledger_of(&fixture)->metadata_bytes, inodes);

	struct tally sum = {0};

	tally(top, &sum);
	ck_assert_int_eq(sum.files, top->dir->rfiles);
}
END_TEST

START_TEST(across_volumes)
{
	char data[300000], back[300000];

	for (size_t i = 0; i < sizeof(data); i++)
		data[i] = (char)(i * 7 + i / 251);
	ck_assert_int_eq(make_file(gpu(0), "f"), 0);
	struct inode *file = at(gpu(0), "f");

	ck_assert_int_eq(write_to(file, data, sizeof(data), 5), sizeof(data));
	for (unsigned to = 1; to < 3; to++) {
		ck_assert_int_eq(rename_to(gpu(to - 1), "f", gpu(to), "f", 0), 0);
		ck_assert_ptr_eq(at(gpu(to), "f"), file);
		ck_assert_ptr_eq(file->volume, &fixture.volumes[to]);
		ck_assert_ptr_eq(file_volume(file->file), &fixture.volumes[to]);
		ck_assert_int_eq(read_from(file, back, sizeof(back), 5), sizeof(back));
		ck_assert_mem_eq(data, back, sizeof(data));
		ck_assert_int_eq(gpu(to - 1)->dir->rfiles, 0);
		ck_assert_int_eq(gpu(to - 1)->dir->rbytes, 0);
		ck_assert_int_eq(gpu(to)->dir->rbytes, (int64_t)file->charges.bytes);
	}
	ck_assert_uint_eq(pool_usage(fixture.volumes[0].pool).span_bytes, 0);

	/* Without room the file stays in its old place, whole. */
	uint64_t room = 64ULL << 20;
	char *filler = calloc(1, 1 << 20);

	ck_assert_int_eq(make_file(gpu(0), "filler"), 0);
	for (uint64_t at_byte = 0; at_byte < room; at_byte += 1 << 20)
		if (write_to(at(gpu(0), "filler"), filler, 1 << 20, at_byte) != 1 << 20)
			break;
	free(filler);
	ck_assert_int_eq(rename_to(gpu(2), "f", gpu(0), "f", 0), -ENOSPC);
	ck_assert_int_eq(read_from(file, back, sizeof(back), 5), sizeof(back));
	ck_assert_mem_eq(data, back, sizeof(data));
	ck_assert(!is_there(gpu(0), "f"));

	/* The daemon refuses a rename that cannot be atomic, and mv copies instead. */
	ck_assert_int_eq(make_dir(gpu(1), "d"), 0);
	ck_assert_int_eq(rename_to(gpu(1), "d", gpu(0), "d", 0), -EXDEV);
	ck_assert_int_eq(rename_to(gpu(2), "f", gpu(0), "filler", RENAME_EXCHANGE), -EXDEV);
	ck_assert_int_eq(rename_to(gpu(2), "f", gpu(1), "d", 0), -EISDIR);
	ck_assert_int_eq(rename_to(gpu(2), "f", gpu(0), "filler", RENAME_NOREPLACE), -EEXIST);
}
END_TEST

START_TEST(quotas)
{
	char data[8192] = {1};

	ck_assert_int_eq(make_dir(gpu(0), "q"), 0);
	struct inode *q = at(gpu(0), "q");

	q->dir->max_files = 2;
	q->dir->max_bytes = 8192;
	ck_assert_int_eq(make_file(q, "a"), 0);
	ck_assert_int_eq(make_dir(q, "b"), 0);
	ck_assert_int_eq(make_file(at(q, "b"), "c"), -EDQUOT);
	ck_assert_int_eq(q->dir->rfiles, 2);
	ck_assert_int_eq(write_to(at(q, "a"), data, 4096, 0), 4096);
	ck_assert_int_eq(write_to(at(q, "a"), data, 8192, 4096), -EDQUOT);
	/* A file from outside cannot enter the quota directory by rename; a file inside can move
	 * within the directory. */
	ck_assert_int_eq(make_file(gpu(0), "out"), 0);
	ck_assert_int_eq(rename_to(gpu(0), "out", q, "out", 0), -EDQUOT);
	ck_assert_int_eq(rename_to(q, "a", at(q, "b"), "a", 0), 0);
	ck_assert_int_eq(q->dir->rfiles, 2);
	ck_assert_int_eq(tree_unlink(&fixture, at(q, "b"), "a"), 0);
	ck_assert_int_eq(q->dir->rfiles, 1);
	ck_assert_int_eq(q->dir->rbytes, 0);
	ck_assert_int_eq(rename_to(gpu(0), "out", q, "out", 0), 0);
}
END_TEST

START_TEST(unlinked_while_open)
{
	char text[4];

	ck_assert_int_eq(make_file(gpu(0), "f"), 0);
	struct inode *file = at(gpu(0), "f");

	inode_ref(file);
	file->uses.opens = 1;
	ck_assert_int_eq(write_to(file, "text", 4, 0), 4);
	ck_assert_int_eq(tree_unlink(&fixture, gpu(0), "f"), 0);
	ck_assert_int_eq(read_from(file, text, 4, 0), 4);
	ck_assert_mem_eq(text, "text", 4);
	ck_assert_int_eq(gpu(0)->dir->rfiles, 0);
	file->uses.opens = 0;
	inode_put(&fixture, file, 1);
	ck_assert_int_eq(gpu(0)->dir->rbytes, 0);

	/* No process has the file open: the memory goes with the name, whatever the kernel's lookup
	 * count is. */
	ck_assert_int_eq(make_file(gpu(0), "g"), 0);
	file = at(gpu(0), "g");
	inode_ref(file);
	ck_assert_int_eq(write_to(file, "text", 4, 0), 4);
	ck_assert_int_eq(tree_unlink(&fixture, gpu(0), "g"), 0);
	ck_assert_uint_eq(pool_usage(fixture.volumes[0].pool).span_bytes, 0);
	ck_assert(file->uses.data_freed);
	inode_put(&fixture, file, 1);
}
END_TEST

START_TEST(tmpfile_linked)
{
	struct tree_new what = {.mode = S_IFREG | 0600};
	struct inode *file;

	ck_assert_int_eq(make_dir(gpu(0), "d"), 0);
	ck_assert_int_eq(tree_tmpfile(&fixture, gpu(0), &what, &file), 0);
	ck_assert_uint_eq(file->nlink, 0);
	ck_assert_int_eq(write_to(file, "text", 4, 0), 4);
	ck_assert_int_eq(tree_link(&fixture, file, at(gpu(0), "d"), "named"), 0);
	inode_put(&fixture, file, 2);
	ck_assert_uint_eq(at(at(gpu(0), "d"), "named")->nlink, 1);
	ck_assert_int_eq(at(gpu(0), "d")->dir->rfiles, 1);
	ck_assert_int_gt(at(gpu(0), "d")->dir->rbytes, 0);
}
END_TEST

START_TEST(a_file_that_lost_its_name_gets_no_other)
{
	ck_assert_int_eq(make_file(gpu(0), "only"), 0);
	struct inode *file = at(gpu(0), "only");
	int64_t before = gpu(0)->dir->rfiles;

	inode_ref(file);
	pthread_mutex_lock(&file->lock);
	file->uses.keep_data = true;
	pthread_mutex_unlock(&file->lock);
	ck_assert_int_eq(tree_unlink(&fixture, gpu(0), "only"), 0);
	ck_assert_int_eq(tree_link(&fixture, file, gpu(0), "again"), -ENOENT);
	ck_assert_int_eq(gpu(0)->dir->rfiles, before - 1);
	ck_assert_int_eq(file->nlink, 0);
	inode_put(&fixture, file, 1);
}
END_TEST

START_TEST(set_group_id_is_inherited)
{
	struct inode *top = gpu(0);

	ck_assert_int_eq(make_dir(top, "d"), 0);
	struct inode *dir = at(top, "d");

	dir->mode |= S_ISGID;
	dir->gid = 77;
	ck_assert_int_eq(make_dir(dir, "sub"), 0);
	ck_assert_int_eq(make_file(dir, "file"), 0);
	ck_assert_uint_eq(at(dir, "sub")->gid, 77);
	ck_assert(at(dir, "sub")->mode & S_ISGID);
	ck_assert_uint_eq(at(dir, "file")->gid, 77);
	ck_assert(!(at(dir, "file")->mode & S_ISGID));
}
END_TEST

START_TEST(paths)
{
	char path[64], deep[40];

	ck_assert_int_eq(make_dir(gpu(0), "a"), 0);
	ck_assert_int_eq(make_file(at(gpu(0), "a"), "b"), 0);
	struct inode *file = at(at(gpu(0), "a"), "b");

	ck_assert_int_eq(tree_path(&fixture, file, path, sizeof(path)), 9);
	ck_assert_str_eq(path, "/gpu0/a/b");
	ck_assert_int_eq(tree_path(&fixture, file, path, 9), -ENAMETOOLONG);
	ck_assert_int_eq(tree_path(&fixture, file, path, 10), 9);
	ck_assert_int_eq(tree_path(&fixture, fixture.root, path, sizeof(path)), 1);
	ck_assert_str_eq(path, "/");
	inode_ref(file);
	ck_assert_int_eq(tree_unlink(&fixture, at(gpu(0), "a"), "b"), 0);
	tree_path(&fixture, file, deep, sizeof(deep));
	ck_assert_str_eq(deep, "/gpu0 (deleted)");
	inode_put(&fixture, file, 1);
}
END_TEST

START_TEST(deep_tree_ends)
{
	struct inode *dir = gpu(0);

	for (int i = 1; i < DEPTH_MAX; i++) {
		ck_assert_int_eq(make_dir(dir, "d"), 0);
		dir = at(dir, "d");
	}
	ck_assert_int_eq(make_file(dir, "bottom"), 0);
	/* fixture_down frees the chain without recursion of such depth. */
}
END_TEST

START_TEST(forgetting_more_than_was_looked_up)
{
	struct inode *file;

	ck_assert_int_eq(make_file(gpu(0), "f"), 0);
	ck_assert_int_eq(tree_lookup(&fixture, gpu(0), "f", &file), 0);
	inode_looked_up(file);
	inode_forget(&fixture, file, 1000);
	ck_assert(is_there(gpu(0), "f"));
	ck_assert_uint_eq(at(gpu(0), "f")->refs, 1);
}
END_TEST

START_TEST(numbers_are_not_used_twice)
{
	uint64_t first;

	ck_assert_int_eq(make_file(gpu(0), "f"), 0);
	first = at(gpu(0), "f")->ino;
	ck_assert_int_eq(tree_unlink(&fixture, gpu(0), "f"), 0);
	ck_assert_ptr_null(inode_find(&fixture, first));
	ck_assert_int_eq(make_file(gpu(0), "f"), 0);
	ck_assert_uint_ne(at(gpu(0), "f")->ino, first);
	ck_assert_ptr_null(inode_find(&fixture, first));
	ck_assert_ptr_null(inode_find(&fixture, 0));
	ck_assert_ptr_null(inode_find(&fixture, UINT64_MAX));
	ck_assert_ptr_null(inode_find(&fixture, UINT32_MAX));
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("tree");
	TCase *tests = tcase_create("tree");

	tcase_set_timeout(tests, 120);
	tcase_add_checked_fixture(tests, fixture_up, fixture_down);
	tcase_add_test(tests, nothing_in_the_root);
	tcase_add_test(tests, names);
	tcase_add_test(tests, device_nodes);
	tcase_add_test(tests, removing);
	tcase_add_test(tests, links);
	tcase_add_test(tests, rename_rules);
	tcase_add_test(tests, whiteouts);
	tcase_add_test(tests, across_volumes);
	tcase_add_test(tests, quotas);
	tcase_add_test(tests, unlinked_while_open);
	tcase_add_test(tests, tmpfile_linked);
	tcase_add_test(tests, a_file_that_lost_its_name_gets_no_other);
	tcase_add_test(tests, set_group_id_is_inherited);
	tcase_add_test(tests, paths);
	tcase_add_test(tests, deep_tree_ends);
	tcase_add_test(tests, forgetting_more_than_was_looked_up);
	tcase_add_test(tests, numbers_are_not_used_twice);
	suite_add_tcase(suite, tests);
	return unit_main(suite);
}
