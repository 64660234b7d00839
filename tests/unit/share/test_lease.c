/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* Which leases are refused, and which end: lease_timeout= goes by the age of a lease, whatever
 * becomes of the machine's clock. The clocks here are this program's: the functions below replace
 * libc's. */
#include <errno.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "common/clock.h"
#include "fs/ledger/ledger.h"
#include "fs/share/internal.h"
#include "tests/unit/fs_fixture.h"
#include "tests/unit/unit.h"

#define HOUR 3600

static _Atomic time_t wall_ahead, monotonic_ahead; /* seconds */

int clock_gettime(clockid_t clock, struct timespec *now)
{
	int error = (int)syscall(SYS_clock_gettime, clock, now);
	bool is_wall = clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE;

	if (error == 0)
		now->tv_sec += is_wall ? wall_ahead : monotonic_ahead;
	return error;
}

time_t time(time_t *result)
{
	struct timespec now;

	clock_gettime(CLOCK_REALTIME, &now);
	if (result)
		*result = now.tv_sec;
	return now.tv_sec;
}

static struct share share;
static struct share_connection connection;
static int client;

static void attributes_changed(struct session *session, uint64_t ino)
{
	(void)session;
	(void)ino;
}

static void sharing_up(void)
{
	int ends[2];

	fixture_up();
	fixture.options.lease_timeout = HOUR;
	ck_assert_int_eq(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends), 0);
	share = (struct share){.fs = &fixture, .changed = attributes_changed};
	pthread_mutex_init(&share.lock, NULL);
	connection = (struct share_connection){
	    .fd = ends[0], .pid = getpid(), .uid = getuid(), .slot = PERSIST_NO_SLOT};
	client = ends[1];
	atomic_store(&sharing_of(&fixture)->share, &share);
}

static void sharing_down(void)
{
	share_leases_end(&share, &connection);
	atomic_store(&sharing_of(&fixture)->share, NULL);
	close(client);
	close(connection.fd);
	pthread_mutex_destroy(&share.lock);
	fixture_down();
}

static int lease(struct inode *inode)
{
	struct share_ask ask = {
	    .inode = inode, .access = GPUMEM_ACCESS_WRITE, .pid = getpid(), .uid = getuid()};

	return share_lease(&share, &connection, &ask, FILE_MAY_WAIT);
}

static struct inode *leased(void)
{
	ck_assert_int_eq(make_file(gpu(0), "file"), 0);
	struct inode *inode = at(gpu(0), "file");

	ck_assert_int_eq(write_to(inode, "bytes", 5, 0), 5);
	ck_assert_int_eq(lease(inode), 0);
	return inode;
}

/* Chunks that processes keep are charged beyond their limit, but then their owner's files go out to
 * no more processes. */
START_TEST(who_keeps_too_many_chunks_gets_no_lease)
{
	struct inode *inode = leased();
	uid_t owner = atomic_load(&inode->uid);
	uint64_t limit = ledger_limit(&fixture, LEDGER_HELD_CHUNKS);

	ck_assert_int_eq(ledger_restore(&fixture, owner, LEDGER_HELD_CHUNKS, limit - 1), 0);
	ck_assert_int_eq(lease(inode), 0);
	ck_assert_int_eq(ledger_restore(&fixture, owner, LEDGER_HELD_CHUNKS, 1), 0);
	ck_assert_int_eq(lease(inode), -EMFILE);
	ledger_give(&fixture, owner, LEDGER_HELD_CHUNKS, limit);
	ck_assert_int_eq(lease(inode), 0);
}
END_TEST

/* The clocks are set back at once: the test library measures time, too. */
static bool drop_expired_at(struct inode *inode, time_t wall, time_t monotonic)
{
	wall_ahead = wall;
	monotonic_ahead = monotonic;
	bool dropped = share_drop_expired(&fixture, inode);

	wall_ahead = monotonic_ahead = 0;
	return dropped;
}

START_TEST(the_wall_clock_ends_no_lease)
{
	struct inode *inode = leased();

	ck_assert(!drop_expired_at(inode, 2 * HOUR, 0));
	ck_assert_uint_eq(file_leases(inode->file), 1);
}
END_TEST

START_TEST(the_wall_clock_keeps_no_lease)
{
	struct inode *inode = leased();

	ck_assert(!drop_expired_at(inode, -2 * HOUR, HOUR - 60));
	ck_assert(drop_expired_at(inode, -2 * HOUR, HOUR + 1));
	ck_assert_uint_eq(file_leases(inode->file), 0);
}
END_TEST

/* Lists show when a lease began by the clock that their reader has. */
START_TEST(the_start_is_told_by_the_wall_clock)
{
	int64_t before = time(NULL), since = clock_ns();

	wall_ahead = monotonic_ahead = HOUR;
	int64_t told = clock_epoch_seconds(since);

	wall_ahead = monotonic_ahead = 0;
	ck_assert_int_ge(told, before);
	ck_assert_int_lt(told, before + HOUR / 2);
}
END_TEST

int main(void)
{
	TCase *tests;
	Suite *suite = unit_suite("leases", &tests, 120);

	tcase_add_checked_fixture(tests, sharing_up, sharing_down);
	tcase_add_test(tests, who_keeps_too_many_chunks_gets_no_lease);
	tcase_add_test(tests, the_wall_clock_ends_no_lease);
	tcase_add_test(tests, the_wall_clock_keeps_no_lease);
	tcase_add_test(tests, the_start_is_told_by_the_wall_clock);
	return unit_main(suite);
}
