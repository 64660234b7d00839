/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* Which leases get read delegations, and which leases must wait until delegations are recalled. */
#include <errno.h>
#include <stdlib.h>

#include "common/cleanup.h"
#include "fs/share/internal.h"
#include "fs/tree/inode.h"
#include "tests/unit/unit.h"

static struct fs *fs;
static struct share share;
static struct inode *inode;
static struct share_connection connection = {.pid = 1234, .uid = 5};
static struct share_listener listener = {.connection = &connection, .flags = GPUMEM_LISTEN_RECALL};

static void setup(void)
{
	fs = calloc(1, sizeof(*fs));
	inode = calloc(1, sizeof(*inode));
	ck_assert(fs && inode);
	inode->ino = 7;
	share.fs = fs;
	atomic_store(&fs->share, &share);
	pthread_mutex_init(&share.lock, NULL);
	pthread_cond_init(&share.delegations.answered, NULL);
	share.listeners = listener.prev = &listener;
}

static void teardown(void)
{
	ck_assert_ptr_null(share.delegations.files);
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
	ck_assert(loads.delegated && share_store_waits(&share, inode));
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
	listener.flags = GPUMEM_LISTEN_PARK | GPUMEM_LISTEN_MEMORY;
	ck_assert_int_eq(add(&silent, FILE_NO_WAIT), 0);
	ck_assert(!copy.delegated && !silent.delegated);
}
END_TEST

START_TEST(the_daemon_s_own_stores)
{
	struct share_lease loads = lease(true);

	ck_assert_int_eq(share_store_begin(&share, inode), 0);
	ck_assert_int_eq(add(&loads, FILE_NO_WAIT), 0);
	ck_assert(!loads.delegated);
	share_store_end(&share, inode);
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
	return unit_main(suite);
}
