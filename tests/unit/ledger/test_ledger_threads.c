/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* Many threads charge a few users at once, while accounts of other users come and go: no user
 * passes the limit, and afterwards all counts are zero. Also run under TSan. */
#include "fs/ledger/ledger.h"

#include <errno.h>
#include <pthread.h>

#include "tests/unit/fs_fixture.h"
#include "tests/unit/unit.h"

#define THREADS 4
#define ROUNDS	20000
#define LIMIT	10
#define FIRST	1000
#define USERS	3
#define PASSERS 5000

static atomic_uint above, refused;

static void *charge_and_give(void *of)
{
	unsigned seed = (unsigned)(uintptr_t)of;

	for (unsigned i = 0; i < ROUNDS; i++) {
		uid_t uid = FIRST + (i + seed) % USERS, passer = FIRST + USERS + i % PASSERS;
		int error = ledger_take(&fixture, uid, LEDGER_LEASES, 4);

		if (ledger_count(&fixture, uid, LEDGER_LEASES) > LIMIT)
			atomic_fetch_add(&above, 1);
		if (error)
			atomic_fetch_add(&refused, 1);
		else
			ledger_give(&fixture, uid, LEDGER_LEASES, 4);
		if (ledger_take(&fixture, passer, LEDGER_TEXTS, 1) == 0)
			ledger_give(&fixture, passer, LEDGER_TEXTS, 1);
	}
	return NULL;
}

START_TEST(no_user_passes_the_limit)
{
	pthread_t threads[THREADS];
	int64_t metadata = ledger_of(&fixture)->metadata_bytes;

	fixture.options.user_leases = LIMIT;
	/* One taken all the time, so that the account never goes. */
	ck_assert_int_eq(ledger_take(&fixture, FIRST, LEDGER_LEASES, 1), 0);
	for (uintptr_t i = 0; i < THREADS; i++)
		ck_assert_int_eq(pthread_create(&threads[i], NULL, charge_and_give, (void *)i), 0);
	for (unsigned i = 0; i < THREADS; i++)
		pthread_join(threads[i], NULL);
	ck_assert_uint_eq(above, 0);
	ck_assert_uint_eq(ledger_count(&fixture, FIRST, LEDGER_LEASES), 1);
	ledger_give(&fixture, FIRST, LEDGER_LEASES, 1);
	for (uid_t uid = FIRST; uid < FIRST + USERS + PASSERS; uid++) {
		ck_assert_uint_eq(ledger_count(&fixture, uid, LEDGER_LEASES), 0);
		ck_assert_uint_eq(ledger_count(&fixture, uid, LEDGER_TEXTS), 0);
	}
	ck_assert_int_eq(ledger_of(&fixture)->metadata_bytes, metadata);
	ck_assert_uint_lt(ledger_of(&fixture)->n_accounts, 200);
}
END_TEST

int main(void)
{
	TCase *tcase;
	Suite *suite = unit_suite("ledger_threads", &tcase, 60);

	tcase_add_checked_fixture(tcase, fixture_up, fixture_down);
	tcase_add_test(tcase, no_user_passes_the_limit);
	return unit_main(suite);
}
