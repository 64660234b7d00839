/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* A daemon is stopped during a restore, at any store to the journal and any call to the fdstore of
 * its descriptors: the next daemon has the same state as if the stopped daemon had never run. */
#include "tests/unit/poison.h" /* the actor writes lower bytes */
#include "tests/unit/restore_actor.h"

/* Each frozen state is a copy of all memory. */
#define FROZEN_MAX 40

static struct held held;
static struct fdstore_ops fdstore;

/* The daemon that is stopped, its held descriptors, and the frozen state at each point. */
static struct fs second;
static struct held second_held, frozen[FROZEN_MAX];
static pthread_mutex_t frozen_lock = PTHREAD_MUTEX_INITIALIZER;
static unsigned n_frozen, points, each;
static bool freezing;

static void freeze(void *of)
{
	(void)of;
	scoped_lock(&frozen_lock);
	if (freezing && points++ % each == 0 && n_frozen < FROZEN_MAX)
		held_freeze(&second_held, FREEZE_ALL, &frozen[n_frozen++]);
}

/* Sets the fault point as soon as the daemon has a journal, which the restore creates. */
static void come_by(void)
{
	if (second.journal)
		second.journal->fault = freeze;
	freeze(NULL);
}

static int hold(void *of, uint64_t id, int fd)
{
	int rc = held_hold(of, id, fd);

	come_by();
	return rc;
}

static void drop(void *of, uint64_t id)
{
	come_by();
	held_drop(of, id);
	come_by();
}

static int take(void *of, uint64_t id)
{
	come_by();
	return held_take(of, id);
}

static int walk(void *of, int (*one)(uint64_t id, int fd, void *arg), void *arg)
{
	come_by();
	return held_each(of, one, arg);
}

static void up(void)
{
	held_init(&held);
	fdstore = held_ops(&held);
	ck_assert_int_eq(daemon_up(&fixture, &fdstore, FS_MOUNT_KEPT), 0);
	poison(fixture.backend);
}

static void down(void)
{
	daemon_down(&fixture);
	held_free(&held);
}

static void set_freezing(bool on)
{
	scoped_lock(&frozen_lock);
	freezing = on;
	points = 0;
}

/* Restores from a copy of the found state, freezes the state at every nth point, and ends the
 * daemon without a trace in the found state. */
static void restore_stopped(struct held *found, enum fs_mount mount, unsigned nth)
{
	struct fdstore_ops stopping = {
	    .context = &second_held, .hold = hold, .drop = drop, .take = take, .each = walk};
	uint64_t seed = hash_seed;

	held_freeze(found, FREEZE_ALL, &second_held);
	memset(&second, 0, sizeof(second));
	n_frozen = 0;
	each = nth;
	set_freezing(true);
	ck_assert_int_eq(daemon_up(&second, &stopping, mount), 0);
	checkpoint(&second);
	set_freezing(false);
	daemon_down(&second);
	ck_assert_uint_eq(second_held.n, 0);
	held_free(&second_held);
	hash_seed = seed;
}

static char *state_of(struct held *found, enum fs_mount mount)
{
	static struct fs third;
	struct held copy;
	uint64_t seed = hash_seed;

	held_freeze(found, FREEZE_ALL, &copy);
	struct fdstore_ops other = held_ops(&copy);

	ck_assert_int_eq(daemon_up(&third, &other, mount), 0);
	char *text = describe(&third, DESCRIBE_ALL);

	daemon_down(&third);
	ck_assert_uint_eq(copy.n, 0);
	held_free(&copy);
	hash_seed = seed;
	return text;
}

/* The state that the first daemon leaves, perhaps in the middle of a checkpoint. */
static struct held *left;

static void leave(void *of)
{
	unsigned *when = of;

	if ((*when)-- == 0)
		held_freeze(&held, FREEZE_ALL, left);
}

static void leave_at(struct held *found, struct actor *actor, bool compacting)
{
	unsigned when = (unsigned)pick(actor, 60);

	left = found;
	if (compacting) {
		fixture.journal->fault_of = &when;
		fixture.journal->fault = leave;
		checkpoint(&fixture);
		fixture.journal->fault = NULL;
	}
	if (!compacting || (int)when >= 0)
		held_freeze(&held, FREEZE_ALL, found);
}

static void some_acts(struct actor *actor, unsigned acts)
{
	for (unsigned i = 0; i < acts; i++)
		act(actor, ACTS);
}

START_TEST(same_again)
{
	struct actor actor = {.random = unit_seed() + (uint64_t)_i};
	enum fs_mount mount = _i % 3 == 2 ? FS_MOUNT_NEW : FS_MOUNT_KEPT;

	for (unsigned round = 0; round < 3; round++) {
		struct held found;

		some_acts(&actor, 80);
		leave_at(&found, &actor, round > 0);
		char *wanted = state_of(&found, mount);

		/* The rounds together cover all points; a single restore is frozen only at every
		 * nth point. */
		restore_stopped(&found, mount, 1 + (unsigned)pick(&actor, 12));
		ck_assert_uint_gt(n_frozen, 5);
		for (unsigned i = 0; i < n_frozen; i++) {
			char *got = state_of(&frozen[i], mount);

			ck_assert_msg(same_text(wanted, got, stderr), "point %u of %u", i,
				      n_frozen);
			free(got);
			held_free(&frozen[i]);
		}
		free(wanted);
		held_free(&found);
	}
	actor_end(&actor);
}
END_TEST

/* Daemons one after the other, each stopped at a random point. */
START_TEST(again_and_again)
{
	struct actor actor = {.random = unit_seed() + (uint64_t)_i};
	struct held found;

	some_acts(&actor, 120);
	leave_at(&found, &actor, _i % 2);
	char *wanted = state_of(&found, FS_MOUNT_KEPT);

	for (unsigned daemon = 0; daemon < 12; daemon++) {
		restore_stopped(&found, FS_MOUNT_KEPT, 1 + (unsigned)pick(&actor, 8));
		unsigned which = (unsigned)pick(&actor, n_frozen);

		held_free(&found);
		for (unsigned i = 0; i < n_frozen; i++)
			if (i == which)
				found = frozen[i];
			else
				held_free(&frozen[i]);
	}
	char *got = state_of(&found, FS_MOUNT_KEPT);

	ck_assert(same_text(wanted, got, stderr));
	free(wanted);
	free(got);
	held_free(&found);
	actor_end(&actor);
}
END_TEST

static void wait_for_compaction(struct journal *journal)
{
	scoped_lock(&journal->lock);
	while (journal->checkpoint_wanted)
		pthread_cond_wait(&journal->changed, &journal->lock);
}

/* Kills the daemon, and starts another daemon with the held descriptors. */
static void another_daemon(void)
{
	struct held found;

	held_freeze(&held, FREEZE_ALL, &found);
	down();
	held = found;
	fdstore = held_ops(&held);
	ck_assert_int_eq(daemon_up(&fixture, &fdstore, FS_MOUNT_KEPT), 0);
}

static void set_again(struct inode *inode, const char *value, size_t bytes)
{
	scoped_lock(&inode->lock);
	ck_assert_int_eq(xattr_set(&inode->xattrs, "user.large", value, bytes, 0), 0);
	record_xattr(&fixture, inode, "user.large", value, bytes);
}

/* However soon daemons end, the journal that the next daemon reads stays bounded. */
START_TEST(journal_of_many_daemons)
{
	char value[4000] = "large";

	ck_assert_int_eq(make_file(gpu(0), "file"), 0);
	for (unsigned daemon = 0; daemon < 10; daemon++) {
		for (unsigned i = 0; i < 1200; i++)
			set_again(at(gpu(0), "file"), value, sizeof(value));
		wait_for_compaction(fixture.journal);
		const struct journal_header *header = fixture.journal->header;
		uint64_t units = atomic_load(&header->units[journal_newest(header->state)]);

		ck_assert_uint_lt(units * JOURNAL_UNIT, 24ULL << 20);
		another_daemon();
	}
}
END_TEST

int main(void)
{
	TCase *tcase;
	Suite *suite = unit_suite("restore_again", &tcase, 120);

	tcase_add_checked_fixture(tcase, up, down);
	tcase_add_loop_test(tcase, same_again, 0, unit_rounds(2, 6));
	tcase_add_loop_test(tcase, again_and_again, 0, unit_rounds(2, 4));
	tcase_add_test(tcase, journal_of_many_daemons);
	return unit_main(suite);
}
