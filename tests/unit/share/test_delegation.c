/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* Which leases get read delegations, and which leases must wait until delegations are recalled. */
#include <errno.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#include "common/cleanup.h"
#include "fs/share/internal.h"
#include "fs/tree/inode.h"
#include "fs/turns/turns.h"
#include "tests/unit/unit.h"

static struct fs *fs;
static struct share share;
static struct inode *inode;
static struct share_connection connection = {.pid = 1234, .uid = 5};
static int peer; /* the process's end of the connection */

static void listens(uint32_t flags)
{
	ck_assert_int_eq(share_listen(&share, &connection, flags), 0);
}

static void setup(void)
{
	struct turns *turns = NULL;
	int fds[2];

	ck_assert_int_eq(socketpair(AF_UNIX, SOCK_SEQPACKET, 0, fds), 0);
	connection.fd = fds[0];
	peer = fds[1];
	fs = calloc(1, sizeof(*fs));
	inode = calloc(1, sizeof(*inode));
	ck_assert(fs && inode);
	inode->ino = 7;
	ck_assert_int_eq(turns_open(60, &turns), 0);
	fs->states[FS_TURNS] = turns;
	share.fs = fs;
	ck_assert_int_eq(sharing_open(fs), 0);
	atomic_store(&sharing_of(fs)->share, &share);
	pthread_mutex_init(&share.lock, NULL);
	pthread_cond_init(&share.delegations.answered, NULL);
	listens(GPUMEM_LISTEN_RECALL);
}

static void teardown(void)
{
	share_unlisten(&share, &connection);
	ck_assert_ptr_null(share.recall_listeners);
	ck_assert_ptr_null(share.delegations.files);
	close(connection.fd);
	close(peer);
	turns_stop(turns_of(fs));
	turns_free(turns_of(fs));
	sharing_close(fs);
	free(inode);
	free(fs);
}

static struct share_lease lease(bool loads)
{
	return (struct share_lease){.inode = inode, .access = GPUMEM_ACCESS_WRITE, .loads = loads};
}

static int add(struct share_lease *added, enum file_wait wait)
{
	scoped_lock(&share.lock);
	return delegation_lease_add(&share, &connection, added, wait);
}

static void end(struct share_lease *ended)
{
	scoped_lock(&share.lock);
	delegation_lease_remove(&share, ended);
}

START_TEST(no_delegation_beside_a_lease_that_may_store)
{
	struct share_lease storing = lease(false), beside = lease(true), after = lease(true);

	ck_assert_int_eq(add(&storing, FILE_NO_WAIT), 0);
	ck_assert_int_eq(add(&beside, FILE_NO_WAIT), 0);
	ck_assert(!beside.delegated);
	ck_assert(share_stores(fs, inode));
	end(&storing);
	end(&beside);
	ck_assert_int_eq(add(&after, FILE_NO_WAIT), 0);
	ck_assert(after.delegated);
	end(&after);
}
END_TEST

START_TEST(a_lease_that_cannot_wait_is_not_counted)
{
	struct share_lease loads = lease(true), storing = lease(false), more = lease(true);

	ck_assert_int_eq(add(&loads, FILE_NO_WAIT), 0);
	ck_assert(loads.delegated && delegations_wait(&share, inode->ino));
	ck_assert_int_eq(add(&storing, FILE_NO_WAIT), -EINPROGRESS);
	ck_assert(!share_stores(fs, inode));
	ck_assert_int_eq(add(&more, FILE_NO_WAIT), 0);
	ck_assert(more.delegated);
	ck_assert_int_eq(add(&storing, FILE_MAY_WAIT), 0);
	ck_assert(share_stores(fs, inode));
	end(&loads);
	end(&more);
	end(&storing);
}
END_TEST

START_TEST(copies_and_silent_processes_have_none)
{
	struct share_lease copy = lease(true), silent = lease(true);

	copy.private = true;
	ck_assert_int_eq(add(&copy, FILE_NO_WAIT), 0);
	listens(GPUMEM_LISTEN_PARK | GPUMEM_LISTEN_MEMORY);
	ck_assert_int_eq(add(&silent, FILE_NO_WAIT), 0);
	ck_assert(!copy.delegated && !silent.delegated);
}
END_TEST

START_TEST(the_daemon_s_own_stores)
{
	struct share_lease loads = lease(true);

	ck_assert_int_eq(share_store_begin(&share, inode, FILE_NO_WAIT), 0);
	ck_assert_int_eq(add(&loads, FILE_NO_WAIT), 0);
	ck_assert(!loads.delegated);
	share_store_end(&share, inode);
	end(&loads);
	loads = lease(true);
	ck_assert_int_eq(add(&loads, FILE_NO_WAIT), 0);
	ck_assert_int_eq(share_store_begin(&share, inode, FILE_NO_WAIT), -EINPROGRESS);
	ck_assert(loads.delegated && !share_stores(fs, inode));
	end(&loads);
}
END_TEST

START_TEST(a_file_has_a_limit)
{
	static struct share_lease many[65];
	unsigned delegated = 0;

	for (unsigned i = 0; i < 65; i++) {
		many[i] = lease(true);
		ck_assert_int_eq(add(&many[i], FILE_NO_WAIT), 0);
		delegated += many[i].delegated;
	}
	ck_assert_uint_eq(delegated, 64);
	for (unsigned i = 0; i < 65; i++)
		end(&many[i]);
}
END_TEST

static bool gets_delegation(void)
{
	struct share_lease loads = lease(true);

	ck_assert_int_eq(add(&loads, FILE_NO_WAIT), 0);
	end(&loads);
	return loads.delegated;
}

START_TEST(a_process_that_does_not_answer)
{
	struct share_lease loads = lease(true);
	struct gpumem_msg_notice notice;

	ck_assert_int_eq(add(&loads, FILE_NO_WAIT), 0);
	delegations_recall(&share, inode->ino);
	end(&loads);
	ck_assert_uint_eq(share.delegations.counters.late, 1);
	ck_assert(!gets_delegation());
	ck_assert_int_eq(recv(peer, &notice, sizeof(notice), 0), sizeof(notice));
	ck_assert_uint_eq(notice.what, GPUMEM_NOTICE_RECALL);
	share_noticed(&share, &connection,
		      &(struct share_request){.number = notice.header.request});
	ck_assert(gets_delegation());
}
END_TEST

/* Recalls that each waited would take two minutes, more than the test may. */
START_TEST(a_process_that_is_late_holds_up_one_recall)
{
	struct share_connection again = {.pid = connection.pid, .uid = connection.uid};
	static struct inode inodes[30];
	static struct share_lease leases[30];

	for (unsigned i = 0; i < 30; i++) {
		inodes[i].ino = 100 + i;
		leases[i] = lease(true);
		leases[i].inode = &inodes[i];
		ck_assert_int_eq(add(&leases[i], FILE_NO_WAIT), 0);
		ck_assert(leases[i].delegated);
	}
	for (unsigned i = 0; i < 30; i++) {
		delegations_recall(&share, inodes[i].ino);
		end(&leases[i]);
	}
	ck_assert(!gets_delegation());
	ck_assert_int_eq(share_listen(&share, &again, GPUMEM_LISTEN_RECALL), 0);
	ck_assert(!gets_delegation());
	share_unlisten(&share, &again);
}
END_TEST

/* After the notices in the socket the process reads the end of the connection. */
START_TEST(a_process_that_takes_no_notice)
{
	struct share_lease loads = lease(true);
	struct gpumem_msg_notice notice = {.what = GPUMEM_NOTICE_MEMORY};

	ck_assert_int_eq(add(&loads, FILE_NO_WAIT), 0);
	while (share_send_notice(&connection, 0, &notice) == 0)
		;
	delegations_recall(&share, inode->ino);
	end(&loads);
	while (recv(peer, &notice, sizeof(notice), MSG_DONTWAIT) > 0)
		ck_assert_uint_ne(notice.what, GPUMEM_NOTICE_RECALL);
	ck_assert_int_eq(recv(peer, &notice, sizeof(notice), MSG_DONTWAIT), 0);
}
END_TEST

/* The last connection of a process hears recalls, also after the end of the first. A child of an
 * ended process of another user may listen as a process of the same number. */
START_TEST(a_process_that_listens_twice)
{
	struct share_connection second = {.pid = connection.pid, .uid = connection.uid};
	struct share_connection other = {.pid = connection.pid, .uid = connection.uid + 1};

	ck_assert_int_eq(share_listen(&share, &second, GPUMEM_LISTEN_RECALL), 0);
	ck_assert_int_eq(share_listen(&share, &other, GPUMEM_LISTEN_RECALL), 0);
	ck_assert(gets_delegation());
	share_unlisten(&share, &connection);
	ck_assert(gets_delegation());
	share_unlisten(&share, &second);
	ck_assert(!gets_delegation());
	share_unlisten(&share, &other);
}
END_TEST

START_TEST(a_dropped_lease_is_not_recalled)
{
	struct share_lease loads = lease(true);
	struct gpumem_msg_notice notice;

	ck_assert_int_eq(add(&loads, FILE_NO_WAIT), 0);
	atomic_store(&loads.kind, FILE_LEASE_DROPPED);
	delegations_drop(&share, inode->ino);
	delegations_recall(&share, inode->ino);
	ck_assert_int_lt(recv(peer, &notice, sizeof(notice), MSG_DONTWAIT), 0);
	end(&loads);
}
END_TEST

static atomic_uint recalls_done;

static void recall_work(void *context, struct turns_job *job)
{
	(void)job;
	delegations_recall(&share, ((struct inode *)context)->ino);
	atomic_fetch_add(&recalls_done, 1);
}

/* Answers all recalls, if they still wait. */
static void answer_work(void *context, struct turns_job *job)
{
	struct gpumem_msg_notice *notices = context;

	(void)job;
	pthread_mutex_lock(&share.lock);
	bool late = connection.listener->late;

	pthread_mutex_unlock(&share.lock);
	for (unsigned i = 0; i < TURNS_THREADS && !late; i++)
		share_noticed(&share, &connection,
			      &(struct share_request){.number = notices[i].header.request});
}

START_TEST(recalls_that_wait_hold_up_no_other_jobs)
{
	struct inode inodes[TURNS_THREADS] = {};
	struct share_lease leases[TURNS_THREADS];
	struct turns_job recalls[TURNS_THREADS] = {}, answers = {.work = answer_work};
	struct gpumem_msg_notice notices[TURNS_THREADS];
	struct turns_user *users[3];

	for (unsigned i = 0; i < 3; i++)
		users[i] = turns_user_get(turns_of(fs), 1000 + i);
	for (unsigned i = 0; i < TURNS_THREADS; i++) {
		inodes[i].ino = 100 + i;
		leases[i] = lease(true);
		leases[i].inode = &inodes[i];
		ck_assert_int_eq(add(&leases[i], FILE_NO_WAIT), 0);
		recalls[i] = (struct turns_job){.work = recall_work, .context = &inodes[i]};
		turns_add(turns_of(fs), users[i / TURNS_PER_USER], &recalls[i]);
	}
	for (unsigned i = 0; i < TURNS_THREADS; i++)
		ck_assert_int_eq(recv(peer, &notices[i], sizeof(notices[i]), 0),
				 sizeof(notices[i]));
	answers.context = notices;
	turns_add(turns_of(fs), users[2], &answers);
	while (atomic_load(&recalls_done) < TURNS_THREADS)
		usleep(100);
	for (unsigned i = 0; i < 3; i++)
		turns_user_put(turns_of(fs), users[i]);
	turns_stop(turns_of(fs));
	ck_assert(gets_delegation());
	for (unsigned i = 0; i < TURNS_THREADS; i++)
		end(&leases[i]);
}
END_TEST

int main(void)
{
	TCase *tests;
	Suite *suite = unit_suite("delegations", &tests, 60);

	tcase_add_checked_fixture(tests, setup, teardown);
	tcase_add_test(tests, no_delegation_beside_a_lease_that_may_store);
	tcase_add_test(tests, a_lease_that_cannot_wait_is_not_counted);
	tcase_add_test(tests, copies_and_silent_processes_have_none);
	tcase_add_test(tests, the_daemon_s_own_stores);
	tcase_add_test(tests, a_file_has_a_limit);
	tcase_add_test(tests, a_process_that_does_not_answer);
	tcase_add_test(tests, a_process_that_is_late_holds_up_one_recall);
	tcase_add_test(tests, a_process_that_takes_no_notice);
	tcase_add_test(tests, recalls_that_wait_hold_up_no_other_jobs);
	tcase_add_test(tests, a_process_that_listens_twice);
	tcase_add_test(tests, a_dropped_lease_is_not_recalled);
	return unit_main(suite);
}
