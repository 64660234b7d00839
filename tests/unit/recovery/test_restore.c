/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* The next daemon has the state that the previous daemon left: every state that a tree can be in is
 * restored. */
#include <sys/file.h>

#include "fs/holders/inode_lease.h"
#include "tests/unit/restore_actor.h"
#include "tests/unit/restore_daemon.h"

/* A daemon that starts with the state that the first daemon would leave if the first daemon stopped
 * now. The first and the second daemon use the same memory. */
static struct fs second;
static struct held left;
static struct fdstore_ops left_holder;
static uint64_t first_seed;

static int second_up(enum fs_mount mount)
{
	first_seed = hash_seed;
	held_freeze(&held, FREEZE_JOURNAL, &left);
	left_holder = held_ops(&left);
	return daemon_up(&second, &left_holder, mount);
}

static void second_down(void)
{
	daemon_down(&second);
	ck_assert_uint_eq(left.n, 0);
	held_free(&left);
	hash_seed = first_seed; /* each daemon has its own seed */
}

static void expect_same(void)
{
	char *before = describe(&fixture, DESCRIBE_ALL);

	ck_assert_int_eq(second_up(FS_MOUNT_KEPT), 0);
	char *after = describe(&second, DESCRIBE_ALL);

	ck_assert(same_text(before, after, stderr));
	/* The descriptors are equal except for the spare chunks of a pool. */
	ck_assert_uint_le(left.n, held.n);
	ck_assert_uint_ge(left.n + PLACES * fixture.backend->n_devices, held.n);
	second_down();
	free(before);
	free(after);
}

/* A daemon after the second, which starts with the state that the second daemon would leave. */
static struct fs third;
static struct held left_again;
static struct fdstore_ops left_again_holder;

static void third_up(enum fs_mount mount)
{
	held_freeze(&left, FREEZE_JOURNAL, &left_again);
	left_again_holder = held_ops(&left_again);
	ck_assert_int_eq(daemon_up(&third, &left_again_holder, mount), 0);
}

static void third_down(void)
{
	daemon_down(&third);
	ck_assert_uint_eq(left_again.n, 0);
	held_free(&left_again);
}

static struct inode *second_find(const struct inode *inode)
{
	return inode_find(&second, inode->ino);
}

START_TEST(nothing_but_the_top)
{
	expect_same();
	checkpoint(&fixture);
	expect_same();
}
END_TEST

/* The next daemon opens these devices, whatever others there are by then. */
START_TEST(devices_of_the_last_daemon)
{
	struct journal_header *header = fixture.journal->header;
	struct restore_devices devices;
	char wanted[128];

	snprintf(wanted, sizeof(wanted), "%s,%s", fixture.backend->devices[0]->uuid,
		 fixture.backend->devices[1]->uuid);
	fs_restore_devices(fixture.fdstore_ops, &devices);
	ck_assert_str_eq(devices.backend, "host");
	ck_assert_str_eq(devices.gpus, wanted);

	/* As a release without that field left it: the next daemon notes its backend. */
	memset(header->backend, 0, sizeof(header->backend));
	fs_restore_devices(fixture.fdstore_ops, &devices);
	ck_assert_str_eq(devices.backend, "");
	ck_assert_str_eq(devices.gpus, wanted);
	ck_assert_int_eq(second_up(FS_MOUNT_KEPT), 0);
	ck_assert_str_eq(second.journal->header->backend, "host");
	second_down();

	header->magic ^= 1;
	fs_restore_devices(fixture.fdstore_ops, &devices);
	ck_assert_str_eq(devices.gpus, "");
	header->magic ^= 1;
}
END_TEST

START_TEST(names_of_every_kind)
{
	ck_assert_int_eq(make_dir(gpu(0), "dir"), 0);
	struct inode *dir = at(gpu(0), "dir");

	ck_assert_int_eq(make_file(dir, "file"), 0);
	ck_assert_int_eq(make(dir, "link", S_IFLNK | 0777), 0);
	ck_assert_int_eq(make(dir, "fifo", S_IFIFO | 0600), 0);
	ck_assert_int_eq(make(dir, "character", S_IFCHR | 0600), 0);
	ck_assert_int_eq(make(dir, "block", S_IFBLK | 0600), 0);
	ck_assert_int_eq(make_dir(dir, "below"), 0);
	ck_assert_int_eq(second_up(FS_MOUNT_KEPT), 0);
	ck_assert_uint_eq(second_find(gpu(0))->dir->height, 2);
	second_down();
	expect_same();
	ck_assert_int_eq(tree_link(&fixture, at(dir, "file"), gpu(0), "hard"), 0);
	ck_assert_int_eq(tree_unlink(&fixture, dir, "file"), 0);
	ck_assert_int_eq(tree_rmdir(&fixture, dir, "below"), 0);
	expect_same();
	ck_assert_int_eq(rename_to(dir, "fifo", gpu(0), "renamed", 0), 0);
	ck_assert_int_eq(rename_to(gpu(0), "renamed", dir, "link", RENAME_EXCHANGE), 0);
	ck_assert_int_eq(rename_to(gpu(0), "hard", gpu(0), "renamed", 0), 0);
	expect_same();
	checkpoint(&fixture);
	expect_same();
	inode_put(&fixture, at(gpu(0), "renamed"), 1);
}
END_TEST

/* After the move to a GPU the file has no object of host/, and no object without a record may
 * appear. */
START_TEST(empty_on_a_gpu_meanwhile)
{
	struct inode *host = gpu(2);

	ck_assert_ptr_nonnull(host->volume->system);
	ck_assert_int_eq(make_file(host, "file"), 0);
	struct inode *file = at(host, "file");
	struct inode_call call;

	ck_assert_int_eq(write_to(file, "first", 5, 0), 5);
	inode_call_init(&call, &fixture, file, worker_copier(&fixture));
	ck_assert_int_eq(file_truncate(file->file, &call.call, 0), 0);
	ck_assert_int_eq(rename_to(host, "file", gpu(0), "file", 0), 0);
	ck_assert_int_eq(rename_to(gpu(0), "file", host, "file", 0), 0);
	expect_same();
	ck_assert_int_eq(write_to(file, "kept", 4, 0), 4);
	expect_same();
}
END_TEST

START_TEST(whatever_happens)
{
	struct actor actor = {.random = unit_seed() + (uint64_t)_i};

	for (unsigned step = 0; step < 400; step++) {
		act(&actor, ACTS);
		if (pick(&actor, 60) == 0)
			checkpoint(&fixture);
		if (step % 8 == 7)
			expect_same();
	}
	actor_end(&actor);
	expect_same();
}
END_TEST

static void set_xattr(struct inode *inode, const char *name, const char *value)
{
	scoped_lock(&inode->lock);
	if (!value) {
		ck_assert_int_eq(xattr_remove(&inode->xattrs, name), 0);
		record_xattr_gone(&fixture, inode, name);
		return;
	}
	ck_assert_int_eq(xattr_set(&inode->xattrs, name, value, strlen(value), 0), 0);
	record_xattr(&fixture, inode, name, value, strlen(value));
}

static char *xattrs_of(struct inode *inode)
{
	char *names = calloc(1, 256);

	scoped_lock(&inode->lock);
	xattr_list(inode->xattrs, XATTR_NAMES_ALL, names, 255);
	for (char *at = names; at[0] && at[strlen(at) + 1]; at += strlen(at))
		at[strlen(at)] = ' ';
	return names;
}

START_TEST(extended_attributes)
{
	ck_assert_int_eq(make_file(gpu(0), "file"), 0);
	struct inode *file = at(gpu(0), "file");

	set_xattr(file, "user.one", "1");
	set_xattr(file, "user.two", "2");
	set_xattr(file, "user.three", "");
	set_xattr(file, "user.one", "another");
	set_xattr(file, "user.two", NULL);
	for (int round = 0; round < 2; round++) {
		ck_assert_int_eq(second_up(FS_MOUNT_KEPT), 0);
		char value[16] = "", *names = xattrs_of(second_find(file));

		ck_assert_str_eq(names, "user.one user.three");
		ck_assert_int_eq(xattr_get(second_find(file)->xattrs, "user.one", value, 16), 7);
		ck_assert_str_eq(value, "another");
		free(names);
		second_down();
		checkpoint(&fixture);
	}
}
END_TEST

/* The next daemon recognises a repeated request by its number, together with the request's changes,
 * as long as the answer may not have been sent. */
START_TEST(requests)
{
	struct journal_request done;

	worker_self(&fixture)->request_number = 1000;
	ck_assert_int_eq(make_file(gpu(0), "file"), 0);
	handle_open(at(gpu(0), "file"));
	worker_self(&fixture)->request_number = 1002;
	ck_assert_int_eq(make_dir(gpu(0), "dir"), 0);
	worker_self(&fixture)->request_number = 1004;
	at(gpu(0), "dir"); /* makes no change */
	worker_self(&fixture)->request_number = 0;
	for (int round = 0; round < 2; round++) {
		struct inode *file = at(gpu(0), "file"), *dir = at(gpu(0), "dir");

		ck_assert_int_eq(second_up(FS_MOUNT_KEPT), 0);
		worker_self(&fixture)->request_number = 1000 | 1ULL << 63;
		ck_assert(journal_drc_find(second.journal, worker_request(), &done));
		ck_assert_uint_eq(done.ino, file->ino);
		ck_assert_uint_eq(done.completed, JOURNAL_COMPLETED_NAME | JOURNAL_COMPLETED_OPEN);
		worker_self(&fixture)->request_number = 1002 | 1ULL << 63;
		ck_assert(journal_drc_find(second.journal, worker_request(), &done));
		ck_assert_uint_eq(done.ino, dir->ino);
		ck_assert_uint_eq(done.completed, JOURNAL_COMPLETED_NAME);
		worker_self(&fixture)->request_number = 1004 | 1ULL << 63;
		ck_assert(!journal_drc_find(second.journal, worker_request(), &done));
		/* The kernel's next request with the number. */
		worker_self(&fixture)->request_number = 1000;
		ck_assert(!journal_drc_find(second.journal, worker_request(), &done));
		worker_self(&fixture)->request_number = 0;
		second_down();
		checkpoint(&fixture);
	}
	handle_close(at(gpu(0), "file"));
}
END_TEST

/* Makes so many requests that the earlier requests are not among the latest. */
static void many_requests(struct fs *fs, uint64_t first)
{
	struct inode *top = inode_find(fs, fs->volumes[0].root_ino);
	struct tree_attrs attrs = {.mask = TREE_MODE, .mode = 0755};

	for (uint64_t i = 0; i < 100; i++) {
		struct tree_new what = {.mode = S_IFREG | 0600};
		struct inode *inode;

		worker_self(&fixture)->request_number = first + 2 * i;
		ck_assert_int_eq(tree_create(fs, top, "many", &what, &inode), 0);
		inode_put(fs, inode, 1);
		worker_self(&fixture)->request_number = 0;
		ck_assert_int_eq(tree_unlink(fs, top, "many"), 0);
		tree_set_attrs(fs, top, &attrs);
	}
}

static bool is_known(const struct fs *fs, uint64_t number)
{
	struct journal_request done;

	worker_self(&fixture)->request_number = number | 1ULL << 63;
	bool known = journal_drc_find(fs->journal, worker_request(), &done);

	worker_self(&fixture)->request_number = 0;
	return known;
}

/* A daemon may end before the answer to a request that the previous daemon completed, and after
 * much other work. */
START_TEST(requests_of_daemons_before)
{
	worker_self(&fixture)->request_number = 1000;
	ck_assert_int_eq(make_file(gpu(0), "file"), 0);
	worker_self(&fixture)->request_number = 0;
	for (int round = 0; round < 2; round++) {
		ck_assert_int_eq(second_up(FS_MOUNT_KEPT), 0);
		many_requests(&second, 2000);
		if (round)
			checkpoint(&second);
		third_up(FS_MOUNT_KEPT);
		ck_assert(is_known(&third, 1000));
		ck_assert(is_known(&third, 2000 + 2 * 99));
		ck_assert(!is_known(&third, 2000 + 2 * 10)); /* answered long before */
		third_down();
		third_up(FS_MOUNT_NEW);
		ck_assert(!is_known(&third, 1000));
		third_down();
		second_down();
	}
}
END_TEST

/* Another mount starts its request numbers again. */
START_TEST(requests_of_mounts_before)
{
	worker_self(&fixture)->request_number = 1000;
	ck_assert_int_eq(make_file(gpu(0), "file"), 0);
	worker_self(&fixture)->request_number = 0;
	ck_assert_int_eq(second_up(FS_MOUNT_NEW), 0);
	third_up(FS_MOUNT_KEPT);
	ck_assert(!is_known(&third, 1000));
	third_down();
	second_down();
}
END_TEST

static int shrink(struct fs *fs, struct inode *inode)
{
	struct inode_call call;

	inode_call_init(&call, fs, inode, worker_copier(fs));
	return file_truncate(inode->file, &call.call, 1);
}

/* The leases of sharers stay until the sharers reconnect, and end if the sharers do not reconnect.
 */
START_TEST(leases)
{
	struct actor actor = {0};
	static char bytes[3 * MIB];

	ck_assert_int_eq(make_file(gpu(0), "file"), 0);
	struct inode *file = at(gpu(0), "file");
	uint64_t ino = file->ino;

	inode_looked_up(file);
	inode_ref(file);
	ck_assert_int_eq(write_to(file, bytes, sizeof(bytes), 0), sizeof(bytes));
	act_lease(&actor, file);
	ck_assert_int_eq(tree_unlink(&fixture, gpu(0), "file"), 0);
	ck_assert_int_eq(second_up(FS_MOUNT_KEPT), 0);
	file = inode_find(&second, ino);
	ck_assert_uint_eq(file_leases(file->file), 1);
	ck_assert_int_eq(shrink(&second, file), -EBUSY);
	ck_assert(unclaimed_lease_adopt(&second, file));
	ck_assert(!unclaimed_lease_adopt(&second, file));
	unclaimed_leases_end(&second);
	ck_assert_uint_eq(file_leases(file->file), 1);
	ck_assert_uint_eq(file_allocated(file->file), 4 * MIB);
	file_unlease(file->file, 1);
	inode_lease_put(&second, file, 1);
	inode_put(&second, file, 1);
	ck_assert_uint_eq(pool_usage(second.volumes[0].pool).span_bytes, 0);
	second_down();

	ck_assert_int_eq(second_up(FS_MOUNT_NEW), 0);
	file = inode_find(&second, ino);
	ck_assert_uint_eq(file_allocated(file->file), 4 * MIB);
	unclaimed_leases_end(&second);
	ck_assert_ptr_null(inode_find(&second, ino));
	ck_assert_uint_eq(pool_usage(second.volumes[0].pool).span_bytes, 0);
	second_down();
	file = inode_find(&fixture, ino);
	act_lease(&actor, file);
	inode_forget(&fixture, file, 1);
}
END_TEST

/* The test walks the schema, so that a new value is restored without a new test. */
START_TEST(every_attribute_value)
{
	ck_assert_int_eq(make_file(gpu(0), "file"), 0);
	struct inode *file = at(gpu(0), "file");

	for (enum attr_id id = 0; id < ATTR_VALUES; id++)
		for (uint64_t value = 0;
		     value < ATTRIBUTE_CHOICES_MAX && attributes[id].words[value]; value++) {
			struct attr_values values = {.bits = value << ATTRIBUTE_SHIFT(id)};

			values.set = 1U << id;
			pthread_mutex_lock(&file->lock);
			atomic_store(&file->attrs, values);
			record_values(&fixture, file);
			pthread_mutex_unlock(&file->lock);
			expect_same();
		}
}
END_TEST

/* The next daemon ends all unclaimed leases of a file in one call, and keeps the claimed leases. */
START_TEST(several_leases)
{
	struct actor actors[3] = {0};

	ck_assert_int_eq(make_file(gpu(0), "file"), 0);
	struct inode *file = at(gpu(0), "file");
	uint64_t ino = file->ino;

	ck_assert_int_eq(write_to(file, "several", 7, 0), 7);
	for (unsigned i = 0; i < 3; i++)
		act_lease(&actors[i], file);
	for (unsigned claimed = 0; claimed < 3; claimed++) {
		ck_assert_int_eq(second_up(FS_MOUNT_KEPT), 0);
		file = inode_find(&second, ino);
		ck_assert_uint_eq(file_leases(file->file), 3);
		for (unsigned i = 0; i < claimed; i++)
			ck_assert(unclaimed_lease_adopt(&second, file));
		unclaimed_leases_end(&second);
		ck_assert_uint_eq(file_leases(file->file), claimed);
		ck_assert_uint_eq(file->uses.leases, claimed);
		ck_assert_int_eq(shrink(&second, file), claimed ? -EBUSY : 0);
		file_unlease(file->file, claimed);
		inode_lease_put(&second, file, claimed);
		inode_put(&second, file, claimed);
		ck_assert_int_eq(shrink(&second, file), 0);
		second_down();
	}
	file = inode_find(&fixture, ino);
	for (unsigned i = 0; i < 3; i++)
		act_lease(&actors[i], file);
}
END_TEST

/* A write and a copy that get no memory make no change that the next daemon does not know. */
START_TEST(nothing_was_taken)
{
	static const char piece[100000], byte;
	struct inode *dir = gpu(0);
	struct inode_call call;

	ck_assert_int_eq(
	    inode_attr_set(&fixture, worker_copier(&fixture), dir, ATTR_QUOTA_BYTES, "1M", 2, 0),
	    0);
	ck_assert_int_eq(make_file(dir, "file"), 0);
	ck_assert_int_eq(make_file(gpu(1), "other"), 0);
	struct inode *file = at(dir, "file"), *other = at(gpu(1), "other");

	ck_assert_int_eq(write_to(other, &byte, 1, 0), 1);
	inode_looked_up(file);
	inode_ref(file);
	handle_open(file);
	for (uint64_t at = 0; at < 2 * sizeof(piece); at += sizeof(piece))
		ck_assert_int_eq(write_to(file, piece, sizeof(piece), at), sizeof(piece));
	/* The file has preallocated memory beyond its end. */
	ck_assert_uint_lt(file_allocated(file->file), file->charges.bytes);
	expect_same();
	ck_assert_int_eq(write_to(file, &byte, 1, 3 * MIB), -EDQUOT);
	expect_same();
	inode_call_init(&call, &fixture, file, worker_copier(&fixture));
	ck_assert_int_eq(file_copy(other->file, 0, file->file, &call.call, 3 * MIB, 1), -EDQUOT);
	expect_same();
	handle_close(file);
	inode_forget(&fixture, file, 1);
}
END_TEST

/* On a new mount no process has a file open. */
START_TEST(new_mount)
{
	struct tree_new what = {.mode = S_IFREG | 0600};
	struct actor actor = {0};
	struct inode *nameless, *named;

	ck_assert_int_eq(tree_tmpfile(&fixture, gpu(0), &what, &nameless), 0);
	actor_keep(&actor, nameless);
	ck_assert_int_eq(write_to(nameless, "bytes", 5, 0), 5);
	ck_assert_int_eq(tree_create(&fixture, gpu(0), "named", &what, &named), 0);
	actor.random = 5;
	actor_keep(&actor, named);
	uint64_t gone = nameless->ino, stays = named->ino;

	ck_assert_int_eq(second_up(FS_MOUNT_NEW), 0);
	ck_assert_ptr_null(inode_find(&second, gone));
	ck_assert_uint_eq(pool_usage(second.volumes[0].pool).span_bytes, 0);
	ck_assert_uint_eq(inode_find(&second, stays)->uses.opens, 0);
	ck_assert_uint_eq(inode_find(&second, stays)->refs, 1);
	/* The next daemon of the new mount also finds no open file. */
	third_up(FS_MOUNT_KEPT);
	ck_assert_uint_eq(inode_find(&third, stays)->uses.opens, 0);
	ck_assert_uint_eq(inode_find(&third, stays)->uses.writers, 0);
	third_down();
	second_down();
	actor_end(&actor);
}
END_TEST

/* A daemon that cannot use the state leaves the state unchanged. */
START_TEST(refused)
{
	struct journal_header *header = fixture.journal->header;

	ck_assert_int_eq(make_file(gpu(0), "file"), 0);
	ck_assert_int_eq(write_to(at(gpu(0), "file"), "bytes", 5, 0), 5);
	log_setup(LOG_LEVEL_ERROR, 0);
	for (int what = 0; what < 4; what++) {
		struct journal_header was = *header;

		header->version += what == 0;
		header->broken += what == 1;
		header->magic += what == 2;
		header->volumes[1][0] ^= what == 3;
		ck_assert_int_eq(second_up(FS_MOUNT_KEPT), what == 3 ? -ENODEV : -EUCLEAN);
		hash_seed = first_seed;
		ck_assert_uint_eq(left.n, held.n);
		held_free(&left);
		*header = was;
	}
	expect_same();
}
END_TEST

/* A daemon without a keeper's descriptor for memory does not hand out the memory, which would be
 * lost with the daemon. */
START_TEST(nobody_holds)
{
	ck_assert_int_eq(make_file(gpu(0), "file"), 0);
	ck_assert_int_eq(make_file(inode_find(&fixture, fixture.volumes[2].root_ino), "file"), 0);
	held.refuse = -EMFILE;
	log_setup(LOG_LEVEL_ERROR, 0);
	ck_assert_int_eq(write_to(at(gpu(0), "file"), "bytes", 5, 0), -ENOSPC);
	ck_assert_int_eq(
	    write_to(at(inode_find(&fixture, fixture.volumes[2].root_ino), "file"), "bytes", 5, 0),
	    -ENOSPC);
	held.refuse = 0;
	expect_same();
}
END_TEST

/* The numbers of deleted inodes are not used again. */
START_TEST(numbers_are_not_used_again)
{
	uint64_t inos[50];

	for (int i = 0; i < 50; i++) {
		ck_assert_int_eq(make_file(gpu(0), "file"), 0);
		inos[i] = at(gpu(0), "file")->ino;
		ck_assert_int_eq(tree_unlink(&fixture, gpu(0), "file"), 0);
	}
	ck_assert_int_eq(second_up(FS_MOUNT_KEPT), 0);
	for (int i = 0; i < 50; i++) {
		struct tree_new what = {.mode = S_IFREG | 0600};
		struct inode *top = inode_find(&second, second.volumes[0].root_ino), *inode;

		ck_assert_int_eq(tree_create(&second, top, "file", &what, &inode), 0);
		for (int k = 0; k < 50; k++)
			ck_assert_uint_ne(inode->ino, inos[k]);
		inode_put(&second, inode, 1);
		ck_assert_int_eq(tree_unlink(&second, top, "file"), 0);
	}
	second_down();
}
END_TEST

/* The lock of the journal keeps out other daemons, and other processes that got the journal's
 * descriptor from the keeper. */
START_TEST(one_at_a_time)
{
	int fd = held_take(&held, fdstore_id(FDSTORE_JOURNAL, 0));
	char path[32];

	snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	int other = open(path, O_RDWR | O_CLOEXEC);

	ck_assert_int_eq(flock(other, LOCK_EX | LOCK_NB), -1);
	ck_assert_int_eq(errno, EWOULDBLOCK);
	daemon_down(&fixture);
	ck_assert_int_eq(flock(other, LOCK_EX | LOCK_NB), 0);
	close(other);
	close(fd);
	ck_assert_int_eq(daemon_up(&fixture, &fdstore, FS_MOUNT_KEPT), 0);
}
END_TEST

/* Several generations of daemons, one after the other. */
START_TEST(generations)
{
	struct actor actor = {.random = unit_seed()};

	for (int generation = 0; generation < 6; generation++) {
		for (unsigned step = 0; step < 60; step++)
			act(&actor, ACTS);
		actor_end(&actor);
		if (generation % 2)
			checkpoint(&fixture);
		char *before = describe(&fixture, DESCRIBE_ALL);
		static struct held next;

		held_freeze(&held, FREEZE_JOURNAL, &next);
		daemon_down(&fixture);
		held_free(&held);
		held = next;
		ck_assert_int_eq(daemon_up(&fixture, &fdstore, FS_MOUNT_KEPT), 0);
		char *after = describe(&fixture, DESCRIBE_ALL);

		ck_assert(same_text(before, after, stderr));
		free(before);
		free(after);
	}
}
END_TEST

int main(void)
{
	TCase *tcase;
	Suite *suite = unit_suite("restore", &tcase, 60);

	tcase_add_checked_fixture(tcase, up, down);
	tcase_add_test(tcase, nothing_but_the_top);
	tcase_add_test(tcase, names_of_every_kind);
	tcase_add_test(tcase, empty_on_a_gpu_meanwhile);
	tcase_add_test(tcase, extended_attributes);
	tcase_add_test(tcase, requests);
	tcase_add_test(tcase, requests_of_daemons_before);
	tcase_add_test(tcase, requests_of_mounts_before);
	tcase_add_test(tcase, leases);
	tcase_add_test(tcase, every_attribute_value);
	tcase_add_test(tcase, several_leases);
	tcase_add_test(tcase, nothing_was_taken);
	tcase_add_test(tcase, new_mount);
	tcase_add_test(tcase, refused);
	tcase_add_test(tcase, devices_of_the_last_daemon);
	tcase_add_test(tcase, nobody_holds);
	tcase_add_test(tcase, numbers_are_not_used_again);
	tcase_add_test(tcase, one_at_a_time);
	tcase_add_test(tcase, generations);
	tcase_add_loop_test(tcase, whatever_happens, 0, unit_rounds(5, 16));
	return unit_main(suite);
}
