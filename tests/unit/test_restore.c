/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* What a daemon leaves is what the next one has: every state that a tree can be in, read back. */
#include "tests/unit/restore_actor.h"

static struct held held;
static struct journal_holder holder;

static void up(void)
{
	held_init(&held);
	holder = held_holder(&held);
	ck_assert_int_eq(daemon_up(&fixture, &holder, FS_MOUNT_KEPT), 0);
}

static void down(void)
{
	daemon_down(&fixture);
	ck_assert_uint_eq(held.n, 0);
	held_free(&held);
}

/* A second daemon finds what the first would leave if it were stopped now: the same. */
static void expect_same(void)
{
	static struct fs second;
	struct held frozen;
	char *before = describe(&fixture, DESCRIBE_ALL);
	uint64_t seed = hash_seed;

	held_freeze(&held, FREEZE_JOURNAL, &frozen);
	struct journal_holder other = held_holder(&frozen);

	ck_assert_int_eq(daemon_up(&second, &other, FS_MOUNT_KEPT), 0);
	char *after = describe(&second, DESCRIBE_ALL);

	ck_assert(same_text(before, after, stderr));
	/* All but what a pool has to spare. */
	ck_assert_uint_le(frozen.n, held.n);
	ck_assert_uint_ge(frozen.n + fixture.backend->n_devices, held.n);
	daemon_down(&second);
	ck_assert_uint_eq(frozen.n, 0);
	held_free(&frozen);
	hash_seed = seed; /* each daemon has its own */
	free(before);
	free(after);
}

START_TEST(nothing_but_the_top)
{
	expect_same();
	compact(&fixture);
	expect_same();
}
END_TEST

START_TEST(names_of_every_kind)
{
	ck_assert_int_eq(make_dir(gpu(0), "dir"), 0);
	struct inode *dir = at(gpu(0), "dir");

	ck_assert_int_eq(make_file(dir, "file"), 0);
	ck_assert_int_eq(make(dir, "link", S_IFLNK | 0777), 0);
	ck_assert_int_eq(make(dir, "fifo", S_IFIFO | 0600), 0);
	ck_assert_int_eq(make_dir(dir, "below"), 0);
	expect_same();
	ck_assert_int_eq(tree_link(&fixture, at(dir, "file"), gpu(0), "hard"), 0);
	ck_assert_int_eq(tree_unlink(&fixture, dir, "file"), 0);
	ck_assert_int_eq(tree_rmdir(&fixture, dir, "below"), 0);
	expect_same();
	ck_assert_int_eq(rename_to(dir, "fifo", gpu(0), "renamed", 0), 0);
	ck_assert_int_eq(rename_to(gpu(0), "renamed", dir, "link", RENAME_EXCHANGE), 0);
	ck_assert_int_eq(rename_to(gpu(0), "hard", gpu(0), "renamed", 0), 0);
	expect_same();
	compact(&fixture);
	expect_same();
	inode_put(&fixture, at(gpu(0), "renamed"), 1);
}
END_TEST

START_TEST(whatever_happens)
{
	struct actor actor = {.random = unit_seed() + (uint64_t)_i};

	for (unsigned step = 0; step < 400; step++) {
		act(&actor, ACTS);
		if (pick(&actor, 60) == 0)
			compact(&fixture);
		if (step % 8 == 7)
			expect_same();
	}
	actor_end(&actor);
	expect_same();
}
END_TEST

int main(void)
{
	TCase *tcase;
	Suite *suite = unit_suite("restore", &tcase, 60);

	tcase_add_checked_fixture(tcase, up, down);
	tcase_add_test(tcase, nothing_but_the_top);
	tcase_add_test(tcase, names_of_every_kind);
	tcase_add_loop_test(tcase, whatever_happens, 0, 16);
	return unit_main(suite);
}
