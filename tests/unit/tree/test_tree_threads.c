/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* Many threads change names at once, in the same and in different directories: afterwards every
 * count agrees with the tree. Also run under TSan. */
#include <errno.h>
#include <pthread.h>
#include <stdio.h>

#include "fs/tree/inode_table.h"
#include "tests/unit/fs_fixture.h"
#include "tests/unit/recount.h"
#include "tests/unit/unit.h"

#define THREADS 6
#define ROUNDS	4000
#define DIRS	5
#define NAMES	12

struct actor {
	pthread_t thread;
	uint64_t random, offset;
	unsigned failures; /* errors that no thread may get */
};

static bool expected(int error)
{
	switch (-error) {
	case 0:
	case ENOENT:
	case EEXIST:
	case EISDIR:
	case ENOTDIR:
	case ENOTEMPTY:
	case EINVAL:
	case EXDEV:
	case EDQUOT:
	case EPERM:
		return true;
	default:
		return false;
	}
}

static int link_from(struct inode *from, const char *name, struct inode *to, const char *new_name)
{
	struct inode *inode;
	int error = tree_lookup(&fixture, from, name, &inode);

	if (error)
		return error;
	error = tree_link(&fixture, inode, to, new_name);
	inode_put(&fixture, inode, error ? 1 : 2);
	return error;
}

/* Each thread writes at its own place, because races for a byte are not the matter of the test. */
static int write_some(struct inode *dir, const char *name, uint64_t offset)
{
	struct inode *inode;
	int error = tree_lookup(&fixture, dir, name, &inode);

	if (error)
		return error;
	if (S_ISREG(inode->mode)) {
		ssize_t n = write_to(inode, "0123456789", 10, offset);

		/* A file that loses its name meanwhile is emptied, but no write to the file fails.
		 */
		error = n == 10 || n == -EDQUOT ? 0 : -EIO;
	}
	inode_put(&fixture, inode, 1);
	return error;
}

static int act(struct actor *actor)
{
	uint64_t random = unit_random(&actor->random);
	struct inode *from = dir_or_top(DIRS, unit_random(&actor->random));
	struct inode *to = dir_or_top(DIRS, unit_random(&actor->random));
	char name[16], new_name[16], path[256];
	int error = 0;

	snprintf(name, sizeof(name), "n%u", (unsigned)(random >> 8) % NAMES);
	snprintf(new_name, sizeof(new_name), "n%u", (unsigned)(random >> 24) % NAMES);
	switch (random % 10) {
	case 0:
	case 1:
		error = make_file(from, name);
		break;
	case 2:
		error = make_dir(from, name);
		break;
	case 3:
		error = tree_unlink(&fixture, from, name);
		break;
	case 4:
		error = tree_rmdir(&fixture, from, name);
		break;
	case 5:
		error = rename_to(from, name, to, new_name,
				  unit_random(&actor->random) % 2 ? RENAME_WHITEOUT : 0);
		break;
	case 6:
		error = rename_to(from, name, to, new_name, RENAME_EXCHANGE);
		break;
	case 7:
		error = link_from(from, name, to, new_name);
		break;
	case 8:
		error = write_some(from, name, actor->offset);
		break;
	default:
		tree_path(&fixture, from, path, sizeof(path));
	}
	inode_put(&fixture, from, 1);
	inode_put(&fixture, to, 1);
	return error;
}

static void *run(void *pointer)
{
	struct actor *actor = pointer;

	for (int i = 0; i < ROUNDS; i++) {
		int error = act(actor);

		if (!expected(error)) {
			fprintf(stderr, "unexpected: %s\n", strerror(-error));
			actor->failures++;
		}
	}
	worker_end();
	return NULL;
}

START_TEST(everything_at_once)
{
	struct actor actors[THREADS];
	uint64_t seed = unit_seed();

	for (unsigned i = 0; i < DIRS; i++) {
		char name[16];

		snprintf(name, sizeof(name), "dir%u", i);
		ck_assert_int_eq(make_dir(gpu(0), name), 0);
	}
	at(gpu(0), "dir0")->dir->max_files = 6;
	at(gpu(0), "dir1")->dir->max_bytes = 20000;
	for (unsigned i = 0; i < THREADS; i++) {
		actors[i] = (struct actor){.random = seed + i, .offset = 5000 + i * 64};
		ck_assert_int_eq(pthread_create(&actors[i].thread, NULL, run, &actors[i]), 0);
	}
	for (unsigned i = 0; i < THREADS; i++) {
		pthread_join(actors[i].thread, NULL);
		ck_assert_uint_eq(actors[i].failures, 0);
	}
	uint64_t inodes = 1 + fixture.n_volumes;

	for (unsigned i = 0; i < 2; i++) {
		struct tally sum = {0};

		tally(gpu(i), &sum);
		inodes += sum.inodes;
		ck_assert_int_eq(gpu(i)->dir->rfiles, sum.files);
		ck_assert_int_eq(gpu(i)->dir->rbytes, sum.bytes);
		ck_assert_uint_eq(pool_usage(fixture.volumes[i].pool).span_bytes,
				  (uint64_t)sum.bytes);
	}
	ck_assert_uint_eq(inode_table_count(fixture.inodes), inodes);
	recount(&fixture);
}
END_TEST

static void *create_many(void *pointer)
{
	struct inode *dir = pointer;
	unsigned made = 0;
	char name[32];

	for (int i = 0; i < 500; i++) {
		snprintf(name, sizeof(name), "%lx.%d", (unsigned long)pthread_self(), i);
		made += make_file(dir, name) == 0;
	}
	worker_end();
	return (void *)(uintptr_t)made;
}

START_TEST(a_quota_holds_in_a_race)
{
	pthread_t threads[THREADS];
	uintptr_t made = 0;

	ck_assert_int_eq(make_dir(gpu(0), "q"), 0);
	struct inode *dir = at(gpu(0), "q");

	dir->dir->max_files = 1000;
	for (unsigned i = 0; i < THREADS; i++)
		pthread_create(&threads[i], NULL, create_many, dir);
	for (unsigned i = 0; i < THREADS; i++) {
		void *result;

		pthread_join(threads[i], &result);
		made += (uintptr_t)result;
	}
	ck_assert_uint_le(made, 1000);
	ck_assert_uint_ge(made, 1000 - THREADS); /* colliding threads may all be refused */
	ck_assert_int_eq(dir->dir->rfiles, (int64_t)made);
}
END_TEST

int main(void)
{
	TCase *tests;
	Suite *suite = unit_suite("tree under threads", &tests, 240);

	tcase_add_checked_fixture(tests, fixture_up, fixture_down);
	tcase_add_test(tests, everything_at_once);
	tcase_add_test(tests, a_quota_holds_in_a_race);
	return unit_main(suite);
}
