/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* Which files leave a full GPU: by priority, by the time of the last use, and between users by
 * their shares. */
#include <errno.h>
#include <stdlib.h>
#include <unistd.h>

#include "fs/attributes/inode_attributes.h"
#include "fs/file/export.h"
#include "fs/file/internal.h"
#include "fs/ledger/ledger.h"
#include "fs/tier/tier.h"
#include "tests/unit/fs_fixture.h"
#include "tests/unit/unit.h"

#define MIB	  (1ULL << 20)
#define FILE_SIZE (20 * MIB) /* three fit into a GPU of 64 MiB */

enum { ALICE = 1001, BOB = 1002 };

static char *data;

static void open_with(char *options)
{
	char *argv[] = {"gpumemfs", "/tmp", "-o", options, "-o", "log_level=error", NULL};

	memset(&fixture, 0, sizeof(fixture));
	ck_assert_int_eq(options_parse(6, argv, &fixture.options), 0);
	log_setup(LOG_LEVEL_ERROR, LOG_TO_TERMINAL);
	fixture.can.max_write = 65536;
	ck_assert_int_eq(fs_open(&fixture), 0);
}

#define OPTIONS "backend=host,host_gpus=2,host_size=64M,spill=host:120M,user_spill=100%"

static void up(void)
{
	open_with(OPTIONS);
	data = malloc(FILE_SIZE);
	memset(data, 7, FILE_SIZE);
}

static void down(void)
{
	free(data);
	fixture_down();
}

static ssize_t fill(struct inode *inode)
{
	struct inode_call call;

	inode_call_init(&call, &fixture, inode, worker_copier(&fixture));
	ck_assert_int_eq(file_truncate(inode->file, &call.call, FILE_SIZE), 0);
	return file_write(inode->file, &call.call, data, FILE_SIZE, 0);
}

static struct inode *made(unsigned volume, const char *name, uid_t uid)
{
	struct inode *inode;

	ck_assert_int_eq(make_file(gpu(volume), name), 0);
	inode = at(gpu(volume), name);
	atomic_store(&inode->uid, uid);
	return inode;
}

/* A file that was used at the time used, the lower the longer ago. */
static struct inode *filled(const char *name, uid_t uid, uint32_t used)
{
	struct inode *inode = made(0, name, uid);

	ck_assert_int_eq(fill(inode), FILE_SIZE);
	atomic_store(&inode->file->used, used);
	return inode;
}

static void set_priority(struct inode *inode, unsigned priority)
{
	struct attr_values attrs = atomic_load(&inode->attrs);

	attrs.priority = priority & 15;
	atomic_store(&inode->attrs, attrs);
}

static bool has_left(struct inode *inode)
{
	return file_bytes_in(inode->file, PLACE_HOST) > 0;
}

START_TEST(longest_unused_first)
{
	struct inode *a = filled("a", ALICE, 5), *b = filled("b", ALICE, 3),
		     *c = filled("c", ALICE, 4), *d = made(0, "d", ALICE);

	ck_assert_uint_eq(tier_counters(&fixture).evictions, 0);
	ck_assert_int_eq(fill(d), FILE_SIZE);
	ck_assert(has_left(b) && !has_left(a) && !has_left(c) && !has_left(d));
	ck_assert_int_eq(fill(made(0, "e", ALICE)), FILE_SIZE);
	ck_assert(has_left(c) && !has_left(a) && !has_left(d));
	ck_assert_uint_gt(tier_counters(&fixture).evictions, 0);
	ck_assert_uint_eq(tier_counters(&fixture).evicted_bytes,
			  file_bytes_in(b->file, PLACE_HOST) + file_bytes_in(c->file, PLACE_HOST));
}
END_TEST

/* The list of victims is older than the use. */
START_TEST(used_since_the_scan)
{
	struct inode *a = filled("a", ALICE, 3), *b = filled("b", ALICE, 4),
		     *c = filled("c", ALICE, 5);
	char byte;

	ck_assert_int_eq(fill(made(0, "d", ALICE)), FILE_SIZE);
	ck_assert(has_left(a) && !has_left(b));
	ck_assert_int_eq(read_from(b, &byte, 1, 0), 1);
	ck_assert_int_eq(fill(made(0, "e", ALICE)), FILE_SIZE);
	ck_assert(has_left(c) && !has_left(b));
}
END_TEST

START_TEST(lower_priority_first)
{
	struct inode *a = filled("a", ALICE, 3), *b = filled("b", ALICE, 4),
		     *c = filled("c", ALICE, 5);
	struct inode *d = made(0, "d", ALICE);

	set_priority(a, 9);
	set_priority(b, 1);
	set_priority(d, 1);
	ck_assert_int_eq(fill(d), FILE_SIZE);
	ck_assert(has_left(c) && !has_left(a) && !has_left(b));
	/* Never for a file of a lower priority: the new file's memory is in the spill. */
	set_priority(d, 2);
	struct inode *e = made(0, "e", ALICE);

	ck_assert_int_eq(fill(e), FILE_SIZE);
	ck_assert(!has_left(a) && !has_left(b) && !has_left(d) && has_left(e));
}
END_TEST

static struct inode *leased;
static unsigned asked;

static void lease(struct inode *inode)
{
	struct inode_call call;

	inode_call_init(&call, &fixture, inode, worker_copier(&fixture));
	ck_assert_int_eq(file_lease(inode->file, &call.call, FILE_SHARE_WRITE, FILE_MAY_WAIT),
			 FILE_LEASE_HOLDS);
}

/* Stands for processes that are told: they end the lease of a file, if there is one. */
static void end_lease(void *owner, const struct volume *volume, uint64_t bytes)
{
	ck_assert_ptr_eq(owner, &asked);
	ck_assert_ptr_eq(volume, &fixture.volumes[0]);
	ck_assert_uint_gt(bytes, 0);
	asked++;
	if (leased)
		file_lease_end(leased->file, FILE_LEASE_HOLDS);
	leased = NULL;
}

/* Writes the file anew until processes have been told of the full GPU, which happens once in a
 * while.
 */
static void fill_until_asked(struct inode *inode)
{
	struct inode_call call;

	inode_call_init(&call, &fixture, inode, worker_copier(&fixture));
	asked = 0;
	UNIT_AWAIT(asked || (file_truncate(inode->file, &call.call, 0), fill(inode), false));
}

/* The requests that find the GPU full go on in the spill; what processes give back serves later
 * requests. */
START_TEST(asks_for_leased_memory)
{
	struct inode *a = filled("a", ALICE, 3), *b = filled("b", ALICE, 4),
		     *c = filled("c", ALICE, 5), *d = made(0, "d", ALICE), *e = made(0, "e", ALICE);

	lease(a);
	lease(b);
	lease(c);
	leased = b;
	tier_ask_by(&fixture, end_lease, &asked);
	ck_assert_int_eq(fill(d), FILE_SIZE);
	ck_assert_uint_eq(asked, 1);
	ck_assert_ptr_null(leased);
	ck_assert(!has_left(a) && !has_left(c));
	ck_assert_int_eq(fill(e), FILE_SIZE);
	ck_assert(has_left(b) && !has_left(a) && !has_left(c) && !has_left(e));
	lease(e);
	/* Told again and again, as long as all is leased. */
	fill_until_asked(d);
	tier_ask_by(&fixture, NULL, NULL);
	leased = a;
	asked = 0;
	ck_assert_int_eq(fill(made(0, "f", ALICE)), FILE_SIZE);
	ck_assert_uint_eq(asked, 0);
	ck_assert(!has_left(a));
	file_lease_end(a->file, FILE_LEASE_HOLDS);
	file_lease_end(c->file, FILE_LEASE_HOLDS);
	file_lease_end(e->file, FILE_LEASE_HOLDS);
}
END_TEST

/* Memory that is given back could not leave. */
START_TEST(asks_for_nothing_that_cannot_leave)
{
	struct inode *a = filled("a", ALICE, 3);

	lease(a);
	filled("b", ALICE, 4), filled("c", ALICE, 5);
	for (char name[2] = "u"; name[0] <= 'z'; name[0]++) {
		struct inode *inode = made(0, name, ALICE);
		struct attr_values attrs = atomic_load(&inode->attrs);

		attrs.resident = RESIDENT_HOST;
		atomic_store(&inode->attrs, attrs);
		fill(inode);
	}
	leased = a;
	tier_ask_by(&fixture, end_lease, &asked);
	ck_assert_int_lt(fill(made(0, "d", ALICE)), FILE_SIZE);
	ck_assert_uint_eq(asked, 0);
	file_lease_end(a->file, FILE_LEASE_HOLDS);
}
END_TEST

START_TEST(leased_files_stay)
{
	struct inode *a = filled("a", ALICE, 3), *b = filled("b", ALICE, 4),
		     *c = filled("c", ALICE, 5);

	lease(a);
	ck_assert_int_eq(fill(made(0, "d", ALICE)), FILE_SIZE);
	ck_assert(!has_left(a) && has_left(b) && !has_left(c));
	file_lease_end(a->file, FILE_LEASE_HOLDS);
}
END_TEST

/* A long copy of one file holds up no other file, if another can leave. */
START_TEST(busy_files_are_passed_over)
{
	struct inode *a = filled("a", ALICE, 3), *b = filled("b", ALICE, 4);

	filled("c", ALICE, 5);
	brlock_token token = brlock_read_lock(&a->file->layout_lock);

	ck_assert_int_eq(fill(made(0, "d", ALICE)), FILE_SIZE);
	brlock_read_unlock(&a->file->layout_lock, token);
	ck_assert(has_left(b) && !has_left(a));
}
END_TEST

START_TEST(other_users_keep_their_share)
{
	struct inode *a = filled("a", ALICE, 3), *b = filled("b", BOB, 4), *c = filled("c", BOB, 5),
		     *d = made(0, "d", ALICE);

	/* Two users: half of 64 MiB for each. Bob has 40 MiB and can lose 8 MiB. */
	set_priority(b, 9);
	set_priority(c, 9);
	ck_assert_int_eq(fill(d), FILE_SIZE);
	ck_assert(has_left(a));
	for (int i = 0; i < 4; i++) {
		char name[2] = {(char)('e' + i), 0};

		ck_assert_int_eq(fill(made(0, name, ALICE)), FILE_SIZE);
	}
	ck_assert_uint_ge(file_bytes_in(b->file, PLACE_GPU) + file_bytes_in(c->file, PLACE_GPU),
			  30 * MIB);
	/* Bob drives out what Alice has beyond her share. */
	uint64_t before = file_bytes_in(b->file, PLACE_GPU) + file_bytes_in(c->file, PLACE_GPU);

	ck_assert_int_eq(fill(b), FILE_SIZE);
	ck_assert_uint_ge(file_bytes_in(b->file, PLACE_GPU) + file_bytes_in(c->file, PLACE_GPU),
			  before);
}
END_TEST

/* Shares of 48 and 16 MiB, which Bob has exceeded, but Alice has not. */
START_TEST(shares_have_weights)
{
	struct inode *a, *b, *c;

	fixture_down();
	open_with("backend=host,host_gpus=2,host_size=64M,spill=host:140M,user_spill=100%,"
		  "shares=1001=3:1003=1000");
	a = filled("a", ALICE, 3), b = filled("b", BOB, 4), c = filled("c", BOB, 5);
	set_priority(a, 9);
	ck_assert_int_eq(fill(made(0, "d", ALICE)), FILE_SIZE);
	ck_assert_int_eq(fill(made(0, "e", ALICE)), FILE_SIZE);
	ck_assert_uint_le(file_bytes_in(b->file, PLACE_GPU) + file_bytes_in(c->file, PLACE_GPU),
			  18 * MIB);
	/* Not below Bob's share. */
	for (int i = 0; i < 4; i++) {
		char name[2] = {(char)('f' + i), 0};

		ck_assert_int_eq(fill(made(0, name, ALICE)), FILE_SIZE);
	}
	ck_assert_uint_ge(file_bytes_in(b->file, PLACE_GPU) + file_bytes_in(c->file, PLACE_GPU),
			  14 * MIB);
}
END_TEST

/* A user without memory on a GPU that another user has filled gets a share. */
START_TEST(newcomers_have_a_share)
{
	struct inode *a = filled("a", ALICE, 3), *d, *rest = made(0, "rest", ALICE);
	struct inode_call call;

	filled("b", ALICE, 4), filled("c", ALICE, 5);
	/* Not a byte is free for Bob. */
	inode_call_init(&call, &fixture, rest, worker_copier(&fixture));
	ck_assert_int_eq(file_allocate(rest->file, &call.call, 0, 0, 64 * MIB - 3 * FILE_SIZE), 0);
	d = made(0, "d", BOB);
	ck_assert_int_eq(fill(d), FILE_SIZE);
	ck_assert(has_left(a) && !has_left(d));
}
END_TEST

/* Files of Bob, who has less than his share, that were unused for longer than all of Alice's. */
static void crowd(unsigned files)
{
	char name[16];

	for (unsigned i = 0; i < files; i++) {
		snprintf(name, sizeof(name), "s%u", i);
		struct inode *inode = made(0, name, BOB);

		ck_assert_int_eq(write_to(inode, data, 4096, 0), 4096);
		atomic_store(&inode->file->used, 1);
	}
}

static void alices_oldest_leaves(void)
{
	struct inode *a = filled("a", ALICE, 3), *b = filled("b", ALICE, 4), *c;

	ck_assert(!has_left(a) && !has_left(b));
	c = filled("c", ALICE, 5);
	ck_assert(has_left(a) && !has_left(b) && !has_left(c));
	lease(c);
	lease(a);
	ck_assert(has_left(b) && !has_left(a) && !has_left(c));
	ck_assert_uint_eq(ledger_count(&fixture, BOB, LEDGER_SPILL_HOST), 0);
	file_lease_end(a->file, FILE_LEASE_HOLDS);
	file_lease_end(c->file, FILE_LEASE_HOLDS);
}

START_TEST(many_files_of_another_user)
{
	fixture_down();
	open_with("backend=host,host_gpus=1,host_size=60M,spill=host:120M,user_spill=100%");
	crowd(300);
	alices_oldest_leaves();
}
END_TEST

START_TEST(a_multitude_of_files_of_another_user)
{
	fixture_down();
	open_with("backend=host,host_gpus=1,host_size=448M,spill=host:120M,user_spill=100%,"
		  "shares=1002=9");
	crowd(100000);
	alices_oldest_leaves();
}
END_TEST

START_TEST(only_this_gpu)
{
	struct inode *other = made(1, "other", ALICE);

	ck_assert_int_eq(fill(other), FILE_SIZE);
	atomic_store(&other->file->used, 1);
	filled("a", ALICE, 3), filled("b", ALICE, 4), filled("c", ALICE, 5);
	ck_assert_int_eq(fill(made(0, "d", ALICE)), FILE_SIZE);
	ck_assert(!has_left(other));
}
END_TEST

START_TEST(both_places_full)
{
	struct inode *last = NULL;
	ssize_t n = FILE_SIZE;

	for (int i = 0; i < 20 && n == FILE_SIZE; i++) {
		char name[2] = {(char)('a' + i), 0};

		last = made(0, name, ALICE);
		n = fill(last);
	}
	ck_assert_int_lt(n, FILE_SIZE);
	ck_assert(n == -ENOSPC || n > 0);
	ck_assert_uint_le(atomic_load(&fixture.budgets[PLACE_HOST].held), 120 * MIB);
	ck_assert_uint_gt(atomic_load(&fixture.budgets[PLACE_HOST].held), 100 * MIB);
	for (char name[2] = "a"; n && is_there(gpu(0), name) && at(gpu(0), name) != last;
	     name[0]++) {
		char *found = malloc(FILE_SIZE);

		ck_assert_int_eq(read_from(at(gpu(0), name), found, FILE_SIZE, 0), FILE_SIZE);
		ck_assert_mem_eq(found, data, FILE_SIZE);
		free(found);
	}
	/* Room again after a removal. */
	ck_assert_int_eq(tree_unlink(&fixture, gpu(0), "a"), 0);
	ck_assert_int_eq(tree_unlink(&fixture, gpu(0), "b"), 0);
	ck_assert_int_eq(fill(made(0, "again", ALICE)), FILE_SIZE);
}
END_TEST

static uint64_t spilled_by(uid_t uid)
{
	return ledger_count(&fixture, uid, LEDGER_SPILL_HOST);
}

static uint64_t on_disk_by(uid_t uid)
{
	return ledger_count(&fixture, uid, LEDGER_SPILL_DISK);
}

/* Fills files until a write is refused: the error, or 0 after a short write. */
static int fill_until_refused(uid_t uid, char first)
{
	ssize_t n = FILE_SIZE;

	for (char name[2] = {first, 0}; n == FILE_SIZE && name[0] <= 'z'; name[0]++)
		n = fill(made(0, name, uid));
	ck_assert_int_lt(n, FILE_SIZE);
	return n < 0 ? (int)n : 0;
}

/* The user's files stay, and the memory of other users is not short for that. */
START_TEST(users_have_a_part_of_the_spill)
{
	char byte;

	fixture_down();
	open_with("backend=host,host_gpus=2,host_size=64M,spill=host:120M,user_spill=25%");
	int error = fill_until_refused(ALICE, 'a');

	ck_assert(!error || error == -EDQUOT);
	ck_assert_int_eq(write_to(made(0, "last", ALICE), data, 8 * MIB, 0), -EDQUOT);
	ck_assert_uint_le(spilled_by(ALICE), 30 * MIB);
	ck_assert_uint_gt(spilled_by(ALICE), 26 * MIB);
	ck_assert_uint_eq(spilled_by(ALICE), pool_usage(fixture.volumes[0].spill).span_bytes);
	/* Bob's share of the GPU is taken by files that cannot leave, but the spill is not. */
	struct inode *bobs = made(0, "bob", BOB);

	ck_assert_int_eq(fill(bobs), FILE_SIZE);
	ck_assert_uint_eq(spilled_by(BOB), file_bytes_in(bobs->file, PLACE_HOST));
	ck_assert_uint_le(spilled_by(ALICE), 30 * MIB);
	/* Root is not bound. */
	for (int i = 0; i < 2; i++)
		ck_assert_int_eq(fill(made(0, i ? "y" : "x", 0)), FILE_SIZE);
	ck_assert_uint_gt(spilled_by(0), 30 * MIB);
	ck_assert_int_eq(read_from(at(gpu(0), "a"), &byte, 1, 0), 1);
}
END_TEST

/* Memory is counted for the owner at each time, and is counted off with the file. */
START_TEST(owners_are_charged_for_the_spill)
{
	struct inode *a = filled("a", ALICE, 3), *b = filled("b", ALICE, 4);
	struct tree_attrs to_bob = {.mask = TREE_UID, .uid = BOB};
	struct copier *copier = worker_copier(&fixture);

	ck_assert_int_eq(inode_attr_set(&fixture, copier, a, ATTR_RESIDENT, "host", 4, ALICE), 0);
	ck_assert_int_eq(inode_attr_set(&fixture, copier, b, ATTR_RESIDENT, "host", 4, ALICE), 0);
	ck_assert_uint_eq(spilled_by(ALICE),
			  file_bytes_in(a->file, PLACE_HOST) + file_bytes_in(b->file, PLACE_HOST));
	tree_set_attrs(&fixture, a, &to_bob);
	ck_assert_uint_eq(spilled_by(ALICE), file_bytes_in(b->file, PLACE_HOST));
	ck_assert_uint_eq(spilled_by(BOB), file_bytes_in(a->file, PLACE_HOST));
	ck_assert_int_eq(rename_to(gpu(0), "b", gpu(1), "b", 0), 0);
	ck_assert_uint_eq(spilled_by(ALICE), file_bytes_in(b->file, PLACE_HOST));
	ck_assert_uint_gt(spilled_by(ALICE), 0);
	ck_assert_int_eq(inode_attr_set(&fixture, copier, a, ATTR_RESIDENT, "gpu", 3, BOB), 0);
	ck_assert_uint_eq(spilled_by(BOB), 0);
	ck_assert_int_eq(tree_unlink(&fixture, gpu(1), "b"), 0);
	ck_assert_uint_eq(spilled_by(ALICE), 0);
}
END_TEST

/* A file that is brought back does not drive out itself. */
START_TEST(coming_back)
{
	struct inode *a = filled("a", ALICE, 3);
	struct copier *copier = worker_copier(&fixture);

	filled("b", ALICE, 4), filled("c", ALICE, 5);
	ck_assert_int_eq(fill(made(0, "d", ALICE)), FILE_SIZE);
	ck_assert(has_left(a));
	ck_assert_int_eq(inode_attr_set(&fixture, copier, a, ATTR_RESIDENT, "gpu", 3, ALICE), 0);
	ck_assert(!has_left(a));
	ck_assert_int_eq(inode_attr_set(&fixture, copier, a, ATTR_RESIDENT, "host", 4, ALICE), 0);
	ck_assert_uint_eq(file_bytes_in(a->file, PLACE_GPU), 0);
	ck_assert_int_eq(inode_attr_set(&fixture, copier, gpu(2), ATTR_RESIDENT, "host", 4, 0),
			 -ENOTSUP);
}
END_TEST

/* Fills the GPU and the spill with files of 20 MiB, and returns the number of files. */
static unsigned fill_all(uid_t uid)
{
	unsigned n = 0;

	for (ssize_t bytes = FILE_SIZE; bytes == FILE_SIZE; n++) {
		char name[16];

		snprintf(name, sizeof(name), "f%u", n);
		struct inode *inode = made(0, name, uid);

		bytes = fill(inode);
		atomic_store(&inode->file->used, n + 1);
	}
	return n;
}

static void check_bytes(struct inode *inode)
{
	char *found = malloc(FILE_SIZE);

	ck_assert_int_eq(read_from(inode, found, FILE_SIZE, 0), FILE_SIZE);
	ck_assert_mem_eq(found, data, FILE_SIZE);
	free(found);
}

static struct inode *numbered(unsigned n)
{
	char name[16];

	snprintf(name, sizeof(name), "f%u", n);
	return at(gpu(0), name);
}

/* Each file but the last, which was cut, comes to the full GPU, again and again. */
static void swap_all(unsigned n)
{
	const struct pool *pool = fixture.volumes[0].pool;

	for (unsigned i = 0; i < 3 * (n - 1); i++) {
		struct inode *inode = numbered(i % (n - 1));

		ck_assert_int_eq(inode_attr_set(&fixture, worker_copier(&fixture), inode,
						ATTR_RESIDENT, "gpu", 3, ALICE),
				 0);
		ck_assert_uint_eq(file_bytes_in(inode->file, PLACE_GPU), FILE_SIZE);
		check_bytes(inode);
		ck_assert_uint_le(pool_owed(pool), fixture.budgets[PLACE_HOST].spare);
	}
	for (unsigned i = 0; i < n - 1; i++)
		check_bytes(numbered(i));
}

START_TEST(full_places_exchange)
{
	unsigned n = fill_all(ALICE);
	struct inode *inode;

	ck_assert_uint_gt(fixture.budgets[PLACE_HOST].spare, 0);
	ck_assert_uint_le(atomic_load(&fixture.budgets[PLACE_HOST].held),
			  fixture.budgets[PLACE_HOST].size - fixture.budgets[PLACE_HOST].spare);
	inode = numbered(0);
	ck_assert_uint_gt(file_bytes_in(inode->file, PLACE_HOST), 0);
	lease(inode);
	ck_assert_uint_eq(file_bytes_in(inode->file, PLACE_GPU), FILE_SIZE);
	file_lease_end(inode->file, FILE_LEASE_HOLDS);
	swap_all(n);
	/* The room that is kept for the next exchange goes to no other file. */
	ck_assert_int_lt(fill(made(0, "more", ALICE)), FILE_SIZE);
	ck_assert_int_eq(tree_unlink(&fixture, gpu(0), "more"), 0);
	swap_all(n);
	ck_assert_uint_le(atomic_load(&fixture.budgets[PLACE_HOST].held),
			  fixture.budgets[PLACE_HOST].size);
	for (unsigned i = 0; i < n; i++) {
		char name[16];

		snprintf(name, sizeof(name), "f%u", i);
		ck_assert_int_eq(tree_unlink(&fixture, gpu(0), name), 0);
	}
	ck_assert_uint_eq(pool_owed(fixture.volumes[0].pool), 0);
}
END_TEST

/* A user that may have no more of the spill, which is not full. */
START_TEST(full_parts_exchange)
{
	fixture_down();
	open_with("backend=host,host_gpus=2,host_size=64M,spill=host:400M,user_spill=60M");
	unsigned n = fill_all(ALICE);

	swap_all(n);
	ck_assert_uint_le(ledger_count(&fixture, ALICE, LEDGER_SPILL_HOST), 62 * MIB);
}
END_TEST

START_TEST(used_files_come_back)
{
	struct inode *a = filled("a", ALICE, 3), *c;
	struct copier *copier = worker_copier(&fixture);
	char byte;

	filled("b", ALICE, 4);
	c = filled("c", ALICE, 5);

	ck_assert_int_eq(inode_attr_set(&fixture, copier, c, ATTR_RESIDENT, "host", 4, ALICE), 0);
	ck_assert_int_eq(fill(made(0, "d", ALICE)), FILE_SIZE);
	ck_assert_int_eq(fill(made(0, "e", ALICE)), FILE_SIZE);
	ck_assert(has_left(a) && has_left(c));
	ck_assert_int_eq(tree_unlink(&fixture, gpu(0), "d"), 0);
	ck_assert_int_eq(tree_unlink(&fixture, gpu(0), "e"), 0);
	atomic_store(&a->file->used, 2);
	/* Files that belong there, and files that nobody uses, stay. */
	ck_assert_int_eq(read_from(c, &byte, 1, 0), 1);
	ck_assert_int_eq(read_from(a, &byte, 1, 0), 1);
	UNIT_AWAIT(!has_left(a));
	UNIT_AWAIT(tier_counters(&fixture).returned_bytes);
	ck_assert(has_left(c));
	ck_assert_int_eq(file_away(a->file), FILE_HERE);
}
END_TEST

/* There is no room for the file while the GPU is full. */
START_TEST(files_stay_away)
{
	struct inode *a = filled("a", ALICE, 3);
	char byte;

	filled("b", ALICE, 4), filled("c", ALICE, 5);
	ck_assert_int_eq(fill(made(0, "d", ALICE)), FILE_SIZE);
	ck_assert(has_left(a));
	atomic_store(&a->file->used, 2);
	ck_assert_int_eq(read_from(a, &byte, 1, 0), 1);
	ck_assert_int_eq(file_away(a->file), FILE_AWAY_USED);
	usleep(1200000);
	ck_assert(has_left(a));
}
END_TEST

/* Other programs take the memory of the GPU: here a pool of the same device does. */
START_TEST(other_programs_get_memory)
{
	struct device_memory memory;
	struct chunk *chunk;

	fixture_down();
	open_with(OPTIONS ",keep_free=16M");
	struct device *device = fixture.volumes[0].device;
	struct inode *a = filled("a", ALICE, 3);

	filled("b", ALICE, 4);
	ck_assert_int_eq(chunk_new(device, PLACE_GPU, 16 * MIB, &chunk), 0);
	ck_assert(!has_left(a));
	UNIT_AWAIT(device_memory(device, &memory) < 0 || memory.free >= 16 * MIB);
	ck_assert_uint_ge(memory.free, 16 * MIB);
	ck_assert(has_left(a));
	chunk_free(chunk);
}
END_TEST

static char disk_dir[32];

static void open_with_disk(const char *spill)
{
	char options[256];

	fixture_down();
	strcpy(disk_dir, "/dev/shm/gpumemfs-tier-XXXXXX");
	ck_assert_ptr_nonnull(mkdtemp(disk_dir));
	snprintf(options, sizeof(options), "backend=host,host_gpus=2,host_size=64M,%s,spool=%s",
		 spill, disk_dir);
	open_with(options);
}

static void close_with_disk(void)
{
	char remove[sizeof(disk_dir) + 16];

	fixture_down();
	open_with(OPTIONS);
	snprintf(remove, sizeof(remove), "rm -r %s", disk_dir);
	ck_assert_int_eq(system(remove), 0);
}

/* Files that leave system memory for the disk, the longest unused first, so that others can leave
 * the GPU. */
START_TEST(system_memory_is_full_too)
{
	struct copier *copier;

	open_with_disk("spill=host:44M,disk:200M,user_spill=100%");
	struct inode *a = filled("a", ALICE, 3), *b = filled("b", ALICE, 4),
		     *c = filled("c", ALICE, 5), *last = NULL;

	for (int i = 0; i < 3; i++) {
		char name[2] = {(char)('d' + i), 0};

		last = filled(name, ALICE, 6 + (uint32_t)i);
	}
	ck_assert_uint_gt(file_bytes_in(a->file, PLACE_DISK), 0);
	ck_assert_uint_eq(file_bytes_in(b->file, PLACE_DISK), 0);
	ck_assert_uint_eq(file_bytes_in(c->file, PLACE_DISK), 0);
	ck_assert(has_left(b));
	ck_assert_uint_eq(file_bytes_in(last->file, PLACE_GPU), FILE_SIZE);
	ck_assert_uint_ge(atomic_load(&fixture.volumes[0].moved[PLACE_DISK]),
			  file_bytes_in(a->file, PLACE_DISK));
	ck_assert_uint_le(atomic_load(&fixture.budgets[PLACE_HOST].held), 44 * MIB);

	/* By hand: to the disk, to system memory, which is full, and back. */
	copier = worker_copier(&fixture);
	ck_assert_int_eq(inode_attr_set(&fixture, copier, c, ATTR_RESIDENT, "disk", 4, ALICE), 0);
	ck_assert_uint_eq(file_bytes_in(c->file, PLACE_DISK), FILE_SIZE);
	ck_assert_int_eq(inode_attr_set(&fixture, copier, last, ATTR_RESIDENT, "host", 4, ALICE),
			 0);
	ck_assert_uint_eq(file_bytes_in(last->file, PLACE_HOST), FILE_SIZE);
	ck_assert_int_eq(inode_attr_set(&fixture, copier, a, ATTR_RESIDENT, "gpu", 3, ALICE), 0);
	ck_assert_uint_eq(file_bytes_in(a->file, PLACE_GPU), FILE_SIZE);
	for (char name[2] = "a"; name[0] <= 'f'; name[0]++) {
		char *found = malloc(FILE_SIZE);

		ck_assert_int_eq(read_from(at(gpu(0), name), found, FILE_SIZE, 0), FILE_SIZE);
		ck_assert_mem_eq(found, data, FILE_SIZE);
		free(found);
	}
	close_with_disk();
}
END_TEST

/* A user that has a part of system memory goes on with a part of the disk. */
START_TEST(users_have_a_part_of_the_disk)
{
	open_with_disk("spill=host:80M,disk:90M,user_spill=40M");
	struct inode *a = filled("a", ALICE, 3), *stays = filled("b", ALICE, 4), *bobs;

	set_priority(stays, 9);
	int error = fill_until_refused(ALICE, 'c');

	ck_assert(!error || error == -EDQUOT);
	ck_assert_uint_le(spilled_by(ALICE), 40 * MIB);
	ck_assert_uint_gt(spilled_by(ALICE), 30 * MIB);
	ck_assert_uint_le(on_disk_by(ALICE), 40 * MIB);
	ck_assert_uint_gt(on_disk_by(ALICE), 30 * MIB);
	ck_assert_uint_eq(file_bytes_in(a->file, PLACE_DISK), FILE_SIZE);
	ck_assert_uint_eq(on_disk_by(ALICE), pool_usage(fixture.volumes[0].disk).span_bytes);
	ck_assert_int_eq(write_to(made(0, "last", ALICE), data, 8 * MIB, 0), -EDQUOT);
	/* Nor by hand. */
	ck_assert_uint_eq(file_bytes_in(stays->file, PLACE_GPU), FILE_SIZE);
	ck_assert_int_eq(inode_attr_set(&fixture, worker_copier(&fixture), stays, ATTR_RESIDENT,
					"disk", 4, ALICE),
			 -EDQUOT);
	bobs = made(0, "bob", BOB);
	ck_assert_int_eq(fill(bobs), FILE_SIZE);
	ck_assert_uint_eq(spilled_by(BOB), file_bytes_in(bobs->file, PLACE_HOST));
	for (char name[2] = "a"; name[0] <= 'z'; name[0]++)
		tree_unlink(&fixture, gpu(0), name);
	tree_unlink(&fixture, gpu(0), "last");
	ck_assert_uint_eq(spilled_by(ALICE), 0);
	ck_assert_uint_eq(on_disk_by(ALICE), 0);
	close_with_disk();
}
END_TEST

/* For a user that may have no more of system memory, files of the same user leave it, although
 * another user's file was unused for longer. */
START_TEST(users_make_room_for_themselves)
{
	open_with_disk("spill=host:80M,disk:90M,user_spill=40M");
	struct inode *bobs = filled("bob", BOB, 1), *a = filled("a", ALICE, 3);

	ck_assert_int_eq(
	    inode_attr_set(&fixture, worker_copier(&fixture), bobs, ATTR_RESIDENT, "host", 4, BOB),
	    0);
	for (char name[2] = "b"; name[0] < 'f'; name[0]++)
		filled(name, ALICE, (uint32_t)name[0]);
	ck_assert_int_eq(tier_free(&fixture, &fixture.volumes[0], 30 * MIB), 0);
	ck_assert_uint_eq(file_bytes_in(bobs->file, PLACE_HOST), FILE_SIZE);
	ck_assert_uint_eq(file_bytes_in(a->file, PLACE_DISK), FILE_SIZE);
	ck_assert_uint_le(spilled_by(ALICE), 40 * MIB);
	close_with_disk();
}
END_TEST

int main(void)
{
	TCase *tests;
	Suite *suite = unit_suite("tier", &tests, 60);

	tcase_add_checked_fixture(tests, up, down);
	tcase_add_test(tests, longest_unused_first);
	tcase_add_test(tests, used_since_the_scan);
	tcase_add_test(tests, lower_priority_first);
	tcase_add_test(tests, asks_for_leased_memory);
	tcase_add_test(tests, asks_for_nothing_that_cannot_leave);
	tcase_add_test(tests, leased_files_stay);
	tcase_add_test(tests, busy_files_are_passed_over);
	tcase_add_test(tests, other_users_keep_their_share);
	tcase_add_test(tests, shares_have_weights);
	tcase_add_test(tests, newcomers_have_a_share);
	tcase_add_test(tests, many_files_of_another_user);
	tcase_add_test(tests, a_multitude_of_files_of_another_user);
	tcase_add_test(tests, only_this_gpu);
	tcase_add_test(tests, both_places_full);
	tcase_add_test(tests, users_have_a_part_of_the_spill);
	tcase_add_test(tests, owners_are_charged_for_the_spill);
	tcase_add_test(tests, coming_back);
	tcase_add_test(tests, full_places_exchange);
	tcase_add_test(tests, full_parts_exchange);
	tcase_add_test(tests, used_files_come_back);
	tcase_add_test(tests, files_stay_away);
	tcase_add_test(tests, other_programs_get_memory);
	tcase_add_test(tests, system_memory_is_full_too);
	tcase_add_test(tests, users_have_a_part_of_the_disk);
	tcase_add_test(tests, users_make_room_for_themselves);
	return unit_main(suite);
}
