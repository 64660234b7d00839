/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* The next daemon takes over files in every state, while an allocation or system call fails: it
 * starts with everything, or not at all, and then can be started again. */
#include "tests/unit/failures/daemon.h"
#include "tests/unit/failures/requests.h"

#define OPTIONS "backend=host,host_gpus=2,host_size=64M,spill=host:48M,bar=off"

static struct fs next;
static struct held left;
static struct fdstore_ops left_keeper;

static void filled(unsigned volume, const char *name, struct node *file)
{
	ck_assert_int_eq(do_create(gpu(volume)->ino, name, file), 0);
	ck_assert_int_eq(do_write(file, 0, 10000), 0);
	ck_assert_int_eq(do_write(file, 5 * MIB, 10000), 0);
}

/* Files on a GPU, in system memory, on the disk, in host/, without a name, and small. */
static void make_files(void)
{
	struct node files[6] = {0}, dir = {0}, small = {0};

	ck_assert_int_eq(do_mkdir(gpu(0)->ino, "dir", &dir), 0);
	filled(0, "one", &files[0]);
	filled(0, "two", &files[1]);
	filled(1, "three", &files[2]);
	filled(2, "system", &files[3]);
	filled(2, "moved", &files[4]);
	filled(1, "nameless", &files[5]);
	ck_assert_int_eq(do_set(&files[1], "user.gpumem.resident", "host"), 0);
	ck_assert_int_eq(do_set(&files[2], "user.gpumem.resident", "disk"), 0);
	ck_assert_int_eq(do_set(&files[2], "user.some", "attribute"), 0);
	ck_assert_int_eq(do_set(&dir, "user.gpumem.quota.max_bytes", "8M"), 0);
	ck_assert_int_eq(do_rename(gpu(2)->ino, "moved", gpu(0)->ino, "moved", 0), 0);
	ck_assert_int_eq(do_link(&files[0], dir.ino, "again"), 0);
	ck_assert_int_eq(do_symlink(dir.ino, "link", "target"), 0);
	ck_assert_int_eq(do_unlink(gpu(1)->ino, "nameless"), 0);
	ck_assert_int_eq(do_create(dir.ino, "small", &small), 0);
	ck_assert_int_eq(do_write(&small, 0, 100), 0);
	ck_assert_int_eq(do_release(&small), 0);
	ck_assert_int_eq(do_release(&files[0]), 0);
}

static int next_start(void)
{
	unsigned n = left.n;
	int error = daemon_start(&next, OPTIONS, &left_keeper, FS_MOUNT_KEPT);

	ck_assert(!error || left.n == n);
	return error;
}

static void next_recount(void)
{
	if (next.root)
		recount(&next);
}

static void takeover(void)
{
	scenario_up(OPTIONS);
	make_files();
	uint64_t seed = hash_seed; /* each daemon sets its own */
	char *before = describe(&fixture, DESCRIBE_ALL);

	held_freeze(&held, FREEZE_ALL, &left);
	left_keeper = keeper_of(&left);
	worker_end(); /* the thread's worker belongs to the first daemon */
	next = (struct fs){0};
	recount_all = NULL;
	TRY(next_start());
	recount_all = next_recount;
	next_recount();
	char *after = describe(&next, DESCRIBE_ALL);

	ck_assert(same_text(before, after, stderr));
	journal_watch(&next, &left, &left_keeper);
	TRY((checkpoint(&next), 0));
	free(before);
	free(after);
	daemon_down(&next);
	ck_assert_uint_eq(left.n, 0);
	held_free(&left);
	hash_seed = seed;
	recount_all = daemon_recount;
	scenario_down();
}

int main(void)
{
	return failures_main("failures of a takeover", takeover, false);
}
