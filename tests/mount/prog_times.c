/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* check: asan-host */
/* Times: nanoseconds, utimensat, birth time, and which call moves which time. */
#include "tests/mount/prog.h"

#include <dirent.h>
#include <sys/xattr.h>
#include <time.h>

struct times {
	struct timespec access, change, content, birth;
};

static struct timespec from_statx(struct statx_timestamp t)
{
	return (struct timespec){t.tv_sec, t.tv_nsec};
}

static struct times times_of(const char *path)
{
	struct statx st;

	OK(statx(AT_FDCWD, path, AT_SYMLINK_NOFOLLOW | AT_STATX_FORCE_SYNC,
		 STATX_BASIC_STATS | STATX_BTIME, &st));
	return (struct times){from_statx(st.stx_atime), from_statx(st.stx_ctime),
			      from_statx(st.stx_mtime), from_statx(st.stx_btime)};
}

static bool later(struct timespec a, struct timespec b)
{
	return a.tv_sec != b.tv_sec ? a.tv_sec > b.tv_sec : a.tv_nsec > b.tv_nsec;
}

static bool same(struct timespec a, struct timespec b)
{
	return a.tv_sec == b.tv_sec && a.tv_nsec == b.tv_nsec;
}

/* Lets the clock move on by more than the kernel's coarse clock ticks. */
static struct times wait_and_look(const char *path)
{
	struct times now = times_of(path);

	nanosleep(&(struct timespec){0, 20 * 1000 * 1000}, NULL);
	return now;
}

static void set_by_utimensat(void)
{
	struct timespec given[2] = {{1234567890, 123456789}, {987654321, 987654321}};

	put("file", "text");
	OK(utimensat(AT_FDCWD, "file", given, 0));
	struct times t = times_of("file");
	CHECK(same(t.access, given[0]) && same(t.content, given[1]));
	CHECK(later(t.change, given[0]));
	given[0].tv_nsec = UTIME_OMIT;
	given[1] = (struct timespec){-1000, 5}; /* before 1970 */
	OK(utimensat(AT_FDCWD, "file", given, 0));
	EQUAL(times_of("file").content.tv_sec, -1000);
	EQUAL(times_of("file").content.tv_nsec, 5);
	EQUAL(times_of("file").access.tv_sec, 1234567890);
	given[1] = (struct timespec){6000000000, 0}; /* after 2106 */
	OK(utimensat(AT_FDCWD, "file", given, 0));
	EQUAL(times_of("file").content.tv_sec, 6000000000);
	given[0].tv_nsec = given[1].tv_nsec = UTIME_NOW;
	OK(utimensat(AT_FDCWD, "file", given, 0));
	CHECK(llabs((long long)times_of("file").content.tv_sec - time(NULL)) < 10);
	FAILS(EINVAL, utimensat(AT_FDCWD, "file", (struct timespec[]){{0, -1}, {0, 0}}, 0));
}

static void read_once(void)
{
	int fd = OK(open("file", O_RDONLY));
	char byte;

	OK(read(fd, &byte, 1));
	OK(close(fd));
}

/* Nanoseconds from 1678 to 2261, whole seconds beyond, and a refusal of what would come back as
 * another time. */
static void far_times_come_back(void)
{
	static const struct timespec far[] = {
	    {253402300799, 999999999}, /* the end of the year 9999 */
	    {-62135596800, 5},	       /* the year 1 */
	    {9199999999, 999999999},
	    {9200000000, 1},
	    {9223372037, 0},
	    {-9200000000, 1},
	    {-9200000001, 999999999},
	    {-1, 999999999},
	    {-1, 0},
	    {0, 0},
	    {1L << 54, 0},
	    {-(1L << 54), 0},
	};

	need_daemon();
	put("file", "text");
	for (size_t i = 0; i < sizeof(far) / sizeof(far[0]); i++) {
		bool exact = far[i].tv_sec < 9200000000 && far[i].tv_sec >= -9200000000;
		struct timespec given[2] = {far[i], far[i]};

		OK(utimensat(AT_FDCWD, "file", given, 0));
		struct times t = times_of("file");
		EQUAL(t.content.tv_sec, far[i].tv_sec);
		EQUAL(t.content.tv_nsec, exact ? far[i].tv_nsec : 0);
		CHECK(same(t.content, t.access));
	}
	struct times before = times_of("file");
	FAILS(EOVERFLOW,
	      utimensat(AT_FDCWD, "file", (struct timespec[]){{1L << 55, 0}, {0, 0}}, 0));
	FAILS(EOVERFLOW,
	      utimensat(AT_FDCWD, "file", (struct timespec[]){{0, 0}, {LONG_MIN, 0}}, 0));
	CHECK(same(times_of("file").content, before.content));
	read_once();
	int fd = OK(open("file", O_WRONLY | O_APPEND));
	OK(utimensat(AT_FDCWD, "file", (struct timespec[]){far[0], far[0]}, 0));
	EQUAL(write(fd, "x", 1), 1);
	CHECK(times_of("file").content.tv_sec < far[0].tv_sec); /* a write sets the present time */
}

static void of_links_directories_and_fds(void)
{
	struct timespec given[2] = {{100, 1}, {200, 2}};

	put("file", "text");
	OK(symlink("file", "link"));
	OK(mkdir("dir", 0755));
	OK(utimensat(AT_FDCWD, "link", given, AT_SYMLINK_NOFOLLOW));
	EQUAL(times_of("link").content.tv_sec, 200);
	CHECK(times_of("file").content.tv_sec > 200);
	OK(utimensat(AT_FDCWD, "dir", given, 0));
	EQUAL(times_of("dir").content.tv_nsec, 2);
	int fd = OK(open("file", O_RDONLY));
	OK(futimens(fd, given));
	EQUAL(times_of("file").access.tv_sec, 100);
}

static void birth_time_stays(void)
{
	time_t before = time(NULL);

	put("file", "text");
	struct times t = wait_and_look("file");
	if (!prog_on_daemon() && t.birth.tv_sec == 0)
		SKIP("no birth times here");
	CHECK(t.birth.tv_sec >= before - 1 && t.birth.tv_sec <= time(NULL) + 1);
	put("file", "changed");
	OK(chmod("file", 0600));
	OK(rename("file", "moved"));
	CHECK(same(times_of("moved").birth, t.birth));
}

#define MOVES(path, call, what)                                                                    \
	do {                                                                                       \
		struct times before_ = wait_and_look(path);                                        \
		OK(call);                                                                          \
		struct times after_ = times_of(path);                                              \
		if (!later(after_.what, before_.what))                                             \
			FAIL("%s left the %s time of %s", #call, #what, path);                     \
	} while (0)

#define KEEPS(path, call, what)                                                                    \
	do {                                                                                       \
		struct times before_ = wait_and_look(path);                                        \
		OK(call);                                                                          \
		if (!same(times_of(path).what, before_.what))                                      \
			FAIL("%s moved the %s time of %s", #call, #what, path);                    \
	} while (0)

static void writing_moves_them(void)
{
	int fd = new_file("file");

	MOVES("file", pwrite(fd, "text", 4, 0), content);
	MOVES("file", pwrite(fd, "text", 4, 0), change);
	MOVES("file", ftruncate(fd, 2), content);
	MOVES("file", ftruncate(fd, 100), change);
	MOVES("file", truncate("file", 3), content);
	MOVES("file", open("file", O_WRONLY | O_TRUNC), content);
	KEEPS("file", pwrite(fd, "", 0, 0), content);
	KEEPS("file", fsync(fd), content);
}

static void metadata_moves_change_only(void)
{
	put("file", "text");
	MOVES("file", chmod("file", 0600), change);
	KEEPS("file", chmod("file", 0644), content);
	MOVES("file", chown("file", 1, 1), change);
	MOVES("file", link("file", "link"), change);
	MOVES("file", unlink("link"), change);
	MOVES("file", setxattr("file", "user.a", "b", 1, 0), change);
	KEEPS("file", setxattr("file", "user.a", "c", 1, 0), content);
	MOVES("file", removexattr("file", "user.a"), change);
	struct times before = wait_and_look("file");
	OK(rename("file", "moved"));
	CHECK(later(times_of("moved").change, before.change));
	CHECK(same(times_of("moved").content, before.content));
}

#define MOVES_DIR(call)                                                                            \
	do {                                                                                       \
		struct times before_ = wait_and_look("dir");                                       \
		OK(call);                                                                          \
		struct times after_ = times_of("dir");                                             \
		if (!later(after_.content, before_.content) ||                                     \
		    !later(after_.change, before_.change))                                         \
			FAIL("%s left the times of its directory", #call);                         \
	} while (0)

static void directories_show_their_changes(void)
{
	OK(mkdir("dir", 0755));
	put("outside", "");
	MOVES_DIR(open("dir/file", O_CREAT | O_WRONLY, 0644));
	MOVES_DIR(mkdir("dir/sub", 0755));
	MOVES_DIR(symlink("x", "dir/link"));
	MOVES_DIR(mkfifo("dir/fifo", 0644));
	MOVES_DIR(link("outside", "dir/hard"));
	MOVES_DIR(rename("outside", "dir/moved"));
	MOVES_DIR(rename("dir/fifo", "fifo"));
	MOVES_DIR(unlink("dir/file"));
	MOVES_DIR(rmdir("dir/sub"));
	KEEPS("dir", truncate("dir/hard", 9), content);
	KEEPS("dir", open("dir/hard", O_CREAT | O_WRONLY, 0644), content);
}

/* relatime: a read moves the access time when it is not later than the content's. */
static void reading_moves_access_as_relatime(void)
{
	struct timespec old[2] = {{1000, 0}, {2000, 0}};

	put("file", "text");
	OK(utimensat(AT_FDCWD, "file", old, 0));
	wait_and_look("file");
	read_once();
	CHECK(times_of("file").access.tv_sec > 2000);
	struct times t = wait_and_look("file");
	read_once();
	CHECK(same(times_of("file").access, t.access));
	old[0] = (struct timespec){time(NULL) - 2 * 86400, 0}; /* a day later it moves again */
	old[1] = (struct timespec){1000, 0};
	OK(utimensat(AT_FDCWD, "file", old, 0));
	read_once();
	CHECK(times_of("file").access.tv_sec > old[0].tv_sec);
	int fd = OK(open("file", O_RDONLY | O_NOATIME));
	OK(utimensat(AT_FDCWD, "file", (struct timespec[]){{1000, 0}, {2000, 0}}, 0));
	OK(read(fd, &(char){0}, 1));
	EQUAL(times_of("file").access.tv_sec, 1000);
}

/* Also if a tick of the kernel's clock has many writes. */
static void each_write_that_is_looked_for_shows(void)
{
	int fd = OK(open("file", O_RDWR | O_CREAT, 0600));

	for (int i = 0; i < 200; i++) {
		struct times before = times_of("file");

		EQUAL(pwrite(fd, "x", 1, 0), 1);
		CHECK(later(times_of("file").content, before.content));
		CHECK(later(times_of("file").change, before.change));
	}
	OK(close(fd));
}

PROG(TEST(set_by_utimensat), TEST(far_times_come_back), TEST(of_links_directories_and_fds),
     TEST(birth_time_stays), TEST(writing_moves_them), TEST(metadata_moves_change_only),
     TEST(directories_show_their_changes), TEST(reading_moves_access_as_relatime),
     TEST(each_write_that_is_looked_for_shows))
