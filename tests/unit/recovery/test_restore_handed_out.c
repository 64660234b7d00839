/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* Memory of which another process may have a descriptor is given to no other file, also by the next
 * daemons; memory that no process has had is kept for the next files. */
#include <sys/socket.h>

#include "backend/pool.h"
#include "backend/stock.h"
#include "fs/holders/holds.h"
#include "tests/unit/restore_actor.h"

#define FROZEN_MAX 100

/* Daemon after daemon, each in its own struct fs, and the held descriptors at the last daemon's
 * end: a daemon stops as if killed. */
static struct held held;
static struct fdstore_ops fdstore;

/* The next daemon starts with the state at this point of the last daemon. */
static struct held frozen[FROZEN_MAX];
static unsigned n_frozen;

static void freeze(void *of)
{
	(void)of;
	ck_assert_uint_lt(n_frozen, FROZEN_MAX);
	held_freeze(&held, FREEZE_JOURNAL, &frozen[n_frozen++]);
}

static void up(void)
{
	held_init(&held);
	fdstore = held_ops(&held);
	ck_assert_int_eq(daemon_up(&fixture, &fdstore, FS_MOUNT_KEPT), 0);
	n_frozen = 0;
}

static void down(void)
{
	fixture.journal->fault = NULL;
	daemon_down(&fixture);
	held_free(&held);
}

/* A file whose memory belongs off the GPU. */
static struct inode *file_off_gpu(struct fs *fs, const char *name, uint64_t bytes)
{
	static char data[4 * MIB];
	struct tree_new what = {.mode = S_IFREG | 0600};
	struct inode_call call;
	struct inode *inode;

	ck_assert_int_eq(
	    tree_create(fs, inode_find(fs, fs->volumes[0].root_ino), name, &what, &inode), 0);
	ck_assert_int_eq(inode_attr_set(fs, worker_copier(fs), inode, ATTR_RESIDENT, "host", 4, 0),
			 0);
	inode_call_init(&call, fs, inode, worker_copier(fs));
	ck_assert_int_eq(file_write(inode->file, &call.call, data, bytes, 0), (ssize_t)bytes);
	return inode;
}

static void file_hand_out(struct fs *fs, struct inode *inode)
{
	struct file_chunk chunks[4];
	struct file_place place;
	struct inode_call call;

	inode_call_init(&call, fs, inode, worker_copier(fs));
	ck_assert_int_eq(file_lease(inode->file, &call.call, FILE_SHARE_WRITE, FILE_MAY_WAIT),
			 FILE_LEASE_HOLDS);
	int n = file_export(inode->file, fs->journal, FILE_SHARE_WRITE, FILE_MAY_WAIT, 0, chunks, 4,
			    &place);

	ck_assert_int_gt(n, 0);
	file_chunks_close(chunks, (uint32_t)n);
	file_unlease(inode->file, 1);
}

static uint64_t stocked(struct fs *fs)
{
	return stock_bytes(pool_stock(volume_pool(&fs->volumes[0], PLACE_HOST)));
}

/* The bytes that the next files get of a removed file. */
static uint64_t stocked_by_end(struct fs *fs, const char *name)
{
	uint64_t before = stocked(fs);

	ck_assert_int_eq(tree_unlink(fs, inode_find(fs, fs->volumes[0].root_ino), name), 0);
	return stocked(fs) - before;
}

/* As in a daemon that starts with the frozen state of this number. */
static struct fs *next_up(struct held *found)
{
	static struct fs next;
	static struct fdstore_ops other;

	other = held_ops(found);
	ck_assert_int_eq(daemon_up(&next, &other, FS_MOUNT_KEPT), 0);
	return &next;
}

static void next_down(struct fs *next, struct held *found)
{
	daemon_down(next);
	held_free(found);
}

START_TEST(known_to_the_next_daemons)
{
	struct inode *given = file_off_gpu(&fixture, "given", 4 * MIB);
	struct inode *kept = file_off_gpu(&fixture, "kept", 4 * MIB);
	uint64_t seed = hash_seed;

	file_hand_out(&fixture, given);
	/* In a record of the export, and in the records of a checkpoint. */
	freeze(NULL);
	checkpoint(&fixture);
	freeze(NULL);
	for (unsigned i = 0; i < 2; i++) {
		struct fs *next = next_up(&frozen[i]);

		if (_i) {
			static struct held again;

			held_freeze(&frozen[i], FREEZE_JOURNAL, &again);
			next_down(next, &frozen[i]);
			frozen[i] = again;
			next = next_up(&frozen[i]);
		}
		ck_assert_uint_eq(stocked_by_end(next, "given"), 0);
		ck_assert_uint_eq(stocked_by_end(next, "kept"), 4 * MIB);
		next_down(next, &frozen[i]);
		hash_seed = seed;
	}
	inode_put(&fixture, given, 1);
	inode_put(&fixture, kept, 1);
}
END_TEST

/* A checkpoint does not record a chunk that no file has: the next file that gets it does. */
START_TEST(a_chunk_that_waited_for_its_owners_next_file)
{
	struct inode *given = file_off_gpu(&fixture, "given", 4 * MIB), *again;
	struct receiver *receiver;
	int pair[2];

	ck_assert_int_eq(socketpair(AF_UNIX, SOCK_STREAM, 0, pair), 0);
	ck_assert_int_eq(receiver_get(&fixture, pair[0], getpid(), 0, &receiver), 0);
	ck_assert_int_eq(receiver_note(&fixture, receiver, given->ino), 0);
	file_hand_out(&fixture, given);
	ck_assert_uint_eq(stocked_by_end(&fixture, "given"), 0);
	inode_put(&fixture, given, 1);
	ck_assert_uint_eq(holds_shelved(&fixture, 0, &fixture.volumes[0]), 4 * MIB);
	checkpoint(&fixture);
	checkpoint(&fixture);
	again = file_off_gpu(&fixture, "again", 4 * MIB);
	ck_assert_uint_eq(holds_shelved(&fixture, 0, &fixture.volumes[0]), 0);
	freeze(NULL);

	uint64_t seed = hash_seed;
	struct fs *next = next_up(&frozen[0]);

	ck_assert_uint_eq(stocked_by_end(next, "again"), 0);
	next_down(next, &frozen[0]);
	hash_seed = seed;
	inode_put(&fixture, again, 1);
	receiver_put(&fixture, receiver);
	close(pair[0]);
	close(pair[1]);
}
END_TEST

/* Wherever the daemon is stopped, the next daemon knows of each descriptor that had been made. */
START_TEST(recorded_before_the_descriptor)
{
	struct inode *given = file_off_gpu(&fixture, "given", 2 * MIB);
	unsigned unknown = 0;
	uint64_t seed = hash_seed;

	fixture.journal->fault = freeze;
	file_hand_out(&fixture, given);
	fixture.journal->fault = NULL;
	freeze(NULL);
	ck_assert_uint_gt(n_frozen, 2);
	for (unsigned i = 0; i < n_frozen; i++) {
		struct fs *next = next_up(&frozen[i]);

		unknown += stocked_by_end(next, "given") != 0;
		next_down(next, &frozen[i]);
		hash_seed = seed;
	}
	/* The point of the record's check and the end: the descriptor is made in between. */
	ck_assert_uint_eq(unknown, n_frozen - 2);
	inode_put(&fixture, given, 1);
}
END_TEST

static unsigned times_in(const char *text, const char *words)
{
	unsigned n = 0;

	while ((text = strstr(text, words))) {
		text++;
		n++;
	}
	return n;
}

static unsigned exports_recorded(const struct journal *journal)
{
	struct journal_list list;
	unsigned n = 0;

	ck_assert_int_eq(journal_read(journal, &list), 0);
	for (size_t i = 0; i < list.count; i++) {
		struct journal_view view;
		uint32_t at = 0;

		while (at < list.at[i]->bytes) {
			at = journal_view(list.at[i], at, &view);
			ck_assert_uint_gt(at, 0);
			n += view.kind == JOURNAL_HANDED_OUT;
		}
	}
	free(list.at);
	return n;
}

/* The journal of a daemon that recorded no exports: until the next daemon serves, the program of
 * that daemon may take the journal back. */
START_TEST(journal_of_version_2)
{
	struct inode *file = file_off_gpu(&fixture, "file", 2 * MIB);
	struct inode *small = file_off_gpu(&fixture, "small", 4096);
	uint64_t seed = hash_seed;
	static struct held found;

	fixture.journal->header->version = 2;
	held_freeze(&held, FREEZE_JOURNAL, &found);
	struct fs *next = next_up(&found);
	char *state = describe(next, DESCRIBE_ALL);

	/* Files that share a chunk were never handed out. */
	ck_assert_uint_eq(times_in(state, "handed out"), 1);
	free(state);
	struct inode *new = file_off_gpu(next, "new", 2 * MIB);

	file_hand_out(next, new);
	inode_put(next, new, 1);
	inode_put(next, file_off_gpu(next, "kept", 2 * MIB), 1);
	checkpoint(next);
	ck_assert_uint_eq(next->journal->header->version, 2);
	ck_assert_uint_eq(exports_recorded(next->journal), 0);
	held_freeze(&found, FREEZE_JOURNAL, &frozen[0]);

	journal_raise(next->journal);
	ck_assert_uint_eq(next->journal->header->version, JOURNAL_VERSION);
	held_freeze(&found, FREEZE_JOURNAL, &frozen[1]);
	/* From the next checkpoint on, each chunk has a state of its own. */
	checkpoint(next);
	held_freeze(&found, FREEZE_JOURNAL, &frozen[2]);
	next_down(next, &found);
	for (unsigned i = 0; i < 3; i++) {
		next = next_up(&frozen[i]);
		ck_assert_uint_eq(stocked_by_end(next, "file"), 0);
		ck_assert_uint_eq(stocked_by_end(next, "new"), 0);
		if (i == 2)
			ck_assert_uint_eq(stocked_by_end(next, "kept"), 2 * MIB);
		next_down(next, &frozen[i]);
	}
	hash_seed = seed;
	fixture.journal->header->version = JOURNAL_VERSION;
	inode_put(&fixture, file, 1);
	inode_put(&fixture, small, 1);
}
END_TEST

/* A daemon that raises the version is stopped at any point, also in a checkpoint that it began
 * before. */
static struct fs *raising;

static void raise_within(void *of)
{
	unsigned *points = of;

	if ((*points)++ == 3) {
		raising->journal->fault = NULL;
		journal_raise(raising->journal);
	}
}

START_TEST(raised_within_a_checkpoint)
{
	struct inode *file = file_off_gpu(&fixture, "file", 2 * MIB);
	uint64_t seed = hash_seed;
	static struct held found;
	unsigned points = 0;

	fixture.journal->header->version = 2;
	held_freeze(&held, FREEZE_JOURNAL, &found);
	raising = next_up(&found);
	/* The thread's checkpoint after the raise would come in between. */
	checkpoint_end(raising);
	raising->journal->fault_of = &points;
	raising->journal->fault = raise_within;
	checkpoint(raising);
	ck_assert_uint_eq(raising->journal->header->version, JOURNAL_VERSION);
	ck_assert(journal_all_handed_out(raising->journal));
	held_freeze(&found, FREEZE_JOURNAL, &frozen[0]);
	next_down(raising, &found);
	struct fs *next = next_up(&frozen[0]);

	ck_assert_uint_eq(stocked_by_end(next, "file"), 0);
	next_down(next, &frozen[0]);
	hash_seed = seed;
	fixture.journal->header->version = JOURNAL_VERSION;
	inode_put(&fixture, file, 1);
}
END_TEST

START_TEST(journals_of_other_versions)
{
	static const uint32_t versions[] = {JOURNAL_VERSION_MIN - 1, JOURNAL_VERSION + 1};

	for (unsigned i = 0; i < 2; i++) {
		static struct held found;
		static struct fs next;
		struct fdstore_ops other;
		uint64_t seed = hash_seed;

		fixture.journal->header->version = versions[i];
		held_freeze(&held, FREEZE_JOURNAL, &found);
		other = held_ops(&found);
		ck_assert_int_eq(fs_restore_check(&other), -EUCLEAN);
		ck_assert_int_eq(daemon_up(&next, &other, FS_MOUNT_KEPT), -EUCLEAN);
		held_free(&found);
		hash_seed = seed;
	}
	fixture.journal->header->version = JOURNAL_VERSION;
}
END_TEST

int main(void)
{
	TCase *tcase;
	Suite *suite = unit_suite("restore_handed_out", &tcase, 60);

	tcase_add_checked_fixture(tcase, up, down);
	tcase_add_loop_test(tcase, known_to_the_next_daemons, 0, 2);
	tcase_add_test(tcase, a_chunk_that_waited_for_its_owners_next_file);
	tcase_add_test(tcase, recorded_before_the_descriptor);
	tcase_add_test(tcase, journal_of_version_2);
	tcase_add_test(tcase, raised_within_a_checkpoint);
	tcase_add_test(tcase, journals_of_other_versions);
	return unit_main(suite);
}
