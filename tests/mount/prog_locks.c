/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* check: asan-host tsan */
/* Locks between processes: fcntl ranges, open file description locks, flock. */
#include "tests/mount/prog.h"

#include <signal.h>
#include <sys/file.h>

static int lock(int fd, int command, short type, off_t start, off_t bytes)
{
	struct flock range = {
	    .l_type = type, .l_whence = SEEK_SET, .l_start = start, .l_len = bytes};

	return fcntl(fd, command, &range);
}

static void expect_conflict(int unused)
{
	int fd = OK(open("file", O_RDWR));
	struct flock range = {.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = 0, .l_len = 0};

	(void)unused;
	FAILS(EAGAIN, lock(fd, F_SETLK, F_WRLCK, 5, 1));
	FAILS(EAGAIN, lock(fd, F_SETLK, F_RDLCK, 0, 0));
	OK(lock(fd, F_SETLK, F_WRLCK, 10, 10));
	OK(fcntl(fd, F_GETLK, &range));
	EQUAL(range.l_type, F_WRLCK);
	EQUAL(range.l_pid, getppid());
	EQUAL(range.l_start, 0);
	EQUAL(range.l_len, 10);
}

static void expect_free(int unused)
{
	int fd = OK(open("file", O_RDWR));

	(void)unused;
	OK(lock(fd, F_SETLK, F_WRLCK, 0, 0));
}

static void ranges_conflict(void)
{
	int fd = new_file("file");

	OK(lock(fd, F_SETLK, F_WRLCK, 0, 10));
	spawn(expect_conflict, 0);
	join_all(1);
	OK(lock(fd, F_SETLK, F_UNLCK, 0, 0));
	spawn(expect_free, 0);
	join_all(1);
	OK(lock(fd, F_SETLK, F_WRLCK, 0, 0));
	/* Closing any descriptor of a file drops the process's locks. */
	OK(close(OK(open("file", O_RDONLY))));
	spawn(expect_free, 0);
	join_all(1);
}

static void share_read(int unused)
{
	int fd = OK(open("file", O_RDWR));

	(void)unused;
	OK(lock(fd, F_SETLK, F_RDLCK, 0, 0));
	FAILS(EAGAIN, lock(fd, F_SETLK, F_WRLCK, 0, 0));
}

static void readers_share(void)
{
	int fd = new_file("file");

	OK(lock(fd, F_SETLK, F_RDLCK, 0, 0));
	spawn(share_read, 0);
	spawn(share_read, 0);
	join_all(2);
	int reader = OK(open("file", O_RDONLY));
	FAILS(EBADF, lock(reader, F_SETLK, F_WRLCK, 0, 0));
}

/* Increments a counter in the file under a blocking lock: no increment may be lost. */
static void raise_counter(int by_flock)
{
	int fd = OK(open("file", O_RDWR)), value;

	for (int i = 0; i < 200; i++) {
		OK(by_flock ? flock(fd, LOCK_EX) : lock(fd, F_SETLKW, F_WRLCK, 0, 4));
		read_all(fd, &value, 4, 0);
		value++;
		write_all(fd, &value, 4, 0);
		OK(by_flock ? flock(fd, LOCK_UN) : lock(fd, F_SETLKW, F_UNLCK, 0, 4));
	}
}

static void count_under(int by_flock)
{
	int fd = new_file("file"), value = 0;

	write_all(fd, &value, 4, 0);
	for (int i = 0; i < 4; i++)
		spawn(raise_counter, by_flock);
	join_all(4);
	read_all(fd, &value, 4, 0);
	EQUAL(value, 800);
}

static void waiting_for_fcntl(void)
{
	count_under(0);
}

static void waiting_for_flock(void)
{
	count_under(1);
}

static void flock_belongs_to_the_open_file(void)
{
	int a = new_file("file"), b = OK(open("file", O_RDONLY)), copy = OK(dup(a));

	OK(flock(a, LOCK_EX));
	FAILS(EAGAIN, flock(b, LOCK_EX | LOCK_NB));
	FAILS(EAGAIN, flock(b, LOCK_SH | LOCK_NB));
	OK(flock(copy, LOCK_SH));
	OK(flock(b, LOCK_SH | LOCK_NB));
	OK(close(a));
	FAILS(EAGAIN, flock(b, LOCK_EX | LOCK_NB));
	OK(close(copy));
	OK(flock(b, LOCK_EX | LOCK_NB));
}

static void open_file_description_locks(void)
{
	int a = new_file("file"), b = OK(open("file", O_RDWR));

	OK(lock(a, F_OFD_SETLK, F_WRLCK, 0, 10));
	FAILS(EAGAIN, lock(b, F_OFD_SETLK, F_WRLCK, 9, 1));
	OK(lock(b, F_OFD_SETLK, F_WRLCK, 10, 1));
	OK(close(a));
	OK(lock(b, F_OFD_SETLK, F_WRLCK, 0, 0));
}

static void hold_and_die(int fd)
{
	OK(lock(OK(open("file", O_RDWR)), F_SETLK, F_WRLCK, 0, 0));
	OK(flock(OK(open("file", O_RDWR)), LOCK_EX));
	OK(write(fd, "x", 1));
	pause();
}

static void a_killed_holder_lets_go(void)
{
	int pipes[2], fd = new_file("file");
	char byte;

	OK(pipe(pipes));
	pid_t pid = spawn(hold_and_die, pipes[1]);
	EQUAL(read(pipes[0], &byte, 1), 1);
	FAILS(EAGAIN, flock(fd, LOCK_EX | LOCK_NB));
	OK(kill(pid, SIGKILL));
	OK(waitpid(pid, NULL, 0));
	OK(flock(fd, LOCK_EX));
	OK(lock(fd, F_SETLKW, F_WRLCK, 0, 0));
}

PROG(TEST(ranges_conflict), TEST(readers_share), TEST(waiting_for_fcntl), TEST(waiting_for_flock),
     TEST(flock_belongs_to_the_open_file), TEST(open_file_description_locks),
     TEST(a_killed_holder_lets_go))
