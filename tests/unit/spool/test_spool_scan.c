/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* A daemon with a journal is killed while the daemon restores the spool's tree, and later: the next
 * daemon has every file once, with all its attributes. */
#include "tests/unit/journal_fixture.h"
#include "tests/unit/spool_fixture.h"

#include "fs/daemon/idle_release.h"
#include "fs/holders/holds.h"

#define FROZEN_MAX 120
#define FILES	   6

static struct held held, frozen[FROZEN_MAX];
static unsigned n_frozen, passed;
static char bytes[3 * SPOOL_BLOCK], seen[sizeof(bytes)];

static void name_of(unsigned number, char name[16])
{
	snprintf(name, 16, "file%u", number);
}

static size_t size_of(unsigned number)
{
	return number * SPOOL_BLOCK / 2;
}

/* Makes files in the two kinds of volume, with all attributes that a file can have. */
static void fill(void)
{
	uint64_t state = unit_seed();

	unit_fill(bytes, sizeof(bytes), &state);
	for (unsigned i = 0; i < FILES; i++) {
		struct tree_attrs attrs = {.mask = TREE_MODE | TREE_MTIME, .mode = 0601};
		struct inode *dir = i % 2 ? gpu(0) : gpu(2);
		char name[16];

		name_of(i, name);
		attrs.mtime = i + 1;
		ck_assert_int_eq(make_file(dir, name), 0);
		ck_assert_int_eq(persist(at(dir, name), "disk"), 0);
		if (size_of(i))
			put_bytes(at(dir, name), bytes, size_of(i), 0);
		ck_assert_int_eq(xattr_set(&at(dir, name)->xattrs, "user.x", name, 5, 0), 0);
		tree_set_attrs(&fixture, at(dir, name), &attrs);
	}
	ck_assert_int_eq(tree_link(&fixture, at(gpu(0), "file1"), gpu(0), "linked"), 0);
	inode_put(&fixture, at(gpu(0), "file1"), 1);
}

static void up(void)
{
	spool_up();
	fill();
	mount_down();
	n_frozen = passed = 0;
}

static void down(void)
{
	spool_scratch_gone();
}

static void freeze_some(void *of)
{
	(void)of;
	if (passed++ % 4 == 0 && n_frozen < FROZEN_MAX)
		held_freeze(&held, FREEZE_ALL, &frozen[n_frozen++]);
}

/* Starts a daemon as fs_open does, with a fault point as soon as the daemon has a journal. */
static void daemon_with_spool(const struct fdstore_ops *fdstore, void (*fault)(void *of))
{
	char text[256];
	char *argv[] = {"gpumemfs", "/proc", "-o", text, NULL};

	snprintf(text, sizeof(text),
		 "backend=host,host_gpus=2,host_size=64M,log_level=error,restore=lazy,spool=%s",
		 spool_at);
	worker_end();
	memset(&fixture, 0, sizeof(fixture));
	ck_assert_int_eq(options_parse(4, argv, &fixture.options), 0);
	fixture.can.max_write = SPOOL_BLOCK;
	fixture.fdstore_ops = fdstore;
	fixture.mount = FS_MOUNT_KEPT;
	ck_assert_int_eq(fs_prepare(&fixture), 0);
	ck_assert_int_eq(holds_open(&fixture), 0);
	ck_assert_int_eq(fs_restore(&fixture), 0);
	ck_assert_int_eq(idle_release_open(&fixture), 0);
	checkpoint_start(&fixture);
	fixture.journal->fault = fault;
	ck_assert_int_eq(spool_open(&fixture), 0);
	fixture.journal->fault = NULL;
}

static void expect_all(void)
{
	for (unsigned i = 0; i < FILES; i++) {
		char name[16], value[16];

		name_of(i, name);
		struct inode *file = at(i % 2 ? gpu(0) : gpu(2), name);
		struct attr_values values = atomic_load(&file->attrs);

		ck_assert_uint_eq(file->mode, S_IFREG | 0601);
		ck_assert_uint_eq(values.persist, PERSIST_DISK);
		ck_assert_int_eq(xattr_get(file->xattrs, "user.x", value, sizeof(value)), 5);
		ck_assert_uint_eq(file_size(file->file), size_of(i));
		ck_assert_int_eq(get_bytes(file, seen, sizeof(seen), 0), (ssize_t)size_of(i));
		ck_assert(memcmp(seen, bytes, size_of(i)) == 0);
		/* The frozen objects of host/ are copies with a new time. */
		ck_assert(i % 2 == 0 || file->fields->mtime == i + 1);
	}
	ck_assert_ptr_eq(at(gpu(0), "file1"), at(gpu(0), "linked"));
	ck_assert_uint_eq(gpu(0)->dir->n_names, FILES / 2 + 1);
	ck_assert_uint_eq(gpu(2)->dir->n_names, FILES / 2);
	ck_assert_uint_eq(spool_counters(&fixture).damaged, 0);
}

START_TEST(killed_while_names_come_back)
{
	struct fdstore_ops fdstore = held_ops(&held), other;

	held_init(&held);
	daemon_with_spool(&fdstore, freeze_some);
	expect_all();
	daemon_down(&fixture);
	held_free(&held);
	ck_assert_uint_ge(n_frozen, 10);
	for (unsigned i = 0; i < n_frozen; i++) {
		other = held_ops(&frozen[i]);
		daemon_with_spool(&other, NULL);
		expect_all();
		daemon_down(&fixture);
		held_free(&frozen[i]);
	}
}
END_TEST

/* A file has bytes only in the spool, and bytes in memory that were not saved. */
START_TEST(killed_with_bytes_on_both_sides)
{
	struct fdstore_ops fdstore = held_ops(&held), other;

	held_init(&held);
	daemon_with_spool(&fdstore, NULL);
	struct inode *file = at(gpu(0), "file3");

	ck_assert_int_eq(inode_require_bytes(&fixture, file), 0);
	put_bytes(file, "unsaved", 7, 0);
	ck_assert_int_eq(rename_to(gpu(0), "file5", gpu(0), "renamed", 0), 0);
	ck_assert_int_eq(tree_unlink(&fixture, gpu(0), "linked"), 0);
	ck_assert_int_eq(tree_unlink(&fixture, gpu(0), "file1"), 0);
	held_freeze(&held, FREEZE_ALL, &frozen[0]);
	daemon_down(&fixture);
	held_free(&held);
	other = held_ops(&frozen[0]);
	daemon_with_spool(&other, NULL);
	ck_assert(!is_there(gpu(0), "file1"));
	ck_assert_uint_eq(file_allocated(at(gpu(0), "renamed")->file), 0);
	spool_end(&fixture);
	daemon_down(&fixture);
	held_free(&frozen[0]);
	mount_up();
	ck_assert(!is_there(gpu(0), "file1") && !is_there(gpu(0), "file5"));
	ck_assert_int_eq(get_bytes(at(gpu(0), "file3"), seen, 7, 0), 7);
	ck_assert_mem_eq(seen, "unsaved", 7);
	ck_assert_int_eq(get_bytes(at(gpu(0), "renamed"), seen, size_of(5), 0),
			 (ssize_t)size_of(5));
	ck_assert(memcmp(seen, bytes, size_of(5)) == 0);
	mount_crash();
}
END_TEST

/* The disk is missing when the next daemon starts: memory is served, and bytes that are only on the
 * disk give an error, not zeroes. */
START_TEST(going_on_without_the_disk)
{
	struct fdstore_ops fdstore = held_ops(&held), other;
	char aside[sizeof(spool_at) + 8];

	held_init(&held);
	daemon_with_spool(&fdstore, NULL);
	ck_assert_int_eq(inode_require_bytes(&fixture, at(gpu(0), "file3")), 0);
	held_freeze(&held, FREEZE_ALL, &frozen[0]);
	daemon_down(&fixture);
	held_free(&held);
	snprintf(aside, sizeof(aside), "%s.aside", spool_at);
	ck_assert_int_eq(rename(spool_at, aside), 0);
	other = held_ops(&frozen[0]);
	daemon_with_spool(&other, NULL);
	ck_assert_int_eq(get_bytes(at(gpu(0), "file3"), seen, 100, 0), 100);
	ck_assert(memcmp(seen, bytes, 100) == 0);
	ck_assert_int_eq(get_bytes(at(gpu(0), "file5"), seen, 100, 0), -EIO);
	ck_assert_int_eq(persist(at(gpu(0), "file3"), "disk"), -ENOTSUP);
	daemon_down(&fixture);
	held_free(&frozen[0]);
	ck_assert_int_eq(rename(aside, spool_at), 0);
}
END_TEST

static Suite *suite(void)
{
	TCase *tcase;
	Suite *all = unit_suite("spool_scan", &tcase, 120);

	tcase_add_checked_fixture(tcase, up, down);
	tcase_add_test(tcase, killed_while_names_come_back);
	tcase_add_test(tcase, killed_with_bytes_on_both_sides);
	tcase_add_test(tcase, going_on_without_the_disk);
	return all;
}

int main(void)
{
	return unit_main(suite());
}
