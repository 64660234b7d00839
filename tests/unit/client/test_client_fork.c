/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* Forks of a program whose driver has fork handlers that take a lock of the driver, as NVIDIA's
 * Vulkan driver has, while another thread calls the driver inside the gate. */
#include <pthread.h>
#include <stdatomic.h>
#include <sys/wait.h>
#include <unistd.h>

#include "client/core/process.h"
#include "tests/unit/unit.h"

/* A thread that the fork waits for goes on after this time. With handlers in the wrong order the
 * fork takes the driver's lock before. */
#define WAIT_MS 200

static pthread_mutex_t driver_lock = PTHREAD_MUTEX_INITIALIZER;
static atomic_bool is_inside, driver_forks, driver_was_first, has_forked, has_left;
static atomic_int calls_before, calls_after;

static void driver_before(void)
{
	pthread_mutex_lock(&driver_lock);
	atomic_store(&driver_forks, true);
}

static void driver_after(void)
{
	pthread_mutex_unlock(&driver_lock);
}

static void call_driver(void)
{
	for (int ms = 0; ms < WAIT_MS && !atomic_load(&driver_forks); ms++)
		usleep(1000);
	atomic_store(&driver_was_first, atomic_load(&driver_forks));
	pthread_mutex_lock(&driver_lock);
	pthread_mutex_unlock(&driver_lock);
}

static void wait_until_forked(void)
{
	UNIT_AWAIT(atomic_load(&has_forked));
}

static void *call_inside(void *work)
{
	client_enter();
	atomic_store(&is_inside, true);
	(*(void (**)(void))work)();
	client_leave();
	atomic_store(&has_left, true);
	return NULL;
}

/* A thread that is inside the gate when this returns. Detached: the thread sanitizer reports a
 * thread that a child of fork cannot join. */
static void thread_enter(void (**work)(void))
{
	pthread_t thread;

	ck_assert_int_eq(pthread_create(&thread, NULL, call_inside, work), 0);
	ck_assert_int_eq(pthread_detach(thread), 0);
	UNIT_AWAIT(atomic_load(&is_inside));
}

static void fork_and_wait(void)
{
	int status;
	pid_t pid = fork();

	ck_assert_int_ge(pid, 0);
	if (pid == 0) {
		client_enter();
		client_leave();
		_exit(7);
	}
	ck_assert_int_eq(waitpid(pid, &status, 0), pid);
	ck_assert(WIFEXITED(status) && WEXITSTATUS(status) == 7);
}

START_TEST(fork_waits_before_the_driver_does)
{
	client_enter();
	client_leave();
	ck_assert_int_eq(pthread_atfork(driver_before, driver_after, driver_after), 0);
	client_fork_go_first();
	thread_enter(&(void (*)(void)){call_driver});
	fork_and_wait();
	UNIT_AWAIT(atomic_load(&has_left));
	ck_assert(!atomic_load(&driver_was_first));
	fork_and_wait();
}
END_TEST

/* As while a driver is loaded, whose handlers already run before those of the library. */
START_TEST(fork_waits_not_for_ever)
{
	thread_enter(&(void (*)(void)){wait_until_forked});
	fork_and_wait();
	atomic_store(&has_forked, true);
	UNIT_AWAIT(atomic_load(&has_left));
	fork_and_wait();
}
END_TEST

static void call_before(void)
{
	atomic_fetch_add(&calls_before, 1);
}

static void call_after(void)
{
	atomic_fetch_add(&calls_after, 1);
}

START_TEST(calls_around_the_gate_come_once)
{
	static const struct client_fork_calls calls = {call_before, call_after, call_after};

	client_fork_surround(&calls);
	client_fork_go_first();
	client_fork_go_first();
	fork_and_wait();
	ck_assert_int_eq(atomic_load(&calls_before), 1);
	ck_assert_int_eq(atomic_load(&calls_after), 1);
}
END_TEST

int main(void)
{
	TCase *tcase;
	Suite *suite = unit_suite("client_fork", &tcase, 60);

	tcase_add_test(tcase, fork_waits_before_the_driver_does);
	tcase_add_test(tcase, fork_waits_not_for_ever);
	tcase_add_test(tcase, calls_around_the_gate_come_once);
	return unit_main(suite);
}
