/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* Many threads change a tree during repeated checkpoints of its journal: the restored state equals
 * the final state. Also run under TSan. */
#include "fs/file/export.h"
#include "tests/unit/restore_daemon.h"

#define THREADS	    6
#define ROUNDS	    600
#define COMPACTIONS 12
#define DIRS	    4
#define NAMES	    10

static _Atomic unsigned acting;

struct actor {
	pthread_t thread;
	uint64_t random;
};

static void change_bytes(struct actor *actor, struct inode *dir, const char *name)
{
	uint64_t random = unit_random(&actor->random);
	struct inode_call call;
	struct inode *inode;

	if (tree_lookup(&fixture, dir, name, &inode))
		return;
	if (S_ISREG(inode->mode)) {
		inode_call_init(&call, &fixture, inode, worker_copier(&fixture));
		if (random % 3)
			file_write(inode->file, &call.call, "0123456789", 10,
				   random >> 8 & 0x1ffff);
		else
			file_truncate(inode->file, &call.call, random >> 8 & 0xffff);
		inode_touch_write(inode);
	}
	inode_put(&fixture, inode, 1);
}

/* Leases the file's memory, hands the memory out, and ends the lease. */
static void hand_out(struct inode *dir, const char *name)
{
	struct file_chunk chunks[4];
	struct file_place place;
	struct inode_call call;
	struct inode *inode;

	if (tree_lookup(&fixture, dir, name, &inode))
		return;
	inode_call_init(&call, &fixture, inode, worker_copier(&fixture));
	if (S_ISREG(inode->mode) && !inode->volume->system &&
	    file_lease(inode->file, &call.call, FILE_SHARE_WRITE, FILE_MAY_WAIT) == 0) {
		int n = file_export(inode->file, fixture.journal, FILE_SHARE_WRITE, FILE_MAY_WAIT,
				    0, chunks, 4, &place);

		file_chunks_close(chunks, n < 0 ? 0 : (uint32_t)n);
		file_unlease(inode->file, 1);
	}
	inode_put(&fixture, inode, 1);
}

static void change_owner(struct actor *actor, struct inode *dir, const char *name)
{
	struct tree_attrs attrs = {.mask = TREE_MODE | TREE_UID,
				   .mode = 0700,
				   .uid = (uid_t)(unit_random(&actor->random) % 9)};
	struct inode *inode;

	if (tree_lookup(&fixture, dir, name, &inode))
		return;
	tree_set_attrs(&fixture, inode, &attrs);
	inode_put(&fixture, inode, 1);
}

static void link_from(struct inode *from, const char *name, struct inode *to, const char *new_name)
{
	struct inode *inode;

	if (tree_lookup(&fixture, from, name, &inode))
		return;
	int error = tree_link(&fixture, inode, to, new_name);

	inode_put(&fixture, inode, error ? 1 : 2);
}

static void act(struct actor *actor)
{
	uint64_t random = unit_random(&actor->random);
	struct inode *from = dir_or_top(DIRS, unit_random(&actor->random));
	struct inode *to = dir_or_top(DIRS, unit_random(&actor->random));
	char name[16], new_name[16];

	snprintf(name, sizeof(name), "n%u", (unsigned)(random >> 8) % NAMES);
	snprintf(new_name, sizeof(new_name), "n%u", (unsigned)(random >> 24) % NAMES);
	switch (random % 12) {
	case 0:
	case 1:
		make_file(from, name);
		break;
	case 2:
		make_dir(from, name);
		break;
	case 3:
		tree_unlink(&fixture, from, name);
		break;
	case 4:
		tree_rmdir(&fixture, from, name);
		break;
	case 5:
		rename_to(from, name, to, new_name, 0);
		break;
	case 6:
		rename_to(from, name, to, new_name, RENAME_EXCHANGE);
		break;
	case 7:
		link_from(from, name, to, new_name);
		break;
	case 8:
		change_owner(actor, from, name);
		break;
	case 9:
		hand_out(from, name);
		break;
	default:
		change_bytes(actor, from, name);
	}
	inode_put(&fixture, from, 1);
	inode_put(&fixture, to, 1);
}

static void *run(void *pointer)
{
	struct actor *actor = pointer;

	for (int i = 0; i < ROUNDS || atomic_load(&acting); i++)
		act(actor);
	worker_end();
	return NULL;
}

/* Trims every file as its last close would. */
static void trim_all(void)
{
	uint32_t slot = 0;
	struct inode *inode;

	while ((inode = inode_table_next(fixture.inodes, &slot))) {
		struct inode_call call;

		inode_call_init(&call, &fixture, inode, worker_copier(&fixture));
		if (S_ISREG(inode->mode))
			file_trim(inode->file, &call.call);
		inode_put(&fixture, inode, 1);
	}
}

static void expect_same(void)
{
	static struct fs second;
	struct held frozen;
	uint64_t seed = hash_seed;
	char *before = describe(&fixture, DESCRIBE_ALL);

	held_freeze(&held, FREEZE_JOURNAL, &frozen);
	struct fdstore_ops other = held_ops(&frozen);

	ck_assert_int_eq(daemon_up(&second, &other, FS_MOUNT_KEPT), 0);
	char *after = describe(&second, DESCRIBE_ALL);

	ck_assert(same_text(before, after, stderr));
	daemon_down(&second);
	held_free(&frozen);
	hash_seed = seed;
	free(before);
	free(after);
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
	atomic_store(&acting, 1);
	for (unsigned i = 0; i < THREADS; i++) {
		actors[i].random = seed + i;
		ck_assert_int_eq(pthread_create(&actors[i].thread, NULL, run, &actors[i]), 0);
	}
	for (unsigned i = 0; i < COMPACTIONS; i++)
		checkpoint(&fixture);
	atomic_store(&acting, 0);
	for (unsigned i = 0; i < THREADS; i++)
		pthread_join(actors[i].thread, NULL);
	trim_all();
	expect_same();
	checkpoint(&fixture);
	expect_same();
}
END_TEST

int main(void)
{
	TCase *tcase;
	Suite *suite = unit_suite("restore_threads", &tcase, 120);

	tcase_add_checked_fixture(tcase, up, down);
	tcase_add_test(tcase, everything_at_once);
	return unit_main(suite);
}
