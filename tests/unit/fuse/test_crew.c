/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* Which workers wait for requests. The workers are threads that read opcodes from a socket of
 * packets; the tests wait for states, never for a time. */
#include <linux/fuse.h>
#include <pthread.h>
#include <sched.h>
#include <semaphore.h>
#include <stdatomic.h>
#include <sys/socket.h>
#include <unistd.h>

#include "fs/fuse/crew.h"
#include "tests/unit/unit.h"

#define WORKERS 4
#define STUCK	0x10000U /* beside an opcode: the work ends when the test says so */
#define SLOW	0x20000U /* beside an opcode: the work takes some time */

static struct crew *crew;
static pthread_t threads[WORKERS];
static int requests[2];
static atomic_uint stuck;
static sem_t answered, go_on;

static void *worker_main(void *argument)
{
	unsigned number = (unsigned)(uintptr_t)argument;

	for (;;) {
		uint32_t request;

		if (crew_is_surplus(crew, number))
			crew_park(crew, number);
		crew_wait(crew, number);
		if (read(requests[0], &request, sizeof(request)) != sizeof(request))
			break;
		crew_take(crew, number, request & 0xffff);
		if (request & STUCK) {
			atomic_fetch_add(&stuck, 1);
			sem_wait(&go_on);
		}
		for (unsigned i = 0; request & SLOW && i < 1000; i++)
			sched_yield();
		sem_post(&answered);
	}
	crew_end(crew);
	return NULL;
}

static void up(void)
{
	atomic_store(&stuck, 0);
	sem_init(&answered, 0, 0);
	sem_init(&go_on, 0, 0);
	ck_assert_int_eq(socketpair(AF_UNIX, SOCK_SEQPACKET, 0, requests), 0);
	ck_assert_int_eq(crew_new(WORKERS, &crew), 0);
	for (uintptr_t i = 0; i < WORKERS; i++)
		ck_assert_int_eq(pthread_create(&threads[i], NULL, worker_main, (void *)i), 0);
}

static void down(void)
{
	close(requests[1]);
	for (unsigned i = 0; i < WORKERS; i++)
		pthread_join(threads[i], NULL);
	crew_free(crew);
	close(requests[0]);
}

static void send_request(uint32_t request)
{
	ck_assert_int_eq(write(requests[1], &request, sizeof(request)), sizeof(request));
}

static void request_done(uint32_t request)
{
	send_request(request);
	sem_wait(&answered);
}

/* Until all workers but one are parked. */
static void calm_down(void)
{
	while (crew_parked(crew) < WORKERS - 1)
		request_done(FUSE_LOOKUP);
}

START_TEST(short_requests_leave_one_worker)
{
	calm_down();
	for (unsigned i = 0; i < 1000; i++)
		request_done(i % 2 ? FUSE_GETATTR : FUSE_CREATE);
	ck_assert_uint_le(crew_parked(crew), WORKERS - 1);
}
END_TEST

START_TEST(long_requests_run_at_once)
{
	calm_down();
	for (unsigned i = 1; i <= WORKERS; i++) {
		send_request(FUSE_WRITE | STUCK);
		while (atomic_load(&stuck) < i)
			sched_yield();
	}
	for (unsigned i = 0; i < WORKERS; i++)
		sem_post(&go_on);
}
END_TEST

/* A short request that waits for a lock keeps none of the others from being served. */
START_TEST(stuck_short_requests_are_noticed)
{
	calm_down();
	for (unsigned i = 1; i < WORKERS; i++) {
		send_request(FUSE_UNLINK | STUCK);
		while (atomic_load(&stuck) < i)
			sched_yield();
		request_done(FUSE_LOOKUP);
	}
	for (unsigned i = 1; i < WORKERS; i++)
		sem_post(&go_on);
}
END_TEST

/* One worker does not keep up with requests that always wait. */
START_TEST(a_backlog_calls_workers)
{
	calm_down();
	for (unsigned sent = 0; crew_parked(crew) == WORKERS - 1; sent++) {
		send_request(FUSE_LOOKUP | SLOW);
		if (sent > 4)
			sem_wait(&answered);
	}
}
END_TEST

START_TEST(nobody_is_parked_without_requests)
{
	calm_down();
	while (crew_parked(crew))
		sched_yield();
	request_done(FUSE_LOOKUP);
}
END_TEST

START_TEST(parked_workers_end)
{
	calm_down();
}
END_TEST

int main(void)
{
	TCase *tests;
	Suite *suite = unit_suite("crew", &tests, 60);

	tcase_add_checked_fixture(tests, up, down);
	tcase_add_test(tests, short_requests_leave_one_worker);
	tcase_add_test(tests, long_requests_run_at_once);
	tcase_add_test(tests, stuck_short_requests_are_noticed);
	tcase_add_test(tests, a_backlog_calls_workers);
	tcase_add_test(tests, nobody_is_parked_without_requests);
	tcase_add_test(tests, parked_workers_end);
	return unit_main(suite);
}
