/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
#include "common/brlock.h"

#include <sched.h>
#include <stdbool.h>
#include <time.h>

#include "tests/unit/unit.h"

/* More brlocks than a thread's row has slots, so that a few brlocks are read-locked through the
 * inner lock. */
#define MANY_GUARDS 12

/* After as many threads as the table has rows, the next thread shares a row with the first thread.
 */
#define TABLE_ROWS 512

static void pause_ms(long ms)
{
	nanosleep(&(struct timespec){.tv_nsec = ms * 1000000}, NULL);
}

static pthread_t start(void *(*run)(void *), void *argument)
{
	pthread_t thread;
	ck_assert_int_eq(pthread_create(&thread, NULL, run, argument), 0);
	return thread;
}

/* Pairs of plain integers, each under a brlock. The integers of a pair are equal except while a
 * writer changes the pair. */
static struct pair {
	struct brlock guard;
	long left, right;
} pairs[MANY_GUARDS];

static atomic_bool stop;
static atomic_int torn;

static void pairs_init(void)
{
	for (int i = 0; i < MANY_GUARDS; i++) {
		brlock_init(&pairs[i].guard);
		pairs[i].left = pairs[i].right = 0;
	}
	stop = false;
	torn = 0;
}

static void pairs_destroy(void)
{
	for (int i = 0; i < MANY_GUARDS; i++)
		brlock_destroy(&pairs[i].guard);
}

static void pair_check(const struct pair *pair)
{
	if (pair->left != pair->right)
		atomic_fetch_add(&torn, 1);
}

static void pair_add(struct pair *pair)
{
	brlock_write_lock(&pair->guard);
	pair_check(pair);
	pair->left++;
	sched_yield();
	pair->right++;
	brlock_write_unlock(&pair->guard);
}

/* Yields often outside the lock, so that a reader's time slice seldom ends inside, where the
 * writers would wait for the reader's next slice. */
static void yield_sometimes(unsigned *rounds)
{
	if (++*rounds % 32 == 0)
		sched_yield();
}

static void *read_one(void *argument)
{
	struct pair *pair = argument;
	unsigned rounds = 0;
	while (!stop) {
		brlock_token token = brlock_read_lock(&pair->guard);
		pair_check(pair);
		/* Sometimes holds the lock long enough for other threads to lock and unlock. */
		if (rounds % 64 == 0)
			sched_yield();
		pair_check(pair);
		brlock_read_unlock(&pair->guard, token);
		yield_sometimes(&rounds);
	}
	return NULL;
}

/* Holds up to MANY_GUARDS brlocks at once, locked in one order and unlocked in another. */
static void *read_many(void *argument)
{
	uint64_t state = *(uint64_t *)argument;
	unsigned rounds = 0;
	while (!stop) {
		brlock_token tokens[MANY_GUARDS];
		int held = 1 + (int)(unit_random(&state) % MANY_GUARDS);
		for (int i = 0; i < held; i++)
			tokens[i] = brlock_read_lock(&pairs[i].guard);
		for (int i = 0; i < held; i++)
			pair_check(&pairs[i]);
		for (int i = 0; i < held; i++)
			brlock_read_unlock(&pairs[i].guard, tokens[i]);
		yield_sometimes(&rounds);
	}
	return NULL;
}

struct adder {
	uint64_t state;
	int times, guards;
};

static void *add_some(void *argument)
{
	struct adder *adder = argument;
	for (int i = 0; i < adder->times; i++)
		pair_add(&pairs[unit_random(&adder->state) % (unsigned)adder->guards]);
	return NULL;
}

/* Readers overlap all the time; the writers must get their turns and lose no addition. */
static void stress(void *(*reader)(void *), void *argument, int guards, int times)
{
	pthread_t readers[3], writers[2];
	struct adder adders[2];

	for (int i = 0; i < 3; i++)
		readers[i] = start(reader, argument);
	for (int i = 0; i < 2; i++) {
		adders[i] = (struct adder){unit_seed() + (uint64_t)i, times, guards};
		writers[i] = start(add_some, &adders[i]);
	}
	for (int i = 0; i < 2; i++)
		pthread_join(writers[i], NULL);
	stop = true;
	for (int i = 0; i < 3; i++)
		pthread_join(readers[i], NULL);

	long sum = 0;
	for (int i = 0; i < MANY_GUARDS; i++) {
		ck_assert_int_eq(pairs[i].left, pairs[i].right);
		sum += pairs[i].left;
	}
	ck_assert_int_eq(sum, 2L * times);
	ck_assert_int_eq(torn, 0);
}

START_TEST(stress_one)
{
	pairs_init();
	stress(read_one, &pairs[0], 1, 2000);
	pairs_destroy();
}
END_TEST

START_TEST(stress_many)
{
	uint64_t seed = unit_seed();
	pairs_init();
	stress(read_many, &seed, MANY_GUARDS, 2000);
	pairs_destroy();
}
END_TEST

/* Adds with pauses, so that the writer mostly meets readers in the table, not in the inner lock. */
static void add_at_times(int times)
{
	uint64_t state = unit_seed();
	for (int i = 0; i < times; i++) {
		pair_add(&pairs[0]);
		nanosleep(&(struct timespec){.tv_nsec = (long)(unit_random(&state) % 800000)},
			  NULL);
	}
}

static void expect_added(pthread_t readers[3], int times)
{
	stop = true;
	for (int i = 0; i < 3; i++)
		pthread_join(readers[i], NULL);
	ck_assert_int_eq(pairs[0].left, times);
	ck_assert_int_eq(pairs[0].right, times);
	ck_assert_int_eq(torn, 0);
}

START_TEST(stress_biased)
{
	pthread_t readers[3];
	pairs_init();
	for (int i = 0; i < 3; i++)
		readers[i] = start(read_one, &pairs[0]);
	add_at_times(1500);
	expect_added(readers, 1500);
	pairs_destroy();
}
END_TEST

static atomic_bool entered;

static void *lock_once(void *guard)
{
	brlock_write_lock(guard);
	entered = true;
	brlock_write_unlock(guard);
	return NULL;
}

static void *enter_once(void *guard)
{
	brlock_token token = brlock_read_lock(guard);
	entered = true;
	brlock_read_unlock(guard, token);
	return NULL;
}

START_TEST(reader_keeps_writer_out)
{
	struct brlock guard;
	brlock_init(&guard);
	brlock_token token = brlock_read_lock(&guard);
	pthread_t writer = start(lock_once, &guard);
	pause_ms(50);
	ck_assert(!entered);
	brlock_read_unlock(&guard, token);
	pthread_join(writer, NULL);
	ck_assert(entered);
	brlock_destroy(&guard);
}
END_TEST

START_TEST(writer_keeps_others_out)
{
	struct brlock guard;
	brlock_init(&guard);
	brlock_write_lock(&guard);
	pthread_t other = start(_i ? lock_once : enter_once, &guard);
	pause_ms(50);
	ck_assert(!entered);
	brlock_write_unlock(&guard);
	pthread_join(other, NULL);
	ck_assert(entered);
	brlock_destroy(&guard);
}
END_TEST

/* A reader holds a slot, or without the bias the inner lock. */
START_TEST(trying_does_not_wait)
{
	struct brlock guard;
	brlock_token token, other;

	brlock_init(&guard);
	for (int biased = 1; biased >= 0; biased--) {
		ck_assert(brlock_read_trylock(&guard, &token));
		ck_assert_int_eq(token != NULL, biased);
		ck_assert(!brlock_write_trylock(&guard));
		/* The failed attempt leaves the brlock unchanged. */
		ck_assert(brlock_read_trylock(&guard, &other));
		ck_assert_int_eq(other != NULL, biased);
		brlock_read_unlock(&guard, other);
		brlock_read_unlock(&guard, token);
		ck_assert(brlock_write_trylock(&guard));
		ck_assert(!brlock_write_trylock(&guard));
		ck_assert(!brlock_read_trylock(&guard, &token));
		brlock_write_unlock(&guard);
		/* The bias stays off for the test: it normally returns some time after a writer. */
		guard.unbias_until += 1U << 30;
	}
	brlock_destroy(&guard);
}
END_TEST

/* A held brlock delays only its own writer, not the users of other brlocks. */
START_TEST(guards_are_apart)
{
	struct brlock held, locked, other;
	brlock_init(&held);
	brlock_init(&locked);
	brlock_init(&other);
	brlock_token token = brlock_read_lock(&held);
	brlock_write_lock(&locked);
	pthread_join(start(enter_once, &held), NULL);
	pthread_join(start(lock_once, &other), NULL);
	ck_assert(entered);
	brlock_write_unlock(&locked);
	brlock_read_unlock(&held, token);
	brlock_destroy(&held);
	brlock_destroy(&locked);
	brlock_destroy(&other);
}
END_TEST

/* Starts threads that read-lock and end, so that the next thread shares a row with an earlier
 * thread. */
static void use_up_rows(struct brlock *guard)
{
	for (int i = 0; i < TABLE_ROWS - 1; i++) {
		entered = false;
		pthread_join(start(enter_once, guard), NULL);
		ck_assert(entered);
	}
}

START_TEST(rows_shared)
{
	pthread_t readers[3];
	pairs_init();
	brlock_token mine = brlock_read_lock(&pairs[0].guard);
	for (int i = 0; i < 3; i++) {
		use_up_rows(&pairs[0].guard);
		readers[i] = start(read_one, &pairs[0]);
	}
	entered = false;
	pthread_t writer = start(lock_once, &pairs[0].guard);
	pause_ms(50);
	ck_assert(!entered);
	brlock_read_unlock(&pairs[0].guard, mine);
	pthread_join(writer, NULL);

	add_at_times(1500);
	expect_added(readers, 1500);
	pairs_destroy();
}
END_TEST

static atomic_int busy;

static void *read_slowly(void *guard)
{
	while (!stop) {
		brlock_token token = brlock_read_lock(guard);
		busy++;
		pause_ms(1);
		brlock_read_unlock(guard, token);
	}
	return NULL;
}

static void *write_slowly(void *guard)
{
	while (!stop) {
		brlock_write_lock(guard);
		busy++;
		pause_ms(1);
		brlock_write_unlock(guard);
	}
	return NULL;
}

/* Runs against threads of the other kind, which never leave the brlock free. */
START_TEST(nobody_starves)
{
	struct brlock guard;
	pthread_t others[3];
	brlock_init(&guard);
	stop = false;
	for (int i = 0; i < 3; i++)
		others[i] = start(_i ? write_slowly : read_slowly, &guard);
	while (busy < 10)
		pause_ms(1);
	for (int i = 0; i < 20; i++) {
		entered = false;
		(_i ? enter_once : lock_once)(&guard);
		ck_assert(entered);
	}
	stop = true;
	for (int i = 0; i < 3; i++)
		pthread_join(others[i], NULL);
	brlock_destroy(&guard);
}
END_TEST

/* Readers avoid the inner lock from the start, and again some time after a writer. */
START_TEST(bias_returns)
{
	struct brlock guard;
	brlock_init(&guard);
	brlock_token token = brlock_read_lock(&guard);
	ck_assert_ptr_nonnull(token);
	brlock_read_unlock(&guard, token);

	for (int round = 0; round < 3; round++) {
		brlock_write_lock(&guard);
		brlock_write_unlock(&guard);
		token = NULL;
		while (!token) {
			token = brlock_read_lock(&guard);
			brlock_read_unlock(&guard, token);
			if (!token)
				pause_ms(1);
		}
	}
	brlock_destroy(&guard);
}
END_TEST

int main(void)
{
	TCase *tcase;
	Suite *suite = unit_suite("brlock", &tcase, 120);
	tcase_add_test(tcase, reader_keeps_writer_out);
	tcase_add_loop_test(tcase, writer_keeps_others_out, 0, 2);
	tcase_add_test(tcase, trying_does_not_wait);
	tcase_add_test(tcase, guards_are_apart);
	tcase_add_test(tcase, bias_returns);
	tcase_add_test(tcase, stress_one);
	tcase_add_test(tcase, stress_many);
	tcase_add_test(tcase, stress_biased);
	tcase_add_test(tcase, rows_shared);
	tcase_add_loop_test(tcase, nobody_starves, 0, 2);
	return unit_main(suite);
}
