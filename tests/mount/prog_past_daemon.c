/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* check: asan-host asan-standin */
/* needs: daemon
 * Programs change a host/ file without the daemon, through the object that the kernel has: times,
 * sums and mappings are as of any file. */
#include "tests/mount/prog.h"

#include <sys/mman.h>
#include <sys/xattr.h>

static char path[PATH_MAX];

static const char *host(const char *name)
{
	snprintf(path, sizeof(path), "%s/past.%s", getenv("HOSTDIR"), name);
	return path;
}

static int host_file(const char *name)
{
	return OK(open(host(name), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0644));
}

static int64_t nanoseconds(const struct timespec *time)
{
	return time->tv_sec * 1000000000L + time->tv_nsec;
}

static int64_t mtime_of(const char *name)
{
	struct stat st = stat_of(name);

	return nanoseconds(&st.st_mtim);
}

static void tick(void)
{
	usleep(20000);
}

static void a_mapping_outlives_handle_and_name(void)
{
	int fd = host_file("mapping");
	char *bytes;

	OK(ftruncate(fd, 8192));
	bytes = mmap(NULL, 8192, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	CHECK(bytes != MAP_FAILED);
	strcpy(bytes, "still here");
	OK(close(fd));
	tick();
	OK(unlink(host("mapping")));
	tick();
	CHECK(strcmp(bytes, "still here") == 0);
	bytes[8191] = 1;
	OK(munmap(bytes, 8192));
}

static void a_write_moves_mtime(void)
{
	int fd = host_file("write");
	int64_t before = mtime_of(host("write"));

	tick();
	OK(write(fd, "x", 1));
	CHECK(mtime_of(host("write")) > before);
	struct stat st = stat_of(host("write"));
	CHECK(nanoseconds(&st.st_ctim) >= nanoseconds(&st.st_mtim));
	OK(close(fd));
	before = mtime_of(host("write"));
	tick();
	fd = OK(open(host("write"), O_WRONLY | O_APPEND));
	EQUAL(mtime_of(host("write")), before);
	OK(write(fd, "y", 1));
	CHECK(mtime_of(host("write")) > before);
	OK(close(fd));
	OK(unlink(host("write")));
}

static void a_time_that_was_set_stays(void)
{
	static const struct timespec past[2] = {{.tv_sec = 1000}, {.tv_sec = 2000, .tv_nsec = 3}};
	int fd = host_file("set");

	OK(write(fd, "x", 1));
	OK(futimens(fd, past));
	EQUAL(mtime_of(host("set")), 2000000000003);
	OK(close(fd));
	tick();
	EQUAL(mtime_of(host("set")), 2000000000003);
	fd = OK(open(host("set"), O_RDWR));
	EQUAL(mtime_of(host("set")), 2000000000003);
	OK(write(fd, "y", 1));
	CHECK(mtime_of(host("set")) > 2000000000003);
	OK(futimens(fd, past));
	OK(close(fd));
	tick();
	OK(rename(host("set"), "moved"));
	EQUAL(mtime_of("moved"), 2000000000003);
	OK(rename("moved", host("set")));
	EQUAL(mtime_of(host("set")), 2000000000003);
	OK(setxattr(host("set"), "user.gpumem.page_size", "2M", 2, 0));
	EQUAL(mtime_of(host("set")), 2000000000003);
	OK(unlink(host("set")));
}

static long sum_of(const char *name)
{
	char text[32] = "";

	OK(getxattr(name, "user.gpumem.rbytes", text, sizeof(text) - 1));
	return strtol(text, NULL, 10);
}

/* close returns before the daemon gets the release request. */
static void expect_sum(long bytes)
{
	AWAIT(sum_of(host("sum")) == bytes);
	EQUAL(sum_of(host("sum")), bytes);
}

static void what_was_written_is_counted(void)
{
	static char bytes[MIB];
	int fd;

	OK(mkdir(host("sum"), 0755));
	fd = host_file("sum/file");
	for (int i = 0; i < 5; i++)
		OK(write(fd, bytes, sizeof(bytes)));
	OK(close(fd));
	expect_sum(5 * MIB);
	OK(unlink(host("sum/file")));
	expect_sum(0);
	OK(rmdir(host("sum")));
}

/* A writer of an empty file must not fail because a reader has mapped the file. */
static void an_empty_file_that_is_mapped_can_be_written(void)
{
	int reader, fd;
	void *bytes;

	OK(mknod(host("empty"), S_IFREG | 0644, 0));
	reader = OK(open(host("empty"), O_RDONLY));
	bytes = mmap(NULL, 4096, PROT_READ, MAP_SHARED, reader, 0);
	CHECK(bytes != MAP_FAILED);
	fd = OK(open(host("empty"), O_RDWR));
	OK(write(fd, "text", 4));
	CHECK(memcmp(bytes, "text", 4) == 0);
	OK(munmap(bytes, 4096));
	OK(close(reader));
	OK(close(fd));
	expect_text(host("empty"), "text");
	OK(unlink(host("empty")));
}

PROG(TEST(a_mapping_outlives_handle_and_name), TEST(a_write_moves_mtime),
     TEST(a_time_that_was_set_stays), TEST(what_was_written_is_counted),
     TEST(an_empty_file_that_is_mapped_can_be_written))
