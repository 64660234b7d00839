/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* The thread for drivers: the program cannot reach the thread's descriptors, nor the thread the
 * program's, whatever the program does with its own descriptors. The last test covers a system that
 * refuses such a thread. */
#include "client/core/driver_thread.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <signal.h>
#include <stddef.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "client/core/process.h"
#include "tests/unit/unit.h"

static int in_program;
static pid_t thread;

/* Uses no ck_assert: the thread for drivers has no descriptors of libcheck. */
static int look_around(int fd, void *argument)
{
	sigset_t blocked;
	struct stat st;

	(void)argument;
	thread = gettid();
	pthread_sigmask(SIG_SETMASK, NULL, &blocked);
	return fd == -1 && client_driver_thread_here() &&
	       (fstat(in_program, &st) < 0 || !S_ISCHR(st.st_mode)) &&
	       sigismember(&blocked, SIGTERM) == 1;
}

/* A descriptor in the table of the thread for drivers, invisible to the program. */
static int opened;

static int open_one(int fd, void *argument)
{
	(void)fd;
	(void)argument;
	opened = open("/dev/zero", O_RDONLY | O_CLOEXEC);
	return opened < 0 ? -errno : 0;
}

static int use_it(int fd, void *argument)
{
	char byte = 'x';

	(void)fd;
	(void)argument;
	return read(opened, &byte, 1) == 1 && byte == 0 ? 0 : -EIO;
}

START_TEST(two_tables)
{
	in_program = open("/dev/null", O_RDONLY);
	ck_assert_int_eq(client_driver_thread_call(look_around, NULL, -1), -ESRCH);
	ck_assert_int_eq(client_driver_thread_start(), 0);
	ck_assert_int_eq(client_driver_thread_start(), 0);
	ck_assert_int_eq(client_driver_thread_call(look_around, NULL, -1), 1);
	ck_assert_int_ne(thread, gettid());
	ck_assert(!client_driver_thread_here());

	int next = open("/dev/null", O_RDONLY);
	ck_assert_int_eq(client_driver_thread_call(open_one, NULL, -1), 0);
	ck_assert_int_eq(fcntl(opened, F_GETFD), -1);
	ck_assert_int_eq(open("/dev/null", O_RDONLY), next + 1);
	closefrom(in_program); /* libcheck's descriptors are below in_program */
	ck_assert_int_eq(client_driver_thread_call(use_it, NULL, -1), 0);
}
END_TEST

static int same_file(int fd, void *argument)
{
	const struct stat *wanted = argument;
	struct stat st;

	if (fstat(fd, &st) < 0)
		return -errno;
	return st.st_ino == wanted->st_ino && st.st_dev == wanted->st_dev ? fd : -EBADF;
}

static void hand_over(unsigned times)
{
	int fd = memfd_create("handed over", MFD_CLOEXEC), first = 0;
	struct stat st;

	ck_assert_int_eq(fstat(fd, &st), 0);
	for (unsigned i = 0; i < times; i++) {
		int there = client_driver_thread_call(same_file, &st, fd);
		ck_assert_int_gt(there, 0);
		first = i ? first : there;
		ck_assert_int_eq(there, first); /* closed after each call */
	}
	int next = dup(fd);
	ck_assert_int_eq(next, fd + 1);
	close(next);
	close(fd);
}

START_TEST(descriptors_are_handed_over)
{
	int first = open("/dev/null", O_RDONLY);

	ck_assert_int_eq(client_driver_thread_start(), 0);
	hand_over(2000);
	closefrom(first);
	hand_over(10);
	ck_assert_int_eq(client_driver_thread_call(same_file, NULL, 1000), -EBADF);
	hand_over(1);
}
END_TEST

/* The thread does not hold the program's end of a pipe open. */
START_TEST(pipes_end)
{
	int ends[2];
	char byte;

	ck_assert_int_eq(pipe(ends), 0);
	ck_assert_int_eq(client_driver_thread_start(), 0);
	ck_assert_int_eq(client_driver_thread_call(use_it, NULL, -1), -EIO);
	close(ends[1]);
	ck_assert_int_eq(read(ends[0], &byte, 1), 0);
}
END_TEST

/* Finds the address where the thread listens: the only socket with a name in the process. */
static int find_name(int fd, void *argument)
{
	socklen_t bytes = sizeof(struct sockaddr_un);

	for (fd = 3; fd < 1024; fd++)
		if (getsockname(fd, argument, &bytes) == 0 && bytes > sizeof(sa_family_t))
			return (int)bytes;
	return -ENOENT;
}

/* Fills the queue, and sends messages that look like messages of the process. */
static void crowd(const struct sockaddr_un *name, socklen_t bytes)
{
	for (;;) {
		int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK, 0);

		if (connect(fd, (const struct sockaddr *)name, bytes) < 0)
			break;
		send(fd, "", 1, 0);
	}
	_exit(errno == EAGAIN ? 0 : 1);
}

START_TEST(strangers_are_sent_away)
{
	struct sockaddr_un name;
	int status;

	ck_assert_int_eq(client_driver_thread_start(), 0);
	int bytes = client_driver_thread_call(find_name, &name, -1);
	ck_assert_int_gt(bytes, 0);
	for (int i = 0; i < 3; i++) {
		pid_t pid = fork();
		if (pid == 0)
			crowd(&name, (socklen_t)bytes);
		ck_assert_int_eq(waitpid(pid, &status, 0), pid);
		ck_assert_int_eq(status, 0);
		hand_over(3);
	}
}
END_TEST

START_TEST(children_have_their_own)
{
	int status;

	client_enter();
	ck_assert_int_eq(client_driver_thread_start(), 0);
	client_leave();
	pid_t pid = fork();
	ck_assert_int_ge(pid, 0);
	if (pid == 0) {
		bool none = client_driver_thread_call(use_it, NULL, -1) == -ESRCH;
		bool good = client_driver_thread_start() == 0 &&
			    client_driver_thread_call(open_one, NULL, -1) == 0 &&
			    client_driver_thread_call(use_it, NULL, -1) == 0;
		_exit(none && good ? 0 : 1);
	}
	ck_assert_int_eq(waitpid(pid, &status, 0), pid);
	ck_assert_int_eq(status, 0);
	hand_over(2);
}
END_TEST

/* The filter acts like a sandbox: a second table of descriptors is refused. */
START_TEST(in_a_sandbox)
{
	struct sock_filter code[] = {
	    BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
	    BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_close_range, 1, 0),
	    BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_unshare, 0, 1),
	    BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
	    BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
	};
	struct sock_fprog filter = {.len = sizeof(code) / sizeof(code[0]), .filter = code};

	ck_assert_int_eq(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), 0);
	ck_assert_int_eq(prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter), 0);
	ck_assert_int_eq(client_driver_thread_start(), -EPERM);
	ck_assert_int_eq(client_driver_thread_start(), -EPERM);
	ck_assert_int_eq(client_driver_thread_call(use_it, NULL, -1), -ESRCH);
}
END_TEST

int main(void)
{
	TCase *tcase;
	Suite *suite = unit_suite("client_driver_thread", &tcase, 60);

	tcase_add_test(tcase, two_tables);
	tcase_add_test(tcase, descriptors_are_handed_over);
	tcase_add_test(tcase, pipes_end);
	tcase_add_test(tcase, strangers_are_sent_away);
	tcase_add_test(tcase, children_have_their_own);
	tcase_add_test(tcase, in_a_sandbox);
	return unit_main(suite);
}
