/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* The queue of jobs: few of a user at a time, users by turns, a user's jobs in
 * order, and threads that end when they are idle. */
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <unistd.h>

#include "fs/turns/turns.h"
#include "tests/unit/unit.h"

#define IDLE_SECONDS 60
#define JOBS	     64

struct job {
	struct turns_job job; /* first */
	int number;
	atomic_bool progress, held, done;
};

static struct turns *queue;
static struct turns_user *users[16];
static struct job jobs[JOBS];
static atomic_int order[JOBS], n_begun, n_done;

static void work(void *context, struct turns_job *pointer)
{
	struct job *job = (struct job *)pointer;

	ck_assert_ptr_eq(context, &queue);
	atomic_store(&order[atomic_fetch_add(&n_begun, 1)], job->number);
	atomic_store(&job->progress, true);
	while (atomic_load(&job->held))
		usleep(100);
	atomic_store(&job->done, true);
	atomic_fetch_add(&n_done, 1);
}

static void up(unsigned idle_seconds)
{
	ck_assert_int_eq(turns_open(work, &queue, idle_seconds, &queue), 0);
	for (unsigned i = 0; i < 16; i++) {
		users[i] = turns_user_get(queue, 1000 + i);
		ck_assert_ptr_nonnull(users[i]);
	}
	for (int i = 0; i < JOBS; i++)
		jobs[i] = (struct job){.number = i};
	n_begun = n_done = 0;
}

static void down(void)
{
	turns_stop(queue);
	for (unsigned i = 0; i < 16; i++)
		turns_user_put(queue, users[i]);
	turns_free(queue);
}

static void add(unsigned user, int number, bool held)
{
	atomic_store(&jobs[number].held, held);
	turns_add(queue, users[user], &jobs[number].job);
}

static void let_go(int number)
{
	atomic_store(&jobs[number].held, false);
}

/* The runner ends a test that waits for ever. */
static void until(atomic_int *count, int wanted)
{
	while (atomic_load(count) < wanted)
		usleep(100);
}

START_TEST(one_user_does_not_hold_up_another)
{
	up(IDLE_SECONDS);
	for (int i = 0; i < 40; i++)
		add(0, i, true);
	for (unsigned user = 1; user < 16; user++)
		add(user, 39 + (int)user, false);
	for (unsigned user = 1; user < 16; user++)
		while (!atomic_load(&jobs[39 + user].done))
			usleep(100);
	/* All jobs of the other users are done, and of the first user no more than may run at a
	 * time. */
	for (int i = 0; i < 40; i++)
		ck_assert(!atomic_load(&jobs[i].done) &&
			  (i < TURNS_PER_USER || !atomic_load(&jobs[i].progress)));
	for (int i = 0; i < 40; i++)
		let_go(i);
	until(&n_done, 55);
	down();
}
END_TEST

START_TEST(users_take_turns)
{
	static const int wanted[] = {10, 13, 11, 14, 12, 15};

	up(IDLE_SECONDS);
	for (int i = 0; i < TURNS_THREADS; i++)
		add((unsigned)i / TURNS_PER_USER, i, true);
	until(&n_begun, TURNS_THREADS);
	for (int i = 10; i < 16; i++)
		add(i < 13 ? 8 : 9, i, false);
	ck_assert_int_eq(atomic_load(&n_begun), TURNS_THREADS);
	let_go(0);
	until(&n_done, 7);
	for (int i = 0; i < 6; i++)
		ck_assert_int_eq(atomic_load(&order[TURNS_THREADS + i]), wanted[i]);
	for (int i = 0; i < TURNS_THREADS; i++)
		let_go(i);
	until(&n_done, TURNS_THREADS + 6);
	down();
}
END_TEST

START_TEST(threads_end_and_come_back)
{
	up(0);
	ck_assert_uint_eq(turns_threads(queue), 0);
	for (int round = 0; round < 20; round++) {
		add(0, round, false);
		add(1, 32 + round, false);
		until(&n_done, 2 * (round + 1));
		while (turns_threads(queue))
			usleep(100);
	}
	down();
}
END_TEST

START_TEST(what_waits_is_forgotten_at_the_end)
{
	up(IDLE_SECONDS);
	for (int i = 0; i < JOBS; i++)
		add((unsigned)i % 2, i, false);
	turns_stop(queue);
	int done = atomic_load(&n_done);

	ck_assert_int_eq(atomic_load(&n_begun), done);
	turns_add(queue, users[3], &jobs[0].job); /* too late: the queue drops the job */
	ck_assert_uint_eq(turns_threads(queue), 0);
	down();
	ck_assert_int_eq(atomic_load(&n_done), done);
}
END_TEST

int main(void)
{
	TCase *tests;
	Suite *suite = unit_suite("turns", &tests, 120);

	tcase_add_test(tests, one_user_does_not_hold_up_another);
	tcase_add_test(tests, users_take_turns);
	tcase_add_test(tests, threads_end_and_come_back);
	tcase_add_test(tests, what_waits_is_forgotten_at_the_end);
	return unit_main(suite);
}
