/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* The facts in /proc about the process that sent a request. */
#include <grp.h>
#include <linux/capability.h>
#include <sched.h>
#include <signal.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "fs/core/caller.h"
#include "tests/unit/unit.h"

/* No process has the number NO_PID. */
#define NO_PID 0x7ffffffe

static struct caller self(void)
{
	return (struct caller){.pid = getpid(), .uid = geteuid(), .gid = getegid()};
}

START_TEST(groups)
{
	struct caller caller = self();
	gid_t mine[64], absent = 0;
	int count = getgroups(64, mine);

	ck_assert(caller_is_member(&caller, getegid()));
	for (int i = 0; i < count; i++) {
		ck_assert(caller_is_member(&caller, mine[i]));
		absent = mine[i] > absent ? mine[i] : absent;
	}
	absent = getegid() > absent ? getegid() + 1 : absent + 1;
	ck_assert(!caller_is_member(&caller, absent));
	caller.pid = 0;
	ck_assert(caller_is_member(&caller, getegid()));
	ck_assert(!caller_is_member(&caller, absent));
}
END_TEST

/* A line with more groups than usual. */
START_TEST(many_groups)
{
	static gid_t many[5000];
	struct caller caller = self();

	for (gid_t i = 0; i < 5000; i++)
		many[i] = 1000000 + i;
	if (setgroups(5000, many))
		return; /* not root */
	ck_assert(caller_is_member(&caller, 1000000));
	ck_assert(caller_is_member(&caller, 1004999));
	ck_assert(!caller_is_member(&caller, 1005000));
	ck_assert(!caller_is_member(&caller, 100000));
}
END_TEST

START_TEST(capabilities)
{
	struct __user_cap_header_struct header = {.version = _LINUX_CAPABILITY_VERSION_3};
	struct __user_cap_data_struct data[2];
	struct caller caller = self();

	ck_assert_int_eq(syscall(SYS_capget, &header, data), 0);
	ck_assert_int_eq(caller_is_capable(&caller, CAP_FSETID),
			 (data[0].effective >> CAP_FSETID & 1) && caller_in_initial_namespace(0));
	data[0].effective &= ~(1U << CAP_FSETID);
	ck_assert_int_eq(syscall(SYS_capset, &header, data), 0);
	ck_assert(!caller_is_capable(&caller, CAP_FSETID));
}
END_TEST

/* A process that made its own user namespace has all capabilities there, and none for the mount. */
START_TEST(capabilities_of_another_namespace)
{
	int ends[2];
	char made = 0;

	ck_assert_int_eq(pipe(ends), 0);
	pid_t pid = fork();

	if (pid == 0) {
		made = unshare(CLONE_NEWUSER) == 0;
		if (write(ends[1], &made, 1) == 1)
			pause();
		_exit(0);
	}
	ck_assert_int_eq(read(ends[0], &made, 1), 1);
	struct caller caller = {.pid = pid, .uid = geteuid(), .gid = getegid()};

	if (made)
		ck_assert(!caller_is_capable(&caller, CAP_FSETID));
	kill(pid, SIGKILL);
	waitpid(pid, NULL, 0);
}
END_TEST

START_TEST(one_that_cannot_be_seen)
{
	struct caller root = {.pid = 0}, gone = {.pid = NO_PID}, other = {.pid = NO_PID, .uid = 5};

	ck_assert(caller_is_capable(&root, CAP_SYS_ADMIN));
	ck_assert(caller_is_capable(&gone, CAP_SYS_ADMIN));
	ck_assert(!caller_is_capable(&other, CAP_SYS_ADMIN));
	ck_assert(!caller_is_member(&other, 7));
	ck_assert(caller_has_signal(NO_PID));
}
END_TEST

START_TEST(signals)
{
	sigset_t set;

	ck_assert(!caller_has_signal(getpid()));
	sigemptyset(&set);
	sigaddset(&set, SIGUSR1);
	sigprocmask(SIG_BLOCK, &set, NULL);
	raise(SIGUSR1);
	ck_assert(!caller_has_signal(getpid())); /* true only while the signal is blocked */
}
END_TEST

/* Only a thread that sleeps in the system call counts. */
START_TEST(no_chown)
{
	pid_t pid = fork();

	if (pid == 0) {
		pause();
		_exit(0);
	}
	ck_assert(!caller_is_in_chown(pid));
	ck_assert(!caller_is_in_chown(getpid()));
	ck_assert(!caller_is_in_chown(0));
	ck_assert(!caller_is_in_chown(NO_PID));
	kill(pid, SIGKILL);
	waitpid(pid, NULL, 0);
}
END_TEST

int main(void)
{
	TCase *tests;
	Suite *suite = unit_suite("caller", &tests, 60);

	tcase_add_test(tests, groups);
	tcase_add_test(tests, many_groups);
	tcase_add_test(tests, capabilities);
	tcase_add_test(tests, capabilities_of_another_namespace);
	tcase_add_test(tests, one_that_cannot_be_seen);
	tcase_add_test(tests, signals);
	tcase_add_test(tests, no_chown);
	return unit_main(suite);
}
