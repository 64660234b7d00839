/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* Limits of the tree against endless requests of users: depth, names, quotas. */
#include <errno.h>
#include <pthread.h>
#include <stdlib.h>

#include "fs/ledger/ledger.h"
#include "fs/tree/depth.h"
#include "fs/tree/inode_table.h"
#include "tests/unit/fs_fixture.h"
#include "tests/unit/unit.h"

#define DEPTH	    (DEPTH_MAX - 1) /* below a GPU's directory */
#define STACK_BYTES (128 << 10)

static void *forget_chain(void *pointer)
{
	struct inode **chain = pointer;

	for (int i = 0; i < DEPTH; i++)
		inode_put(&fixture, chain[i], 1);
	worker_end();
	return NULL;
}

/* The kernel may forget a chain of removed directories from the top. The stack of the test thread
 * is too small for a call per directory. */
START_TEST(a_deep_chain_goes_whatever_is_forgotten_first)
{
	struct inode **chain = calloc(DEPTH, sizeof(*chain)), *above = gpu(0);
	struct tree_new what = {.mode = S_IFDIR | 0755};
	uint64_t inodes = inode_table_count(fixture.inodes);
	pthread_attr_t attributes;
	pthread_t thread;

	for (int i = 0; i < DEPTH; i++) {
		ck_assert_int_eq(tree_create(&fixture, above, "d", &what, &chain[i]), 0);
		above = chain[i];
	}
	for (int i = DEPTH - 1; i > 0; i--)
		ck_assert_int_eq(tree_rmdir(&fixture, chain[i - 1], "d"), 0);
	ck_assert_int_eq(tree_rmdir(&fixture, gpu(0), "d"), 0);
	pthread_attr_init(&attributes);
	pthread_attr_setstacksize(&attributes, STACK_BYTES);
	ck_assert_int_eq(pthread_create(&thread, &attributes, forget_chain, chain), 0);
	pthread_join(thread, NULL);
	pthread_attr_destroy(&attributes);
	ck_assert_uint_eq(inode_table_count(fixture.inodes), inodes);
	free(chain);
}
END_TEST

/* Makes the given number of nested directories, and returns the lowest directory. */
static struct inode *nested(struct inode *top, const char *name, int levels)
{
	ck_assert_int_eq(make_dir(top, name), 0);
	top = at(top, name);
	for (int i = 1; i < levels; i++) {
		ck_assert_int_eq(make_dir(top, "d"), 0);
		top = at(top, "d");
	}
	return top;
}

/* Removes the directories of nested() except the top. */
static void remove_nested(struct inode *lowest, struct inode *top)
{
	while (lowest != top) {
		struct inode *above = lowest->dir->parent;

		ck_assert_int_eq(tree_rmdir(&fixture, above, "d"), 0);
		lowest = above;
	}
}

START_TEST(directories_are_nested_so_deep_and_no_deeper)
{
	struct inode *lowest = nested(gpu(0), "deep", DEPTH);

	ck_assert_int_eq(make_dir(lowest, "d"), -ENAMETOOLONG);
	ck_assert_int_eq(make_file(lowest, "file"), 0);
	ck_assert_int_eq(make_dir(lowest->dir->parent, "beside"), 0);
	ck_assert_int_eq(rename_to(lowest->dir->parent, "beside", lowest, "d", 0), -ENAMETOOLONG);
	ck_assert_int_eq(rename_to(lowest->dir->parent, "beside", lowest->dir->parent, "other", 0),
			 0);
	ck_assert_int_eq(tree_unlink(&fixture, lowest, "file"), 0);
	ck_assert_int_eq(tree_rmdir(&fixture, lowest->dir->parent, "other"), 0);
	remove_nested(lowest, at(gpu(0), "deep"));
}
END_TEST

START_TEST(a_subtree_is_as_deep_as_its_lowest_directory)
{
	struct inode *half = nested(gpu(0), "half", DEPTH / 2), *other, *beside;

	other = nested(gpu(0), "other", DEPTH - DEPTH / 2);
	/* The chain below "over" is a level too deep for a place in half; the chain without "over"
	 * fits. */
	ck_assert_int_eq(make_dir(gpu(0), "over"), 0);
	ck_assert_int_eq(rename_to(gpu(0), "other", at(gpu(0), "over"), "other", 0), 0);
	ck_assert_int_eq(rename_to(gpu(0), "over", half, "d", 0), -ENAMETOOLONG);
	ck_assert_int_eq(rename_to(at(gpu(0), "over"), "other", half, "d", 0), 0);
	ck_assert_int_eq(make_dir(other, "d"), -ENAMETOOLONG);
	ck_assert_int_eq(make_dir(gpu(0), "beside"), 0);
	ck_assert_int_eq(rename_to(gpu(0), "half", at(gpu(0), "beside"), "half", 0), -ENAMETOOLONG);
	/* An exchange moves the two directories. */
	beside = nested(at(gpu(0), "beside"), "d", 2);
	ck_assert_int_eq(rename_to(gpu(0), "half", at(gpu(0), "beside"), "d", RENAME_EXCHANGE),
			 -ENAMETOOLONG);
	ck_assert_int_eq(rename_to(at(gpu(0), "beside"), "d", gpu(0), "half", RENAME_EXCHANGE),
			 -ENAMETOOLONG);
	ck_assert_ptr_eq(at(at(gpu(0), "beside"), "d"), beside->dir->parent);
	/* Removed directories count no more. */
	remove_nested(other, half);
	remove_nested(half, at(gpu(0), "half"));
	ck_assert_int_eq(rename_to(gpu(0), "half", at(gpu(0), "beside"), "half", 0), 0);
}
END_TEST

START_TEST(a_directory_cannot_replace_one_above_it)
{
	ck_assert_int_eq(make_dir(gpu(0), "a"), 0);
	ck_assert_int_eq(make_dir(at(gpu(0), "a"), "b"), 0);
	ck_assert_int_eq(make_dir(at(at(gpu(0), "a"), "b"), "c"), 0);
	ck_assert_int_eq(rename_to(at(at(gpu(0), "a"), "b"), "c", at(gpu(0), "a"), "b", 0),
			 -ENOTEMPTY);
	ck_assert_int_eq(rename_to(at(at(gpu(0), "a"), "b"), "c", gpu(0), "a", 0), -ENOTEMPTY);
}
END_TEST

/* Makes the directory "over" with a file more than its quota. */
static struct inode *over_quota(void)
{
	struct inode *over;

	ck_assert_int_eq(make_dir(gpu(0), "over"), 0);
	over = at(gpu(0), "over");
	ck_assert_int_eq(make_dir(over, "dir"), 0);
	ck_assert_int_eq(make_file(over, "file"), 0);
	over->dir->max_files = 1;
	return over;
}

/* A quota directory over its quota must keep the charge of a file when a rename of the file out of
 * the directory fails. */
START_TEST(a_rename_that_fails_leaves_the_charge)
{
	struct inode *over = over_quota();

	ck_assert_int_eq(make_dir(gpu(0), "full"), 0);
	ck_assert_int_eq(make_file(at(gpu(0), "full"), "file"), 0);
	ck_assert_int_eq(rename_to(over, "dir", gpu(0), "full", 0), -ENOTEMPTY);
	ck_assert_int_eq(over->dir->rfiles, 2);
	ck_assert_ptr_eq(at(over, "dir")->quota_dir, over);
}
END_TEST

START_TEST(an_exchange_that_fails_leaves_the_charges)
{
	struct inode *over = over_quota();

	ck_assert_int_eq(make_file(gpu(0), "other"), 0);
	ck_assert_int_eq(rename_to(over, "file", gpu(0), "other", RENAME_EXCHANGE), -EDQUOT);
	ck_assert_int_eq(over->dir->rfiles, 2);
	ck_assert_ptr_eq(at(over, "file")->quota_dir, over);
	ck_assert_ptr_eq(at(gpu(0), "other")->quota_dir, gpu(0));
}
END_TEST

static int make_many(struct inode *parent, int (*one)(struct inode *parent, const char *name))
{
	char name[16];

	for (int i = 0; i < 1000; i++) {
		int error;

		snprintf(name, sizeof(name), "n%d", i);
		error = one(parent, name);
		if (error)
			return error;
	}
	return 0;
}

static int link_first(struct inode *parent, const char *name)
{
	struct inode *inode = at(gpu(0), "first");
	int error = tree_link(&fixture, inode, parent, name);

	if (!error)
		inode_put(&fixture, inode, 1);
	return error;
}

static int make_symlink(struct inode *parent, const char *name)
{
	return make(parent, name, S_IFLNK | 0777);
}

static void empty_of(struct inode *parent)
{
	struct dentry *entry;

	while ((entry = dir_before(parent->dir, DIR_COOKIE_END))) {
		char name[NAME_BYTES_MAX + 1];
		bool dir = S_ISDIR(entry->inode->mode);

		strcpy(name, entry->name);
		ck_assert_int_eq(dir ? tree_rmdir(&fixture, parent, name)
				     : tree_unlink(&fixture, parent, name),
				 0);
	}
}

/* Names take memory of the daemon, which must not end for lack of memory. */
START_TEST(the_daemon_keeps_its_own_memory_bounded)
{
	int64_t before = ledger_of(&fixture)->metadata_bytes;

	ck_assert_int_gt(ledger_of(&fixture)->metadata_max, 100 << 20);
	fixture.options.user_metadata =
	    (struct amount){.given = true, .percent = true, .value = 100};
	ck_assert_int_eq(make_file(gpu(0), "first"), 0);
	ledger_of(&fixture)->metadata_max = ledger_of(&fixture)->metadata_bytes + 100000;
	ck_assert_int_eq(make_many(gpu(1), make_file), -ENOSPC);
	empty_of(gpu(1));
	ck_assert_int_eq(make_many(gpu(1), make_dir), -ENOSPC);
	empty_of(gpu(1));
	ck_assert_int_eq(make_many(gpu(1), make_symlink), -ENOSPC);
	empty_of(gpu(1));
	ck_assert_int_eq(make_many(gpu(0), link_first), -ENOSPC);
	empty_of(gpu(0));
	ck_assert_int_eq(ledger_of(&fixture)->metadata_bytes, before);
}
END_TEST

/* The inode goes through the steps of O_TMPFILE and linkat. */
START_TEST(a_file_whose_data_went_gets_no_name)
{
	struct tree_new what = {.mode = S_IFREG | 0600};
	struct inode *inode;

	ck_assert_int_eq(tree_tmpfile(&fixture, gpu(0), &what, &inode), 0);
	pthread_mutex_lock(&inode->lock);
	ck_assert(inode_may_drop(&fixture, inode)); /* its last handle was closed */
	pthread_mutex_unlock(&inode->lock);
	ck_assert_int_eq(tree_link(&fixture, inode, gpu(0), "name"), -ENOENT);
	ck_assert(!is_there(gpu(0), "name"));
	inode_put(&fixture, inode, 1);
}
END_TEST

/* A process that looked the name up before the rename may still open the old file. */
START_TEST(a_replaced_file_keeps_its_bytes_until_forgotten)
{
	struct inode *old;
	char text[4];

	ck_assert_int_eq(make_file(gpu(0), "name"), 0);
	ck_assert_int_eq(make_file(gpu(0), "new"), 0);
	ck_assert_int_eq(tree_lookup(&fixture, gpu(0), "name", &old), 0);
	ck_assert_int_eq(write_to(old, "text", 4, 0), 4);
	ck_assert_int_eq(rename_to(gpu(0), "new", gpu(0), "name", 0), 0);
	ck_assert(!old->uses.data_freed);
	ck_assert_int_eq(fixture.inodes->n_unlinked_open, 1);
	ck_assert_int_eq(read_from(old, text, 4, 0), 4);
	ck_assert_mem_eq(text, "text", 4);
	inode_put(&fixture, old, 1);
	ck_assert_int_eq(fixture.inodes->n_unlinked_open, 0);
	ck_assert_uint_eq(pool_usage(fixture.volumes[0].pool).span_bytes, 0);
}
END_TEST

int main(void)
{
	TCase *tcase;
	Suite *suite = unit_suite("tree_limits", &tcase, 60);

	tcase_add_checked_fixture(tcase, fixture_up, fixture_down);
	tcase_add_test(tcase, directories_are_nested_so_deep_and_no_deeper);
	tcase_add_test(tcase, a_subtree_is_as_deep_as_its_lowest_directory);
	tcase_add_test(tcase, a_deep_chain_goes_whatever_is_forgotten_first);
	tcase_add_test(tcase, a_directory_cannot_replace_one_above_it);
	tcase_add_test(tcase, a_rename_that_fails_leaves_the_charge);
	tcase_add_test(tcase, an_exchange_that_fails_leaves_the_charges);
	tcase_add_test(tcase, the_daemon_keeps_its_own_memory_bounded);
	tcase_add_test(tcase, a_file_whose_data_went_gets_no_name);
	tcase_add_test(tcase, a_replaced_file_keeps_its_bytes_until_forgotten);
	return unit_main(suite);
}
