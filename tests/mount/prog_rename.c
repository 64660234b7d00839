/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* check: asan-host asan-standin tsan */
/* Renaming: replacing, NOREPLACE, EXCHANGE, WHITEOUT, directories, and moving from a GPU to the
 * other. */
#include "tests/mount/prog.h"

#include <sys/xattr.h>

static int move(const char *from, const char *to, unsigned flags)
{
	return renameat2(AT_FDCWD, from, AT_FDCWD, to, flags);
}

static void replacing_a_file(void)
{
	put("a", "one");
	put("b", "two");
	ino_t inode = stat_of("a").st_ino;
	int old = OK(open("b", O_RDONLY));
	char got[4] = "";

	OK(rename("a", "b"));
	CHECK(!exists("a"));
	expect_text("b", "one");
	EQUAL(stat_of("b").st_ino, inode);
	read_all(old, got, 3, 0);
	CHECK(!strcmp(got, "two"));
}

static void onto_itself(void)
{
	put("a", "one");
	OK(link("a", "b"));
	OK(rename("a", "a"));
	OK(rename("a", "b")); /* two names of the same file: POSIX says that rename has no effect */
	CHECK(exists("a") && exists("b"));
	EQUAL(stat_of("a").st_nlink, 2);
	OK(mkdir("dir", 0755));
	OK(rename("dir", "dir"));
	CHECK(exists("dir"));
}

static void replacing_an_empty_directory(void)
{
	OK(mkdir("from", 0755));
	put("from/file", "text");
	OK(mkdir("to", 0755));
	OK(rename("from", "to"));
	CHECK(!exists("from"));
	expect_text("to/file", "text");
}

static void dotdot_follows(void)
{
	struct stat parent;

	OK(mkdir("a", 0755));
	OK(mkdir("b", 0755));
	OK(mkdir("a/sub", 0755));
	OK(rename("a/sub", "b/sub"));
	OK(stat("b/sub/..", &parent));
	EQUAL(parent.st_ino, stat_of("b").st_ino);
	EQUAL(stat_of("a").st_nlink, stat_of("b/sub").st_nlink);
	OK(rmdir("a"));
}

static void noreplace(void)
{
	put("a", "one");
	OK(move("a", "b", RENAME_NOREPLACE));
	put("a", "two");
	FAILS(EEXIST, move("a", "b", RENAME_NOREPLACE));
	expect_text("a", "two");
	expect_text("b", "one");
}

static void exchange(void)
{
	put("file", "text");
	OK(mkdir("dir", 0755));
	OK(mkdir("dir/sub", 0755));
	put("dir/sub/inside", "inside");
	OK(move("file", "dir/sub", RENAME_EXCHANGE));
	expect_text("dir/sub", "text");
	expect_text("file/inside", "inside");
	put("other", "other");
	OK(move("dir/sub", "other", RENAME_EXCHANGE));
	expect_text("other", "text");
	expect_text("dir/sub", "other");
}

static void expect_whiteout(const char *name)
{
	EQUAL(stat_of(name).st_mode, S_IFCHR);
	EQUAL(stat_of(name).st_rdev, 0);
	EQUAL(stat_of(name).st_nlink, 1);
	EQUAL(stat_of(name).st_uid, geteuid());
}

static void whiteout(void)
{
	put("file", "text");
	OK(mkdir("dir", 0755));
	OK(mkdir("dir/sub", 0755));
	OK(mkdir("other", 0777));
	if (move("file", "other/file", RENAME_WHITEOUT)) {
		CHECK(!prog_on_daemon());
		SKIP("no whiteouts here");
	}
	expect_text("other/file", "text");
	expect_whiteout("file");
	FAILS(EEXIST, move("dir", "file", RENAME_WHITEOUT | RENAME_NOREPLACE));
	OK(move("dir", "other/dir", RENAME_WHITEOUT));
	expect_whiteout("dir");
	CHECK(exists("other/dir/sub"));
	put("target", "old");
	OK(move("other/file", "target", RENAME_WHITEOUT));
	expect_text("target", "text");
	expect_whiteout("other/file");
	FAILS(EINVAL, move("target", "file", RENAME_WHITEOUT | RENAME_EXCHANGE));
	FAILS(ENOENT, move("none", "file", RENAME_WHITEOUT));

	OK(chmod(".", 0777));
	OK(setresgid(65534, 65534, 65534));
	OK(setresuid(65534, 65534, 65534));
	put("own", "text");
	OK(move("own", "moved", RENAME_WHITEOUT)); /* needs no privilege, as mknod(2) of 0:0 */
	expect_whiteout("own");
	OK(unlink("own"));
	OK(mknod("own", S_IFCHR, 0));
}

static void open_files_follow(void)
{
	int fd = new_file("a");

	OK(mkdir("dir", 0755));
	OK(rename("a", "dir/b"));
	pattern_write(fd, 1, 0, 3 * MIB);
	int again = OK(open("dir/b", O_RDONLY));
	pattern_check(again, 1, 0, 3 * MIB);
}

static void symlinks_are_moved_themselves(void)
{
	put("file", "text");
	OK(symlink("file", "link"));
	OK(rename("link", "moved"));
	CHECK(S_ISLNK(stat_of("moved").st_mode));
	put("new", "new");
	OK(rename("new", "moved"));
	CHECK(S_ISREG(stat_of("moved").st_mode));
	expect_text("file", "text");
}

/* A name that is replaced again and again exists at every moment. */
static int stop[2];

static void reader_of_a_replaced_file(int unused)
{
	char byte;

	(void)unused;
	OK(close(stop[1]));
	while (read(stop[0], &byte, 1) < 0) {
		int fd = OK(open("target", O_RDONLY));
		char text[5] = "";

		EQUAL(pread(fd, text, 4, 0), 4);
		CHECK(!strcmp(text, "even") || !strcmp(text, "odd!"));
		OK(close(fd));
	}
}

static void replacing_is_atomic(void)
{
	OK(pipe2(stop, O_NONBLOCK));
	put("target", "even");
	spawn(reader_of_a_replaced_file, 0);
	spawn(reader_of_a_replaced_file, 0);
	for (int i = 0; i < 1000; i++) {
		put("fresh", i % 2 ? "odd!" : "even");
		OK(rename("fresh", "target"));
	}
	OK(close(stop[1]));
	join_all(2);
}

/* Two directories must never end up inside one another, and the attempt must not deadlock the
 * daemon. */
static void swap_directories(int which)
{
	for (int i = 0; i < 500; i++) {
		if (which ? rename("a", "b/a") : rename("b", "a/b")) {
			CHECK(errno == ENOENT || errno == EINVAL);
			continue;
		}
		OK(which ? rename("b/a", "a") : rename("a/b", "b"));
	}
}

static void crossing_directory_renames(void)
{
	OK(mkdir("a", 0755));
	OK(mkdir("b", 0755));
	spawn(swap_directories, 0);
	spawn(swap_directories, 1);
	join_all(2);
	CHECK(exists("a") && exists("b"));
}

static void to_another_gpu(void)
{
	const char *to = other("there");
	int fd = new_file("here");

	need_daemon();
	pattern_write(fd, 1, 0, 5 * MIB + 77);
	OK(ftruncate(fd, 20 * MIB));
	OK(setxattr("here", "user.colour", "blue", 4, 0));
	OK(fchmod(fd, 0640));
	OK(rename("here", to));
	CHECK(!exists("here"));
	EQUAL(stat_of(to).st_mode & 07777, 0640);
	EQUAL(stat_of(to).st_size, 20 * MIB);
	char value[8] = "";
	EQUAL(getxattr(to, "user.colour", value, sizeof(value)), 4);
	int moved = OK(open(to, O_RDWR));
	pattern_check(moved, 1, 0, 5 * MIB + 77);
	zero_check(moved, 5 * MIB + 77, 2 * MIB);
	pattern_write(fd, 2, 1 * MIB, 100); /* the old descriptor still refers to the file */
	pattern_check(moved, 2, 1 * MIB, 100);
	OK(rename(to, "back"));
	pattern_check(moved, 1, 2 * MIB, 1 * MIB);
	CHECK(!exists(to));
}

static void to_another_gpu_over_a_file(void)
{
	const char *to = other("there");
	int old;

	put("here", "new");
	put(to, "old");
	old = OK(open(to, O_RDONLY));
	FAILS(EEXIST, move("here", to, RENAME_NOREPLACE));
	expect_text(to, "old");
	OK(rename("here", to));
	expect_text(to, "new");
	CHECK(!exists("here"));
	char got[4] = "";
	read_all(old, got, 3, 0);
	CHECK(!strcmp(got, "old"));
}

static void small_things_to_another_gpu(void)
{
	char target[8] = "";

	put("empty", "");
	OK(rename("empty", other("empty")));
	EQUAL(stat_of(other("empty")).st_size, 0);
	OK(symlink("target", "link"));
	OK(rename("link", other("link")));
	EQUAL(readlink(other("link"), target, sizeof(target)), 6);
	OK(mkfifo("fifo", 0600));
	OK(rename("fifo", other("fifo")));
	CHECK(S_ISFIFO(stat_of(other("fifo")).st_mode));
}

/* A process that opened the file before the move reads the file's bytes at every moment. */
static void read_while_it_moves(int fd)
{
	for (int i = 0; i < 100; i++)
		pattern_check(fd, 3, 0, 1 * MIB);
}

static void moving_under_a_reader(void)
{
	const char *there = other("there");
	int fd = new_file("here");

	pattern_write(fd, 3, 0, 4 * MIB);
	spawn(read_while_it_moves, fd);
	for (int i = 0; i < 20; i++) {
		OK(rename("here", there));
		OK(rename(there, "here"));
	}
	join_all(1);
	pattern_check(fd, 3, 0, 4 * MIB);
}

static int open_wherever_it_is(void)
{
	for (;;) {
		int fd = open("file", O_RDWR);

		if (fd < 0)
			fd = open(prog_other, O_RDWR);
		if (fd >= 0)
			return fd;
		CHECK(errno == ENOENT || errno == ESTALE);
	}
}

/* Writes a number at its own place in the file, and expects the number after opening the file
 * again. */
static void write_what_moves(int place)
{
	uint64_t random = place, number = 0, found;
	char byte;

	OK(close(stop[1]));
	while (read(stop[0], &byte, 1) < 0) {
		int fd = open_wherever_it_is();

		number++;
		write_all(fd, &number, sizeof(number), place * sizeof(number));
		OK(close(fd));
		fd = open_wherever_it_is();
		read_all(fd, &found, sizeof(found), place * sizeof(number));
		OK(close(fd));
		EQUAL(found, number);
		usleep(random_next(&random) % 3000); /* an open file could never move */
	}
}

/* A file moves between host/ and a GPU while processes open and write the file: no write is lost,
 * and no process waits for ever. */
static void moving_host_files_under_writers(void)
{
	OK(pipe2(stop, O_NONBLOCK));
	snprintf(prog_other, sizeof(prog_other), "%s/moving.%d", getenv("HOSTDIR"), getpid());
	int fd = new_file("file");
	pattern_write(fd, 1, 0, 4 * MIB);
	OK(close(fd));
	for (int i = 0; i < 2; i++)
		spawn(write_what_moves, i);
	for (int i = 0; i < 100; i++) {
		OK(rename("file", prog_other));
		while (rename(prog_other, "file"))
			EQUAL(errno, EXDEV); /* the kernel reads and writes an open file itself */
	}
	OK(close(stop[1]));
	join_all(2);
	pattern_check(OK(open("file", O_RDONLY)), 1, 4096, 4 * MIB - 4096);
}

PROG(TEST(replacing_a_file), TEST(onto_itself), TEST(replacing_an_empty_directory),
     TEST(dotdot_follows), TEST(noreplace), TEST(exchange), TEST(whiteout), TEST(open_files_follow),
     TEST(symlinks_are_moved_themselves), TEST(replacing_is_atomic),
     TEST(crossing_directory_renames), TEST(to_another_gpu), TEST(to_another_gpu_over_a_file),
     TEST(small_things_to_another_gpu), TEST(moving_under_a_reader),
     TEST(moving_host_files_under_writers))
