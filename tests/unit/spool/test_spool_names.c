/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* Names that change faster than the spool follows: a replaced file does not come back, and the
 * replacing file is on the disk before the replaced file goes. In the tests the spool follows names
 * only at a save. */
#include <errno.h>
#include <sys/resource.h>

#include "tests/unit/spool_fixture.h"

/* The largest file that fits the small disk. */
#define SMALL_DISK 4096

static char pattern[2 * SMALL_DISK];

static void up(void)
{
	spool_up();
	ck_assert_int_eq(persist(gpu(0), "disk"), 0);
}

static void file_of(const char *name, size_t bytes)
{
	ck_assert_int_eq(make_file(gpu(0), name), 0);
	put_bytes(at(gpu(0), name), pattern, bytes, 0);
}

/* Makes a file with its bytes in the spool. */
static void saved_of(const char *name, size_t bytes)
{
	file_of(name, bytes);
	ck_assert_int_eq(spool_save(&fixture, at(gpu(0), name)), 0);
}

static void renames(const char *from, const char *to, unsigned flags)
{
	ck_assert_int_eq(rename_to(gpu(0), from, gpu(0), to, flags), 0);
}

static uint64_t size_of(const char *name)
{
	return file_size(at(gpu(0), name)->file);
}

/* Returns the size of a file in the tree of links in the spool; 0: missing. */
static uint64_t seen_size(const char *name)
{
	char path[128];
	struct stat st;

	snprintf(path, sizeof(path), "%s/gpu0/%s", spool_at, name);
	return lstat(path, &st) ? 0 : (uint64_t)st.st_size;
}

static void follow_names(void)
{
	ck_assert_int_eq(spool_save(&fixture, gpu(0)), 0);
}

static void crash_and_mount(void)
{
	mount_crash();
	mount_up();
}

/* Follows changed names while the disk has room only for small files. */
static void follow_on_small_disk(void)
{
	struct rlimit limit, small;

	ck_assert_int_eq(getrlimit(RLIMIT_FSIZE, &limit), 0);
	small = (struct rlimit){.rlim_cur = SMALL_DISK, .rlim_max = limit.rlim_max};
	setrlimit(RLIMIT_FSIZE, &small);
	spool_drain(&fixture);
	setrlimit(RLIMIT_FSIZE, &limit);
}

START_TEST(replaced_again_before_it_was_followed)
{
	saved_of("file", 10);
	saved_of("first", 20);
	saved_of("second", 30);
	renames("first", "file", 0);
	renames("second", "file", 0);
	renames("file", "elsewhere", 0);
	remount();
	ck_assert(!is_there(gpu(0), "file"));
	ck_assert_uint_eq(size_of("elsewhere"), 30);
	ck_assert_uint_eq(gpu(0)->dir->n_names, 1);
}
END_TEST

/* Programs write a file that must be whole in this way; here twice in a moment. */
START_TEST(what_was_never_saved_replaces_it)
{
	saved_of("file", 10);
	file_of("first", 20);
	file_of("second", 30);
	renames("first", "file", 0);
	renames("second", "file", 0);
	follow_names();
	crash_and_mount();
	ck_assert_uint_eq(size_of("file"), 30);
	ck_assert_uint_eq(gpu(0)->dir->n_names, 1);
}
END_TEST

/* Each file replaces the other, and at the end all names are gone. */
START_TEST(two_that_replaced_each_other)
{
	const char *names[] = {"a1", "a2", "b1", "b2"};
	struct inode *link;

	saved_of("a1", 10);
	saved_of("b1", 20);
	for (unsigned i = 0; i < 2; i++) {
		ck_assert_int_eq(
		    tree_link(&fixture, at(gpu(0), names[2 * i]), gpu(0), names[2 * i + 1]), 0);
		link = at(gpu(0), names[2 * i]);
		inode_put(&fixture, link, 1);
	}
	follow_names();
	renames("a1", "b1", 0);
	renames("b2", "a2", 0);
	ck_assert_int_eq(tree_unlink(&fixture, gpu(0), "b1"), 0);
	ck_assert_int_eq(tree_unlink(&fixture, gpu(0), "a2"), 0);
	remount();
	ck_assert_uint_eq(gpu(0)->dir->n_names, 0);
}
END_TEST

/* A saved file stays in the spool until the replacing file has room. */
START_TEST(no_room_for_what_replaced_it)
{
	saved_of("file", 10);
	file_of("large", 2 * SMALL_DISK);
	renames("large", "file", 0);
	for (unsigned i = 0; i < 3; i++)
		follow_on_small_disk();
	ck_assert_uint_ge(spool_counters(&fixture).errors, 3);
	crash_and_mount();
	ck_assert_uint_eq(size_of("file"), 10);
}
END_TEST

START_TEST(no_room_and_replaced_again)
{
	saved_of("file", 10);
	file_of("first", 20);
	file_of("large", 2 * SMALL_DISK);
	renames("first", "file", 0);
	renames("large", "file", 0);
	follow_on_small_disk();
	crash_and_mount();
	ck_assert_uint_eq(size_of("file"), 10);
}
END_TEST

/* The file goes with its last name, and the file that replaced one of the names cannot be saved. */
START_TEST(no_room_for_one_of_two)
{
	struct inode *file;

	saved_of("file", 10);
	file = at(gpu(0), "file");
	ck_assert_int_eq(tree_link(&fixture, file, gpu(0), "link"), 0);
	inode_put(&fixture, file, 1);
	follow_names();
	file_of("small", 20);
	file_of("large", 2 * SMALL_DISK);
	renames("small", "file", 0);
	renames("large", "link", 0);
	follow_on_small_disk();
	crash_and_mount();
	ck_assert_uint_eq(size_of("file"), 20);
	ck_assert_uint_eq(size_of("link"), 10);
}
END_TEST

static unsigned steps;

/* Renames at every step of the follow, so that the follow always finds another name. */
static void rename_again(void *of)
{
	(void)of;
	ck_assert_uint_le(++steps, 1000);
	renames("a", "b", RENAME_EXCHANGE);
}

START_TEST(renamed_all_the_while)
{
	saved_of("a", 10);
	saved_of("b", 20);
	spool_of(&fixture)->fault = rename_again;
	renames("a", "b", RENAME_EXCHANGE);
	spool_drain(&fixture);
	ck_assert_uint_ge(steps, 1);
	spool_of(&fixture)->fault = NULL;
	remount();
	ck_assert_uint_eq(size_of("a") + size_of("b"), 30);
	ck_assert_uint_eq(gpu(0)->dir->n_names, 2);
}
END_TEST

START_TEST(people_see_what_replaced_it)
{
	saved_of("file", 10);
	file_of("new", 20);
	renames("new", "file", 0);
	follow_names();
	ck_assert_uint_eq(seen_size("file"), 20);
	ck_assert_uint_eq(seen_size("new"), 0);
}
END_TEST

START_TEST(people_see_what_was_exchanged)
{
	saved_of("a", 10);
	saved_of("b", 20);
	renames("a", "b", RENAME_EXCHANGE);
	follow_names();
	ck_assert_uint_eq(seen_size("a"), 20);
	ck_assert_uint_eq(seen_size("b"), 10);
}
END_TEST

START_TEST(people_see_directories_exchanged)
{
	const char *names[] = {"x", "y"};

	for (unsigned i = 0; i < 2; i++) {
		struct inode *dir;

		ck_assert_int_eq(make_dir(gpu(0), names[i]), 0);
		dir = at(gpu(0), names[i]);
		ck_assert_int_eq(make_file(dir, "file"), 0);
		put_bytes(at(dir, "file"), pattern, 10 + i, 0);
		ck_assert_int_eq(spool_save(&fixture, at(dir, "file")), 0);
	}
	renames("x", "y", RENAME_EXCHANGE);
	follow_names();
	ck_assert_uint_eq(seen_size("x/file"), 11);
	ck_assert_uint_eq(seen_size("y/file"), 10);
}
END_TEST

static void link_of(const char *name, const char *target)
{
	struct tree_new what = {.mode = S_IFLNK | 0777, .target = target};
	struct inode *inode;

	ck_assert_int_eq(tree_create(&fixture, gpu(0), name, &what, &inode), 0);
	inode_put(&fixture, inode, 1);
}

START_TEST(people_see_where_links_lead)
{
	link_of("a", "short");
	link_of("b", "longer");
	saved_of("file", 20);
	ck_assert_int_eq(spool_save(&fixture, at(gpu(0), "a")), 0);
	ck_assert_int_eq(spool_save(&fixture, at(gpu(0), "b")), 0);
	renames("a", "b", RENAME_EXCHANGE);
	follow_names();
	ck_assert_uint_eq(seen_size("a"), strlen("longer"));
	ck_assert_uint_eq(seen_size("b"), strlen("short"));
	renames("b", "file", 0);
	follow_names();
	ck_assert_uint_eq(seen_size("file"), strlen("short"));
	ck_assert_uint_eq(seen_size("b"), 0);
}
END_TEST

START_TEST(people_keep_what_lost_its_data)
{
	char path[128];

	saved_of("file", 10);
	snprintf(path, sizeof(path), "%s/.spool/data/%" PRIu64, spool_at,
		 atomic_load(&inode_spool_file(at(gpu(0), "file"))->id));
	mount_down();
	ck_assert_int_eq(unlink(path), 0);
	mount_up();
	ck_assert_int_eq(inode_require_bytes(&fixture, at(gpu(0), "file")), -EIO);
	ck_assert_uint_eq(seen_size("file"), 10);
}
END_TEST

static Suite *suite(void)
{
	TCase *tcase;
	Suite *all = unit_suite("spool names", &tcase, 30);

	tcase_add_checked_fixture(tcase, up, spool_down);
	tcase_add_test(tcase, replaced_again_before_it_was_followed);
	tcase_add_test(tcase, what_was_never_saved_replaces_it);
	tcase_add_test(tcase, two_that_replaced_each_other);
	tcase_add_test(tcase, no_room_for_what_replaced_it);
	tcase_add_test(tcase, no_room_and_replaced_again);
	tcase_add_test(tcase, no_room_for_one_of_two);
	tcase_add_test(tcase, renamed_all_the_while);
	tcase_add_test(tcase, people_see_what_replaced_it);
	tcase_add_test(tcase, people_see_what_was_exchanged);
	tcase_add_test(tcase, people_see_directories_exchanged);
	tcase_add_test(tcase, people_see_where_links_lead);
	tcase_add_test(tcase, people_keep_what_lost_its_data);
	return all;
}

int main(void)
{
	return unit_main(suite());
}
