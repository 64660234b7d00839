/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* check: asan-host */
/* O_APPEND on open handles, in gpu0/ and in host/, where the kernel writes to most handles' object
 * without the daemon: a handle appends as its flags say now, not as its open said. */
#include "tests/mount/prog.h"

#include <signal.h>
#include <sys/resource.h>
#include <sys/uio.h>

#ifndef RWF_NOAPPEND
#define RWF_NOAPPEND 0x20
#endif

enum { WRITERS = 4, LINES = 300, LINE_BYTES = 64 };

static void in_both(void (*check)(void))
{
	char path[PATH_MAX];

	check();
	snprintf(path, sizeof(path), "%s/append.XXXXXX", getenv("HOSTDIR"));
	OK(mkdtemp(path) ? 0 : -1);
	OK(chdir(path));
	check();
}

static int open_with_digits(int flags)
{
	int fd = OK(open("file", O_RDWR | O_CREAT | O_TRUNC | flags, 0644));

	EQUAL(write(fd, "0123456789", 10), 10);
	return fd;
}

static void check_cleared(void)
{
	int fd = open_with_digits(O_APPEND);

	OK(fcntl(fd, F_SETFL, 0));
	EQUAL(pwrite(fd, "AB", 2, 2), 2);
	expect_text("file", "01AB456789");
	EQUAL(lseek(fd, 4, SEEK_SET), 4);
	EQUAL(write(fd, "CD", 2), 2);
	expect_text("file", "01ABCD6789");
	OK(fcntl(fd, F_SETFL, O_APPEND));
	EQUAL(pwrite(fd, "EF", 2, 0), 2);
	expect_text("file", "01ABCD6789EF");
	OK(close(fd));
}

static void cleared_flag_writes_in_place(void)
{
	in_both(check_cleared);
}

static void check_set(void)
{
	int fd = open_with_digits(0);

	OK(fcntl(fd, F_SETFL, O_APPEND));
	EQUAL(pwrite(fd, "AB", 2, 2), 2);
	expect_text("file", "0123456789AB");
	OK(fcntl(fd, F_SETFL, 0));
	EQUAL(pwrite(fd, "CD", 2, 2), 2);
	expect_text("file", "01CD456789AB");
	OK(close(fd));
}

static void set_flag_appends(void)
{
	in_both(check_set);
}

static void check_of_one_call(void)
{
	struct iovec bytes = {"AB", 2};
	int fd = open_with_digits(O_APPEND), in_place = OK(open("file", O_RDWR));

	ssize_t n = pwritev2(fd, &bytes, 1, 2, RWF_NOAPPEND);
	if (n < 0 && errno == EOPNOTSUPP)
		SKIP("no RWF_NOAPPEND before Linux 6.9");
	EQUAL(n, 2);
	expect_text("file", "01AB456789");
	EQUAL(pwritev2(in_place, &bytes, 1, 0, RWF_APPEND), 2);
	expect_text("file", "01AB456789AB");
	OK(close(in_place));
	OK(close(fd));
}

static void flags_of_one_call_count(void)
{
	in_both(check_of_one_call);
}

static void check_sizes(void)
{
	int fd = open_with_digits(O_APPEND), other = OK(open("file", O_RDWR));

	EQUAL(pwrite(other, "ab", 2, 10), 2);
	EQUAL(write(fd, "cd", 2), 2);
	expect_text("file", "0123456789abcd");
	OK(ftruncate(other, 4));
	EQUAL(write(fd, "ef", 2), 2);
	expect_text("file", "0123ef");
	OK(fallocate(other, 0, 0, 8));
	EQUAL(write(fd, "gh", 2), 2);
	EQUAL(size_of(other), 10);
	EQUAL(lseek(fd, 0, SEEK_CUR), 10);

	char *map = mmap(NULL, 10, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	CHECK(map != MAP_FAILED);
	map[0] = 'x';
	EQUAL(pwrite(other, "y", 1, 1), 1);
	CHECK(!memcmp(map, "xy23ef\0\0gh", 10));
	OK(munmap(map, 10));
	char got[10];
	read_all(fd, got, 10, 0);
	CHECK(!memcmp(got, "xy23ef\0\0gh", 10));
	OK(close(other));
	OK(close(fd));
}

static void ends_and_mappings_are_shared_with_other_handles(void)
{
	in_both(check_sizes);
}

/* Half of the writers open with O_APPEND, half set the flag later: no line is lost or torn. */
static void write_lines(int writer)
{
	int fd = OK(open("lines", O_WRONLY | (writer % 2 ? O_APPEND : 0)));
	char line[LINE_BYTES];

	OK(fcntl(fd, F_SETFL, O_APPEND));
	memset(line, 'a' + writer, sizeof(line));
	line[LINE_BYTES - 1] = '\n';
	for (int i = 0; i < LINES; i++)
		EQUAL(write(fd, line, sizeof(line)), LINE_BYTES);
}

static void check_writers(void)
{
	int fd = new_file("lines"), lines[WRITERS] = {0};
	char line[LINE_BYTES];

	for (int writer = 0; writer < WRITERS; writer++)
		spawn(write_lines, writer);
	join_all(WRITERS);
	EQUAL(size_of(fd), WRITERS * LINES * LINE_BYTES);
	for (int i = 0; i < WRITERS * LINES; i++) {
		read_all(fd, line, sizeof(line), (off_t)i * LINE_BYTES);
		CHECK(line[0] >= 'a' && line[0] < 'a' + WRITERS);
		for (int at = 1; at < LINE_BYTES - 1; at++)
			EQUAL(line[at], line[0]);
		lines[line[0] - 'a']++;
	}
	for (int writer = 0; writer < WRITERS; writer++)
		EQUAL(lines[writer], LINES);
	OK(close(fd));
}

static void many_writers_lose_no_line(void)
{
	in_both(check_writers);
}

static void check_limit(void)
{
	int fd = open_with_digits(O_APPEND);

	EQUAL(write(fd, "abcdef", 6), 2);
	FAILS(EFBIG, write(fd, "abcdef", 6));
	EQUAL(size_of(fd), 12);
	OK(close(fd));
}

static void file_size_limit_ends_an_append(void)
{
	signal(SIGXFSZ, SIG_IGN);
	OK(setrlimit(RLIMIT_FSIZE, &(struct rlimit){12, 12}));
	in_both(check_limit);
}

PROG(TEST(cleared_flag_writes_in_place), TEST(set_flag_appends), TEST(flags_of_one_call_count),
     TEST(ends_and_mappings_are_shared_with_other_handles), TEST(many_writers_lose_no_line),
     TEST(file_size_limit_ends_an_append))
