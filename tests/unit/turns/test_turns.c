/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* The queue of jobs: few of a user at a time, users by turns, a user's jobs in
 * order, and threads that end when they are idle. */
#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <unistd.h>

#include "fs/turns/turns.h"
#include "tests/unit/unit.h"

#define IDLE_SECONDS 60
#define JOBS	     64
/* No request has the number 0. */
#define REQUEST(number) (1000 + (uint64_t)(number))

struct job {
	struct turns_job job; /* first */
	int number;
	atomic_bool progress, held, done, interrupted;
	bool waits;	      /* for other processes, while held */
	atomic_int cancelled; /* the error; 0: not cancelled */
};

static struct turns *queue;
static struct turns_user *users[16];
static struct job jobs[JOBS];
static atomic_int order[JOBS], n_begun, n_done;

static void work(void *context, struct turns_job *pointer)
{
	struct job *job = (struct job *)pointer;

	ck_assert_ptr_eq(context, &queue);
	ck_assert(!atomic_load(&job->cancelled) && !atomic_load(pointer->interrupted));
	atomic_store(&order[atomic_fetch_add(&n_begun, 1)], job->number);
	atomic_store(&job->progress, true);
	bool waits = job->waits && turns_wait_begin(queue);

	while (atomic_load(&job->held) && !atomic_load(pointer->interrupted))
		usleep(100);
	turns_wait_end(queue, waits);
	atomic_store(&job->interrupted, atomic_load(pointer->interrupted));
	atomic_store(&job->done, true);
	atomic_fetch_add(&n_done, 1);
}

static void cancel(void *context, struct turns_job *pointer, int error)
{
	struct job *job = (struct job *)pointer;

	ck_assert_ptr_eq(context, &queue);
	ck_assert(!atomic_load(&job->progress));
	ck_assert_int_eq(atomic_exchange(&job->cancelled, error), 0);
}

static void up(unsigned idle_seconds)
{
	ck_assert_int_eq(turns_open(idle_seconds, &queue), 0);
	for (unsigned i = 0; i < 16; i++) {
		users[i] = turns_user_get(queue, 1000 + i);
		ck_assert_ptr_nonnull(users[i]);
	}
	for (int i = 0; i < JOBS; i++)
		jobs[i] = (struct job){
		    .job = {.work = work,
			    .cancel = cancel,
			    .context = &queue,
			    .request = REQUEST(i)},
		    .number = i,
		};
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

START_TEST(what_waits_is_cancelled_at_the_end)
{
	up(IDLE_SECONDS);
	for (int i = 0; i < JOBS; i++)
		add((unsigned)i % 2, i, false);
	turns_stop(queue);
	int done = atomic_load(&n_done);

	ck_assert_int_eq(atomic_load(&n_begun), done);
	for (int i = 0; i < JOBS; i++)
		ck_assert_int_eq(atomic_load(&jobs[i].cancelled),
				 atomic_load(&jobs[i].progress) ? 0 : -ENOTCONN);
	turns_add(queue, users[3], &jobs[0].job); /* too late: the queue drops the job */
	ck_assert_uint_eq(turns_threads(queue), 0);
	down();
	ck_assert_int_eq(atomic_load(&n_done), done);
}
END_TEST

START_TEST(a_user_without_jobs_comes_first)
{
	up(IDLE_SECONDS);
	for (int i = 0; i < TURNS_THREADS; i++)
		add(i < TURNS_PER_USER ? 0 : 1 + (unsigned)i % 2, i, true);
	until(&n_begun, TURNS_THREADS);
	add(1, 20, false);
	add(3, 21, false);
	ck_assert_int_eq(atomic_load(&n_begun), TURNS_THREADS);
	let_go(0);
	until(&n_begun, TURNS_THREADS + 2);
	ck_assert_int_eq(atomic_load(&order[TURNS_THREADS]), 21);
	for (int i = 0; i < TURNS_THREADS; i++)
		let_go(i);
	until(&n_done, TURNS_THREADS + 2);
	down();
}
END_TEST

START_TEST(interrupts_end_jobs_that_wait)
{
	up(IDLE_SECONDS);
	for (int i = 0; i < TURNS_PER_USER + 10; i++)
		add(0, i, true);
	until(&n_begun, TURNS_PER_USER);
	for (int i = TURNS_PER_USER; i < TURNS_PER_USER + 9; i++) {
		turns_interrupt(queue, REQUEST(i));
		turns_interrupt(queue, REQUEST(i)); /* too late */
		ck_assert_int_eq(atomic_load(&jobs[i].cancelled), -EINTR);
	}
	let_go(TURNS_PER_USER + 9);
	let_go(0);
	until(&n_done, 2);
	ck_assert(atomic_load(&jobs[TURNS_PER_USER + 9].done));
	for (int i = 0; i < TURNS_PER_USER; i++)
		let_go(i);
	until(&n_done, TURNS_PER_USER + 1);
	down();
}
END_TEST

START_TEST(interrupts_are_seen_by_jobs_that_run)
{
	up(IDLE_SECONDS);
	add(0, 0, true);
	add(0, 1, true);
	until(&n_begun, 2);
	turns_interrupt(queue, REQUEST(1));
	until(&n_done, 1);
	ck_assert(atomic_load(&jobs[1].interrupted) && !atomic_load(&jobs[0].done));
	/* The thread's next job is not interrupted. */
	add(0, 2, false);
	until(&n_done, 2);
	ck_assert(!atomic_load(&jobs[2].interrupted));
	let_go(0);
	until(&n_done, 3);
	ck_assert(!atomic_load(&jobs[0].interrupted));
	down();
}
END_TEST

START_TEST(an_interrupt_may_come_before_its_job)
{
	up(IDLE_SECONDS);
	turns_interrupt(queue, REQUEST(3));
	turns_interrupt(queue, 0);
	add(0, 3, false);
	ck_assert_int_eq(atomic_load(&jobs[3].cancelled), -EINTR);
	add(0, 4, false);
	until(&n_done, 1);
	ck_assert(atomic_load(&jobs[4].done));
	down();
}
END_TEST

START_TEST(jobs_that_wait_for_processes_leave_their_places)
{
	int n_waiting = TURNS_WAITING + TURNS_THREADS;

	up(IDLE_SECONDS);
	ck_assert(!turns_wait_begin(queue)); /* this thread has no job */
	for (int i = 0; i < n_waiting; i++) {
		jobs[i].waits = true;
		add((unsigned)i / TURNS_PER_USER, i, true);
	}
	until(&n_begun, n_waiting);
	/* More of them than may wait: they hold all places. */
	add(14, n_waiting, false);
	usleep(10000);
	ck_assert_int_eq(atomic_load(&n_done), 0);
	for (int i = 0; i < n_waiting; i++)
		let_go(i);
	until(&n_done, n_waiting + 1);
	for (int i = 0; i < TURNS_THREADS; i++)
		add(10 + (unsigned)i / TURNS_PER_USER, n_waiting + 1 + i, true);
	until(&n_begun, n_waiting + 1 + TURNS_THREADS);
	add(14, JOBS - 1, false);
	usleep(10000);
	ck_assert(!atomic_load(&jobs[JOBS - 1].done));
	for (int i = 0; i < TURNS_THREADS; i++)
		let_go(n_waiting + 1 + i);
	until(&n_done, n_waiting + TURNS_THREADS + 2);
	down();
}
END_TEST

int main(void)
{
	TCase *tests;
	Suite *suite = unit_suite("turns", &tests, 120);

	tcase_add_test(tests, one_user_does_not_hold_up_another);
	tcase_add_test(tests, users_take_turns);
	tcase_add_test(tests, threads_end_and_come_back);
	tcase_add_test(tests, what_waits_is_cancelled_at_the_end);
	tcase_add_test(tests, a_user_without_jobs_comes_first);
	tcase_add_test(tests, interrupts_end_jobs_that_wait);
	tcase_add_test(tests, interrupts_are_seen_by_jobs_that_run);
	tcase_add_test(tests, jobs_that_wait_for_processes_leave_their_places);
	tcase_add_test(tests, an_interrupt_may_come_before_its_job);
	return unit_main(suite);
}
