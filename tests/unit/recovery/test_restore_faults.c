/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* A daemon is stopped between any two stores to its journal: the next daemon has the state before
 * the operation, or the state after the operation. */
#include "tests/unit/poison.h" /* the actor writes lower bytes */
#include "tests/unit/restore_actor.h"

#define FROZEN_MAX 200

static struct held held;
static struct fdstore_ops fdstore;

/* The frozen state at each point of the operation. */
static struct held frozen[FROZEN_MAX];
static unsigned n_frozen, passed;

static void freeze_journal(void *of)
{
	(void)of;
	ck_assert_uint_lt(n_frozen, FROZEN_MAX);
	held_freeze(&held, FREEZE_JOURNAL, &frozen[n_frozen++]);
}

static void freeze_objects(void *of)
{
	(void)of;
	ck_assert_uint_lt(n_frozen, FROZEN_MAX);
	held_freeze(&held, FREEZE_OBJECTS, &frozen[n_frozen++]);
}

static void freeze_all(void *of)
{
	(void)of;
	ck_assert_uint_lt(n_frozen, FROZEN_MAX);
	held_freeze(&held, FREEZE_ALL, &frozen[n_frozen++]);
}

/* Freezes at every fifth point. */
static void freeze_some(void *of)
{
	if (passed++ % 5 == 0 && n_frozen < FROZEN_MAX)
		freeze_journal(of);
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
	fixture.journal->fault = NULL;
	daemon_down(&fixture);
	held_free(&held);
}

static void faults(void (*fault)(void *))
{
	fixture.journal->fault = fault;
}

static char *state_of(struct held *found)
{
	static struct fs second;
	struct fdstore_ops other = held_ops(found);
	uint64_t seed = hash_seed;

	ck_assert_int_eq(daemon_up(&second, &other, FS_MOUNT_KEPT), 0);
	char *text = describe(&second, DESCRIBE_TIMELESS);

	daemon_down(&second);
	ck_assert_uint_eq(found->n, 0);
	hash_seed = seed;
	return text;
}

static void expect_before_or_after(const char *before, const char *after)
{
	bool done = false;

	for (unsigned i = 0; i < n_frozen; i++) {
		char *text = state_of(&frozen[i]);

		/* Once a point has the state after the operation, all later points have the state
		 * too. */
		if (!done && strcmp(text, before) != 0)
			done = true;
		ck_assert_msg(same_text(done ? after : before, text, stderr), "point %u of %u", i,
			      n_frozen);
		held_free(&frozen[i]);
		free(text);
	}
	n_frozen = 0;
}

START_TEST(names_and_attributes)
{
	struct actor actor = {.random = unit_seed() + (uint64_t)_i};
	unsigned points = 0;

	for (unsigned step = 0; step < 300; step++) {
		char *before = describe(&fixture, DESCRIBE_TIMELESS);

		faults(freeze_objects);
		act(&actor, ACTS_OF_ONE_STEP);
		faults(NULL);
		char *after = describe(&fixture, DESCRIBE_TIMELESS);

		points += n_frozen;
		expect_before_or_after(before, after);
		free(before);
		free(after);
		/* Gives later operations files to move. */
		act(&actor, ACTS);
	}
	ck_assert_uint_gt(points, 200);
	actor_end(&actor);
}
END_TEST

START_TEST(compaction)
{
	struct actor actor = {.random = unit_seed() + (uint64_t)_i};

	for (unsigned round = 0; round < 3; round++) {
		for (unsigned step = 0; step < 100; step++)
			act(&actor, ACTS);
		char *before = describe(&fixture, DESCRIBE_TIMELESS);

		faults(freeze_some);
		checkpoint(&fixture);
		faults(NULL);
		ck_assert_uint_gt(n_frozen, 10);
		expect_before_or_after(before, before);
		free(before);
	}
	actor_end(&actor);
}
END_TEST

struct content {
	char *bytes; /* CONTENT_MAX bytes, zeroes behind the end */
	uint64_t size;
};

#define CONTENT_MAX (16 * MIB)
#define PIECE	    4096

static bool all_zero(const char *bytes, uint64_t length)
{
	return length == 0 || (bytes[0] == 0 && memcmp(bytes, bytes + 1, length - 1) == 0);
}

static struct content content_of(struct fs *fs, struct inode *inode)
{
	struct content content = {calloc(1, CONTENT_MAX), file_size(inode->file)};
	struct inode_call call;

	ck_assert_uint_lt(content.size, CONTENT_MAX);
	inode_call_init(&call, fs, inode, worker_copier(fs));
	ck_assert_int_eq(file_read(inode->file, &call.call, content.bytes, content.size, 0),
			 (ssize_t)content.size);
	/* A file that grows shows zeroes, regardless of the memory's earlier bytes. */
	ck_assert_int_eq(file_truncate(inode->file, &call.call, CONTENT_MAX), 0);
	ck_assert_int_ge(file_read(inode->file, &call.call, content.bytes, CONTENT_MAX, 0), 0);
	ck_assert(all_zero(content.bytes + content.size, CONTENT_MAX - content.size));
	return content;
}

/* Returns the content that the first daemon has, without a change by the read. */
static struct content content_now(struct inode *inode)
{
	static struct fs second;
	uint64_t ino = inode->ino, seed = hash_seed;
	struct held now;

	held_freeze(&held, FREEZE_ALL, &now);
	struct fdstore_ops other = held_ops(&now);

	ck_assert_int_eq(daemon_up(&second, &other, FS_MOUNT_KEPT), 0);
	struct content content = content_of(&second, inode_find(&second, ino));

	daemon_down(&second);
	held_free(&now);
	hash_seed = seed;
	return content;
}

/* Whether each byte equals the byte of one content or of the other content. */
static bool is_mix(const struct content *found, const struct content *one,
		   const struct content *other)
{
	for (uint64_t at = 0; at < CONTENT_MAX; at += PIECE) {
		if (memcmp(found->bytes + at, one->bytes + at, PIECE) == 0)
			continue;
		for (uint64_t i = at; i < at + PIECE; i++)
			if (found->bytes[i] != one->bytes[i] && found->bytes[i] != other->bytes[i])
				return false;
	}
	return true;
}

static void expect_bytes_of_either(uint64_t ino, const struct content *before,
				   const struct content *after)
{
	uint64_t low = before->size < after->size ? before->size : after->size;
	uint64_t high = before->size + after->size - low;

	for (unsigned i = 0; i < n_frozen; i++) {
		static struct fs second;
		struct fdstore_ops other = held_ops(&frozen[i]);
		uint64_t seed = hash_seed;

		ck_assert_int_eq(daemon_up(&second, &other, FS_MOUNT_KEPT), 0);
		struct content found = content_of(&second, inode_find(&second, ino));

		ck_assert_uint_ge(found.size, low);
		ck_assert_uint_le(found.size, high);
		ck_assert_msg(is_mix(&found, before, after), "point %u of %u", i, n_frozen);
		free(found.bytes);
		daemon_down(&second);
		hash_seed = seed;
		held_free(&frozen[i]);
	}
	n_frozen = 0;
}

START_TEST(bytes)
{
	struct actor actor = {.random = unit_seed() + (uint64_t)_i};
	struct tree_new what = {.mode = S_IFREG | 0600};
	struct inode *inode;

	ck_assert_int_eq(tree_create(&fixture, gpu(0), "file", &what, &inode), 0);
	if (_i % 2)
		actor_keep(&actor, inode);
	else
		inode_put(&fixture, inode, 1); /* as truncate(2) finds the file */
	for (unsigned step = 0; step < 12; step++) {
		struct content before = content_now(inode);

		faults(freeze_all);
		if (pick(&actor, 4) == 0)
			act_attribute(&actor, inode);
		else
			act_bytes(&actor, inode);
		faults(NULL);
		struct content after = content_now(inode);

		expect_bytes_of_either(inode->ino, &before, &after);
		free(before.bytes);
		free(after.bytes);
	}
	actor_end(&actor);
}
END_TEST

/* A copy allocates memory before the copy's bytes arrive: no reader sees the memory's earlier
 * bytes. */
START_TEST(copy_into_a_hole)
{
	static char data[3 * MIB];
	struct tree_new what = {.mode = S_IFREG | 0600};
	struct inode *from, *to;
	struct inode_call call;

	memset(data, 1, sizeof(data));
	ck_assert_int_eq(tree_create(&fixture, gpu(0), "from", &what, &from), 0);
	ck_assert_int_eq(tree_create(&fixture, gpu(0), "to", &what, &to), 0);
	ck_assert_int_eq(write_to(from, data, sizeof(data), 0), sizeof(data));
	inode_call_init(&call, &fixture, to, worker_copier(&fixture));
	ck_assert_int_eq(file_truncate(to->file, &call.call, 8 * MIB), 0);
	struct content before = content_now(to);

	inode_call_init(&call, &fixture, to, worker_copier(&fixture));
	faults(freeze_all);
	ck_assert_int_eq(file_copy(from->file, 0, to->file, &call.call, MIB, sizeof(data)),
			 sizeof(data));
	faults(NULL);
	ck_assert_uint_gt(n_frozen, 3);
	struct content after = content_now(to);

	expect_bytes_of_either(to->ino, &before, &after);
	free(before.bytes);
	free(after.bytes);
	inode_put(&fixture, from, 1);
	inode_put(&fixture, to, 1);
}
END_TEST

/* A file of host/, and whether the file had a writable object at each frozen point. */
static struct inode *in_host;
static bool writable[FROZEN_MAX];

static void freeze_and_look(void *of)
{
	writable[n_frozen] = file_written(in_host->file) != 0;
	freeze_journal(of);
}

/* With two handles, the journal has the object that one handle creates before the other handle can
 * write to the object. */
START_TEST(object_is_known_first)
{
	struct inode *top = inode_find(&fixture, fixture.volumes[fixture.n_volumes - 1].root_ino);
	struct tree_new what = {.mode = S_IFREG | 0600};
	struct inode_call call;
	static struct fs second;

	ck_assert_int_eq(tree_create(&fixture, top, "file", &what, &in_host), 0);
	inode_call_init(&call, &fixture, in_host, worker_copier(&fixture));
	faults(freeze_and_look);
	ck_assert_int_ge(file_object(in_host->file, &call.call), 0);
	freeze_and_look(NULL);
	faults(NULL);
	ck_assert_uint_gt(n_frozen, 3);
	for (unsigned i = 0; i < n_frozen; i++) {
		struct fdstore_ops other = held_ops(&frozen[i]);
		uint64_t seed = hash_seed;

		ck_assert_int_eq(daemon_up(&second, &other, FS_MOUNT_KEPT), 0);
		struct inode *found = inode_find(&second, in_host->ino);

		ck_assert_msg(!writable[i] || file_written(found->file), "point %u of %u", i,
			      n_frozen);
		daemon_down(&second);
		held_free(&frozen[i]);
		hash_seed = seed;
	}
	ck_assert(writable[n_frozen - 1]);
	n_frozen = 0;
	inode_put(&fixture, in_host, 1);
}
END_TEST

int main(void)
{
	TCase *tcase;
	Suite *suite = unit_suite("restore_faults", &tcase, 120);

	tcase_add_checked_fixture(tcase, up, down);
	tcase_add_loop_test(tcase, names_and_attributes, 0, unit_rounds(2, 6));
	tcase_add_loop_test(tcase, compaction, 0, unit_rounds(2, 4));
	tcase_add_loop_test(tcase, bytes, 0, unit_rounds(2, 6));
	tcase_add_test(tcase, copy_into_a_hole);
	tcase_add_test(tcase, object_is_known_first);
	return unit_main(suite);
}
