/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* Chunks that files gave up, as two daemons in turn count them; a child process is the keeper. */
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/wait.h>

#include "fs/file/export.h"
#include "fs/file/internal.h"
#include "fs/holders/holds.h"
#include "fs/keeper/fdstore.h"
#include "fs/keeper/internal.h"
#include "fs/keeper/ipc.h"
#include "fs/ledger/ledger.h"
#include "tests/unit/fs_fixture.h"
#include "tests/unit/unit.h"

#define MIB	  (1ULL << 20)
#define BYTES	  (4 * MIB)
#define HOLDS_MAX 100

static pid_t keeper;
static struct fdstore *fdstore;
static const char *options = "backend=host,host_gpus=1,host_size=64M,size=64M";

static void keep_house(int line)
{
	static struct options options = {.mountpoint = "a mount"};
	struct keeper state = {.options = &options,
			       .old_program = -1,
			       .upgrade_fd = -1,
			       .serving = {.pid = 1, .ipc = line}};
	struct ipc_message hello = ipc_message(IPC_WELCOME, 7);
	struct pollfd wait = {.fd = line, .events = POLLIN};

	hello.value = HOLDS_MAX;
	ipc_send(line, &hello, -1);
	while (state.serving.ipc >= 0 && poll(&wait, 1, -1) > 0)
		while (keeper_receive(&state, &state.serving))
			;
	_exit(0);
}

static void fs_start(void)
{
	char *argv[] = {"gpumemfs",	   "/tmp", "-o", (char *)(uintptr_t)options, "-o",
			"log_level=error", NULL};

	memset(&fixture, 0, sizeof(fixture));
	ck_assert_int_eq(options_parse(6, argv, &fixture.options), 0);
	log_setup(LOG_LEVEL_ERROR, LOG_TO_TERMINAL);
	fixture.can.max_write = 65536;
	fixture.fdstore = fdstore;
	ck_assert_int_eq(fs_open(&fixture), 0);
}

static void up(void)
{
	static char *argv[] = {"gpumemfs", "--line=0", NULL};
	int ends[2];

	ck_assert_int_eq(ipc_pair(ends), 0);
	keeper = fork();
	if (keeper == 0) {
		close(ends[0]);
		keep_house(ends[1]);
	}
	close(ends[1]);
	ck_assert_int_eq(fdstore_open(ends[0], argv, &fdstore), 0);
	fs_start();
}

static void down(void)
{
	fixture_down();
	fdstore_close(fdstore);
	ck_assert_int_eq(waitpid(keeper, NULL, 0), keeper);
}

/* A process that has made a connection. */
struct peer {
	pid_t pid;
	int connection;
	struct receiver *receiver;
};

static struct peer peer_start(void)
{
	struct sockaddr address = {.sa_family = AF_UNIX};
	struct sockaddr_storage name;
	socklen_t bytes = sizeof(name);
	struct peer peer;
	char ready;
	/* The credentials of a pair are the caller's: the child makes the connection by itself. */
	int listener = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);

	ck_assert_int_eq(bind(listener, &address, sizeof(sa_family_t)), 0);
	ck_assert_int_eq(listen(listener, 1), 0);
	ck_assert_int_eq(getsockname(listener, (struct sockaddr *)&name, &bytes), 0);
	peer.pid = fork();
	if (peer.pid == 0) {
		int fd = socket(AF_UNIX, SOCK_SEQPACKET, 0);

		if (connect(fd, (struct sockaddr *)&name, bytes) == 0)
			send(fd, "r", 1, 0);
		pause();
		_exit(0);
	}
	peer.connection = accept(listener, NULL, NULL);
	ck_assert_int_eq(recv(peer.connection, &ready, 1, 0), 1);
	close(listener);
	ck_assert_int_eq(receiver_get(&fixture, peer.connection, peer.pid, 1, &peer.receiver), 0);
	return peer;
}

static void peer_end(struct peer *peer)
{
	kill(peer->pid, SIGKILL);
	ck_assert_int_eq(waitpid(peer->pid, NULL, 0), peer->pid);
	holds_collect(&fixture);
}

static struct inode *file_with_no_memory(const char *name, uid_t uid)
{
	struct tree_new what = {.mode = S_IFREG | 0600, .uid = uid};
	struct inode *inode;

	ck_assert_int_eq(tree_create(&fixture, gpu(0), name, &what, &inode), 0);
	return inode;
}

static struct inode *file_with_memory(const char *name, uid_t uid)
{
	struct inode *inode = file_with_no_memory(name, uid);
	struct inode_call call;

	inode_call_init(&call, &fixture, inode, worker_copier(&fixture));
	ck_assert_int_eq(file_allocate(inode->file, &call.call, 0, 0, BYTES), 0);
	return inode;
}

/* The peer receives the memory and releases its lease. */
static void give(struct inode *inode, struct peer *peer)
{
	struct file_chunk chunk;
	struct file_place place;
	struct inode_call call;

	inode_call_init(&call, &fixture, inode, worker_copier(&fixture));
	ck_assert_int_eq(receiver_note(&fixture, peer->receiver, inode->ino), 0);
	ck_assert_int_eq(file_lease(inode->file, &call.call, FILE_SHARE_WRITE, FILE_MAY_WAIT),
			 FILE_LEASE_HOLDS);
	ck_assert_int_eq(
	    file_export(inode->file, NULL, FILE_SHARE_WRITE, FILE_MAY_WAIT, 0, &chunk, 1, &place),
	    1);
	file_chunks_close(&chunk, 1);
	file_unlease(inode->file, 1);
}

/* A file of a chunk that the peer has received. */
static struct inode *file_given(const char *name, struct peer *peer)
{
	struct inode *inode = file_with_memory(name, 1);

	give(inode, peer);
	return inode;
}

static void file_remove(const char *name, struct inode *inode)
{
	ck_assert_int_eq(tree_unlink(&fixture, gpu(0), name), 0);
	inode_put(&fixture, inode, 1);
}

static uint64_t held(void)
{
	return pool_usage(fixture.volumes[0].pool).held_bytes;
}

static uint64_t counted(void)
{
	return pool_usage(fixture.volumes[0].pool).chunk_bytes;
}

static int64_t charged(void)
{
	return atomic_load(&gpu(0)->dir->rbytes);
}

/* Leases that did not end by a release: the memory goes back to the driver. */
static void unclean(struct inode *inode)
{
	file_set_unclean(inode->file);
}

START_TEST(charged_until_the_last_process_ends)
{
	struct peer first = peer_start(), second = peer_start();
	struct inode *inode = file_given("a", &first);

	ck_assert_int_eq(receiver_note(&fixture, second.receiver, inode->ino), 0);
	unclean(inode);
	file_remove("a", inode);
	ck_assert_uint_eq(held(), BYTES);
	ck_assert_int_eq(charged(), (int64_t)BYTES);
	peer_end(&first);
	ck_assert_uint_eq(held(), BYTES);
	peer_end(&second);
	ck_assert_uint_eq(held(), 0);
	ck_assert_uint_eq(counted(), 0);
	ck_assert_int_eq(charged(), 0);
	receiver_put(&fixture, first.receiver);
	receiver_put(&fixture, second.receiver);
}
END_TEST

/* A process that received memory after a chunk was given up does not keep the chunk. */
START_TEST(later_processes_keep_no_earlier_chunk)
{
	struct peer first = peer_start(), second = peer_start();
	struct inode *inode = file_given("a", &first);
	struct inode_call call;

	unclean(inode);
	inode_call_init(&call, &fixture, inode, worker_copier(&fixture));
	ck_assert_int_eq(file_truncate(inode->file, &call.call, 0), 0);
	ck_assert_uint_eq(held(), BYTES);
	ck_assert_int_eq(receiver_note(&fixture, second.receiver, inode->ino), 0);
	peer_end(&first);
	ck_assert_uint_eq(held(), 0);
	file_remove("a", inode);
	peer_end(&second);
	receiver_put(&fixture, first.receiver);
	receiver_put(&fixture, second.receiver);
}
END_TEST

START_TEST(a_released_chunk_is_taken_again)
{
	struct peer peer = peer_start();
	struct inode *inode = file_given("a", &peer);

	file_remove("a", inode);
	ck_assert_uint_eq(holds_shelved(&fixture, 1, &fixture.volumes[0]), BYTES);
	ck_assert_uint_eq(counted(), BYTES);
	ck_assert_uint_eq(ledger_count(&fixture, 1, LEDGER_DESCRIPTORS), LEDGER_DESCRIPTOR);
	inode = file_given("b", &peer);
	ck_assert_uint_eq(ledger_count(&fixture, 1, LEDGER_DESCRIPTORS), LEDGER_DESCRIPTOR);
	ck_assert_uint_eq(holds_shelved(&fixture, 1, &fixture.volumes[0]), 0);
	ck_assert_uint_eq(counted(), BYTES);
	ck_assert_int_eq(charged(), (int64_t)BYTES);
	file_remove("b", inode);
	ck_assert_int_eq(charged(), (int64_t)BYTES);
	peer_end(&peer);
	ck_assert_uint_eq(counted(), 0);
	ck_assert_int_eq(charged(), 0);
	receiver_put(&fixture, peer.receiver);
}
END_TEST

/* Who may have no more descriptors loses the chunk to the driver. */
/* The bytes of the former file are not the next file's. */
START_TEST(a_chunk_that_is_taken_again_is_zero)
{
	static char content[BYTES], zeroes[BYTES];
	struct peer peer = peer_start();
	struct inode *inode = file_given("a", &peer);
	struct inode_call call;

	memset(content, 'a', BYTES);
	inode_call_init(&call, &fixture, inode, worker_copier(&fixture));
	ck_assert_int_eq(file_write(inode->file, &call.call, content, BYTES, 0), BYTES);
	file_remove("a", inode);
	ck_assert_uint_eq(holds_shelved(&fixture, 1, &fixture.volumes[0]), BYTES);
	inode = file_with_memory("b", 1);
	ck_assert_uint_eq(holds_shelved(&fixture, 1, &fixture.volumes[0]), 0);
	inode_call_init(&call, &fixture, inode, worker_copier(&fixture));
	ck_assert_int_eq(file_read(inode->file, &call.call, content, BYTES, 0), BYTES);
	ck_assert_mem_eq(content, zeroes, BYTES);
	file_remove("b", inode);
	peer_end(&peer);
	receiver_put(&fixture, peer.receiver);
}
END_TEST

START_TEST(a_chunk_on_the_shelf_costs_a_descriptor)
{
	struct peer peer = peer_start();
	struct inode *inode = file_given("a", &peer);
	uint64_t limit = ledger_limit(&fixture, LEDGER_DESCRIPTORS);

	ck_assert_int_eq(ledger_restore(&fixture, 1, LEDGER_DESCRIPTORS, limit), 0);
	file_remove("a", inode);
	ck_assert_uint_eq(holds_shelved(&fixture, 1, &fixture.volumes[0]), 0);
	ck_assert_uint_eq(held(), BYTES);
	ledger_give(&fixture, 1, LEDGER_DESCRIPTORS, limit);
	ck_assert_uint_eq(ledger_count(&fixture, 1, LEDGER_DESCRIPTORS), 0);
	peer_end(&peer);
	receiver_put(&fixture, peer.receiver);
}
END_TEST

static void file_give_away(struct inode *inode, uid_t uid)
{
	struct tree_attrs attrs = {.mask = TREE_UID, .uid = uid};

	ck_assert_int_eq(tree_set_attrs(&fixture, inode, &attrs), 0);
}

/* A process of the former owner still has the chunk: no file of the new owner may get it. */
START_TEST(a_chunk_does_not_go_to_a_new_owner)
{
	struct peer peer = peer_start();
	struct inode *inode = file_given("a", &peer);

	file_remove("a", inode);
	inode = file_with_memory("b", 1);
	ck_assert_uint_eq(counted(), BYTES);
	file_give_away(inode, 2);
	file_remove("b", inode);
	ck_assert_uint_eq(holds_shelved(&fixture, 2, &fixture.volumes[0]), 0);
	ck_assert_uint_eq(held(), BYTES);
	peer_end(&peer);
	ck_assert_uint_eq(counted(), 0);
	receiver_put(&fixture, peer.receiver);
}
END_TEST

/* Nor does a file that changes its owner take chunks of files that the former owner removed, or
 * keep a chunk that a process of the former owner has. */
START_TEST(a_file_is_renewed_for_a_new_owner)
{
	struct peer peer = peer_start();
	struct inode *inode = file_given("a", &peer), *other;
	struct inode_call call;

	file_remove("a", inode);
	inode = file_with_memory("b", 1);
	inode_call_init(&call, &fixture, inode, worker_copier(&fixture));
	ck_assert_uint_eq(held(), 0);
	ck_assert_int_eq(file_renew(inode->file, &call.call), 0);
	ck_assert_uint_eq(held(), BYTES);
	ck_assert_uint_eq(counted(), 2 * BYTES);

	other = file_given("c", &peer);
	file_remove("c", other);
	ck_assert_uint_eq(holds_shelved(&fixture, 1, &fixture.volumes[0]), BYTES);
	ck_assert_int_eq(file_allocate(inode->file, &call.call, 0, 0, 2 * BYTES), 0);
	ck_assert_uint_eq(holds_shelved(&fixture, 1, &fixture.volumes[0]), BYTES);
	file_remove("b", inode);
	peer_end(&peer);
	ck_assert_uint_eq(counted(), 0);
	receiver_put(&fixture, peer.receiver);
}
END_TEST

/* A chunk of a file may become several, each with a descriptor that the file pays for. */
START_TEST(a_renewed_file_pays_for_all_chunks)
{
	struct peer peer = peer_start();
	struct inode *inode = file_given("a", &peer);
	struct inode_call call;

	fixture.volumes[0].max_chunk = BYTES / 2;
	inode_call_init(&call, &fixture, inode, worker_copier(&fixture));
	call.overdraft = call.unasked = true;
	ck_assert_int_eq(file_renew(inode->file, &call.call), 0);
	ck_assert_uint_eq(inode->file->extents.count, 2);
	ck_assert_uint_eq(ledger_count(&fixture, 1, LEDGER_DESCRIPTORS), 2 * LEDGER_DESCRIPTOR);
	file_remove("a", inode);
	ck_assert_uint_eq(ledger_count(&fixture, 1, LEDGER_DESCRIPTORS), 0);
	peer_end(&peer);
	ck_assert_uint_eq(counted(), 0);
	receiver_put(&fixture, peer.receiver);
}
END_TEST

/* A file whose quota has no room for the chunk does not get it, and is not charged for it. */
START_TEST(a_chunk_that_is_refused_stays_as_it_was)
{
	struct peer peer = peer_start();
	struct inode *inode = file_given("a", &peer), *small;
	struct tree_new what = {.mode = S_IFREG | 0600, .uid = 1};
	struct inode_call call;

	file_remove("a", inode);
	ck_assert_int_eq(make_dir(gpu(0), "small"), 0);
	small = at(gpu(0), "small");
	atomic_store(&small->dir->max_bytes, BYTES / 2);
	ck_assert_int_eq(tree_create(&fixture, small, "b", &what, &inode), 0);
	inode_call_init(&call, &fixture, inode, worker_copier(&fixture));
	ck_assert_int_eq(file_allocate(inode->file, &call.call, 0, 0, BYTES), -EDQUOT);
	ck_assert_int_eq(atomic_load(&small->dir->rbytes), 0);
	ck_assert_uint_eq(holds_shelved(&fixture, 1, &fixture.volumes[0]), BYTES);
	ck_assert_int_eq(charged(), (int64_t)BYTES);
	ck_assert_uint_eq(counted(), BYTES);
	inode_put(&fixture, inode, 1);
	peer_end(&peer);
	ck_assert_int_eq(charged(), 0);
	receiver_put(&fixture, peer.receiver);
}
END_TEST

/* A file that takes the chunk and does not get the rest gives the chunk up: the process still has
 * it. */
START_TEST(a_chunk_of_a_refused_file_stays_charged)
{
	struct peer peer = peer_start();
	struct inode *inode = file_given("a", &peer);
	struct inode_call call;

	file_remove("a", inode);
	atomic_store(&gpu(0)->dir->max_bytes, BYTES);
	inode = file_with_no_memory("b", 1);
	inode_call_init(&call, &fixture, inode, worker_copier(&fixture));
	ck_assert_int_eq(file_allocate(inode->file, &call.call, 0, 0, 2 * BYTES), -EDQUOT);
	ck_assert_uint_eq(holds_shelved(&fixture, 1, &fixture.volumes[0]), 0);
	ck_assert_int_eq(charged(), (int64_t)BYTES);
	ck_assert_uint_eq(held(), BYTES);
	file_remove("b", inode);
	peer_end(&peer);
	ck_assert_int_eq(charged(), 0);
	ck_assert_uint_eq(counted(), 0);
	receiver_put(&fixture, peer.receiver);
}
END_TEST

/* A process that uses a file goes on with the file's memory, as with a mapping elsewhere. */
START_TEST(a_leased_file_keeps_its_memory)
{
	struct peer peer = peer_start();
	struct inode *inode = file_given("a", &peer);
	const struct chunk *before = inode->file->extents.at[0].span.chunk;
	struct inode_call call;

	inode_call_init(&call, &fixture, inode, worker_copier(&fixture));
	ck_assert_int_eq(file_lease(inode->file, &call.call, FILE_SHARE_WRITE, FILE_MAY_WAIT),
			 FILE_LEASE_HOLDS);
	ck_assert_int_eq(file_renew(inode->file, &call.call), 0);
	ck_assert_ptr_eq(inode->file->extents.at[0].span.chunk, before);
	file_unlease(inode->file, 1);
	ck_assert_int_eq(file_renew(inode->file, &call.call), 0);
	ck_assert_uint_eq(held(), BYTES);
	file_remove("a", inode);
	peer_end(&peer);
	receiver_put(&fixture, peer.receiver);
}
END_TEST

/* A process gets more memory each time the file gets other memory, but not beyond the quota. */
static void check_quota(int (*rewrite)(struct inode *inode, struct inode_call *call))
{
	struct peer peer = peer_start();
	struct inode *inode = file_given("a", &peer);
	struct inode_call call;
	int rc = 0;

	atomic_store(&gpu(0)->dir->max_bytes, 3 * BYTES);
	inode_call_init(&call, &fixture, inode, worker_copier(&fixture));
	for (int tries = 0; rc == 0 && tries < 8; tries++) {
		rc = rewrite(inode, &call);
		give(inode, &peer);
	}
	ck_assert_int_eq(rc, -EDQUOT);
	ck_assert_int_le(charged(), 3 * (int64_t)BYTES);
	file_remove("a", inode);
	peer_end(&peer);
	ck_assert_int_eq(charged(), 0);
	ck_assert_uint_eq(counted(), 0);
	receiver_put(&fixture, peer.receiver);
}

static int lay_out_again(struct inode *inode, struct inode_call *call)
{
	return file_relayout(inode->file, &call->call);
}

START_TEST(a_quota_binds_page_size)
{
	check_quota(lay_out_again);
}
END_TEST

static void up_with_spill(void)
{
	options = "backend=host,host_gpus=1,host_size=64M,spill=host:16M";
	up();
}

/* The memory is free for other programs, although the process that received the chunk lives. */
START_TEST(a_file_that_leaves_frees_its_chunk)
{
	struct peer peer = peer_start();
	struct inode *inode = file_given("a", &peer);
	struct device_memory before, after;
	struct inode_call call;

	inode_call_init(&call, &fixture, inode, worker_copier(&fixture));
	ck_assert_int_eq(device_memory(fixture.volumes[0].device, &before), 0);
	ck_assert_int_eq(file_place_all(inode->file, &call.call, PLACE_HOST), 0);
	ck_assert_int_eq(device_memory(fixture.volumes[0].device, &after), 0);
	ck_assert_uint_eq(after.free, before.free + BYTES);
	ck_assert_uint_gt(held(), 0);
	file_remove("a", inode);
	peer_end(&peer);
	ck_assert_uint_eq(counted(), 0);
	receiver_put(&fixture, peer.receiver);
}
END_TEST

/* To the place where the file is not. */
static int place_elsewhere(struct inode *inode, struct inode_call *call)
{
	bool there = file_bytes_in(inode->file, PLACE_HOST);

	return file_place_all(inode->file, &call->call, there ? PLACE_GPU : PLACE_HOST);
}

START_TEST(a_quota_binds_resident)
{
	check_quota(place_elsewhere);
}
END_TEST

static bool is_used(void *used, uint64_t chunk)
{
	(void)chunk;
	return used;
}

/* The next daemon charges for chunks that no file has, as long as the process lives. */
START_TEST(the_next_daemon_counts)
{
	struct peer lives = peer_start(), ends = peer_start();
	struct inode *inode = file_given("a", &lives);

	unclean(inode);
	file_remove("a", inode);
	inode = file_given("b", &ends);
	unclean(inode);
	file_remove("b", inode);
	receiver_put(&fixture, lives.receiver);
	receiver_put(&fixture, ends.receiver);
	ck_assert_uint_eq(held(), 2 * BYTES);
	fixture_down();
	kill(ends.pid, SIGKILL);
	ck_assert_int_eq(waitpid(ends.pid, NULL, 0), ends.pid);

	fs_start();
	ck_assert_int_eq(holds_restore(&fixture, is_used, NULL), 0);
	ck_assert_uint_eq(held(), BYTES);
	ck_assert_int_eq(charged(), (int64_t)BYTES);
	fixture_down();

	/* A file has the chunk again: the daemon was killed before the record of the change. */
	fs_start();
	ck_assert_int_eq(holds_restore(&fixture, is_used, &fixture), 0);
	ck_assert_uint_eq(held(), 0);
	peer_end(&lives);
}
END_TEST

/* A daemon that is killed between a chunk's way off the shelf and the record of it leaves a chunk
 * that no file has: the next daemon charges for the chunk. */
START_TEST(the_next_daemon_counts_a_chunk_that_was_taken)
{
	struct peer peer = peer_start();
	struct inode *inode = file_given("a", &peer);
	struct inode_call call;
	struct span span;

	file_remove("a", inode);
	inode = file_with_no_memory("b", 1);
	inode_call_init(&call, &fixture, inode, worker_copier(&fixture));
	ck_assert_int_eq(
	    call.call.holds->take(&call.call, &fixture.volumes[0], PLACE_GPU, BYTES, 0, &span), 0);
	ck_assert_uint_eq(held(), 0);
	receiver_put(&fixture, peer.receiver);
	pool_free_span(fixture.volumes[0].pool, &span);
	file_charge_place(&call.call, PLACE_GPU, -(int64_t)BYTES);
	inode_put(&fixture, inode, 1);
	fixture_down();

	fs_start();
	ck_assert_int_eq(holds_restore(&fixture, is_used, NULL), 0);
	ck_assert_uint_eq(held(), BYTES);
	ck_assert_int_eq(charged(), (int64_t)BYTES);
	peer_end(&peer);
	ck_assert_uint_eq(held(), 0);
}
END_TEST

/* With the record the file pays, and the next daemon reads of no other payer. */
START_TEST(the_next_daemon_counts_a_recorded_chunk_once)
{
	struct peer peer = peer_start();
	struct inode *inode = file_given("a", &peer);

	file_remove("a", inode);
	inode = file_with_memory("b", 1);
	ck_assert_uint_eq(held(), 0);
	receiver_put(&fixture, peer.receiver);
	inode_put(&fixture, inode, 1);
	fixture_down();

	fs_start();
	ck_assert_int_eq(holds_restore(&fixture, is_used, NULL), 0);
	ck_assert_uint_eq(held(), 0);
	ck_assert_int_eq(charged(), 0);
	peer_end(&peer);
}
END_TEST

#define ROUNDS 200

static void *files_give_up(void *pointer)
{
	struct peer *peer = pointer;
	char name[32];

	snprintf(name, sizeof(name), "of%d", peer->pid);
	for (int i = 0; i < ROUNDS; i++) {
		struct inode *inode = file_given(name, peer);

		if (i % 2)
			unclean(inode);
		file_remove(name, inode);
		/* Each process ends in the midst of other threads' work. */
		if (i % 4 == 3) {
			peer_end(peer);
			receiver_put(&fixture, peer->receiver);
			close(peer->connection);
			*peer = peer_start();
		}
	}
	worker_end();
	return NULL;
}

START_TEST(threads)
{
	struct peer peers[3];
	pthread_t threads[3];

	for (int i = 0; i < 3; i++) {
		peers[i] = peer_start();
		ck_assert_int_eq(pthread_create(&threads[i], NULL, files_give_up, &peers[i]), 0);
	}
	for (int i = 0; i < 3; i++)
		pthread_join(threads[i], NULL);
	for (int i = 0; i < 3; i++) {
		peer_end(&peers[i]);
		receiver_put(&fixture, peers[i].receiver);
	}
	ck_assert_uint_eq(counted(), 0);
	ck_assert_int_eq(charged(), 0);
}
END_TEST

int main(void)
{
	TCase *tcase, *spills = tcase_create("spill");
	Suite *suite = unit_suite("holds", &tcase, 120);

	tcase_add_checked_fixture(tcase, up, down);
	tcase_add_test(tcase, charged_until_the_last_process_ends);
	tcase_add_test(tcase, later_processes_keep_no_earlier_chunk);
	tcase_add_test(tcase, a_released_chunk_is_taken_again);
	tcase_add_test(tcase, a_chunk_that_is_taken_again_is_zero);
	tcase_add_test(tcase, a_chunk_on_the_shelf_costs_a_descriptor);
	tcase_add_test(tcase, a_chunk_does_not_go_to_a_new_owner);
	tcase_add_test(tcase, a_file_is_renewed_for_a_new_owner);
	tcase_add_test(tcase, a_renewed_file_pays_for_all_chunks);
	tcase_add_test(tcase, a_leased_file_keeps_its_memory);
	tcase_add_test(tcase, a_chunk_that_is_refused_stays_as_it_was);
	tcase_add_test(tcase, a_chunk_of_a_refused_file_stays_charged);
	tcase_add_test(tcase, a_quota_binds_page_size);
	tcase_add_test(tcase, the_next_daemon_counts);
	tcase_add_test(tcase, the_next_daemon_counts_a_chunk_that_was_taken);
	tcase_add_test(tcase, the_next_daemon_counts_a_recorded_chunk_once);
	tcase_add_test(tcase, threads);
	tcase_add_checked_fixture(spills, up_with_spill, down);
	tcase_add_test(spills, a_file_that_leaves_frees_its_chunk);
	tcase_add_test(spills, a_quota_binds_resident);
	suite_add_tcase(suite, spills);
	return unit_main(suite);
}
