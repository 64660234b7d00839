/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* check: asan-host */
/* needs: daemon
 * expect-log: quota
 * Holes of host/ files below a quota, filled by stores that the daemon does not see: a file that an
 * ordinary user may map or lease is charged by its size. */
#include "tests/mount/protocol.h"

#define QUOTA "4194304"
#define LIMIT (4 * MIB)
#define HUGE  (512 * MIB)
#define PART  (3 * MIB)

static char folder[PATH_MAX];

static const char *in(const char *name)
{
	static char paths[4][PATH_MAX + 64];
	static unsigned next;
	char *path = paths[next++ % 4];

	sprintf(path, "%s/%s", folder, name);
	return path;
}

static void folder_make(const char *name)
{
	need_daemon();
	snprintf(folder, sizeof(folder), "%s/mapped.%s.%d", getenv("HOSTDIR"), name, getpid());
	OK(mkdir(folder, 0755));
	OK(chown(folder, USER, USER));
}

/* Limits the folder and becomes its owner. */
static void folder_limit(void)
{
	OK(setxattr(folder, "user.gpumem.quota.max_bytes", QUOTA, strlen(QUOTA), 0));
	become_user();
}

/* Makes a folder of host/ with a quota, owned by USER, and becomes USER. */
static void limited_folder(const char *name)
{
	folder_make(name);
	folder_limit();
}

static long charged(void)
{
	char text[32] = "";

	OK(getxattr(folder, "user.gpumem.rbytes", text, sizeof(text) - 1));
	return strtol(text, NULL, 10);
}

/* close(2) returns before the daemon gets the release request. */
static void expect_charged(long wanted)
{
	AWAIT(charged() == wanted);
	EQUAL(charged(), wanted);
}

/* The sum briefly includes refused bytes, and pages under writeback by the kernel. */
static void within_the_limit(const char *path)
{
	AWAIT(charged() <= LIMIT);
	CHECK(charged() <= LIMIT);
	CHECK(stat_of(path).st_blocks * 512 <= LIMIT);
}

/* Stores in a child process, because the kernel may kill the process. */
static void store(const char *path, size_t bytes)
{
	pid_t pid = OK(fork());
	int status;

	if (pid == 0) {
		int fd = open(path, O_RDWR);
		volatile char *at = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);

		for (size_t i = 0; at != MAP_FAILED && i < bytes; i += 4096)
			at[i] = 1;
		if (at != MAP_FAILED)
			msync((void *)at, bytes, MS_SYNC);
		_exit(0);
	}
	OK(waitpid(pid, &status, 0));
}

static void holes_made_by_a_handle_that_maps(void)
{
	limited_folder("handle");
	int fd = OK(open(in("file"), O_RDWR | O_CREAT, 0644));

	/* If the kernel maps the object itself, a limited file cannot have holes. Otherwise the
	 * daemon fills the holes, and refuses. */
	if (ftruncate(fd, HUGE) < 0)
		EQUAL(errno, EDQUOT);
	store(in("file"), 8 * LIMIT);
	within_the_limit(in("file"));
	OK(ftruncate(fd, 0));
	OK(ftruncate(fd, PART));
	write_all(fd, "end", 3, PART - 3);
	within_the_limit(in("file"));
	OK(close(fd));
}

static void holes_that_are_there_already(void)
{
	limited_folder("holes");
	int fd = OK(open(in("file"), O_WRONLY | O_CREAT, 0644));

	OK(ftruncate(fd, HUGE));
	write_all(fd, "far", 3, HUGE - 3);
	OK(close(fd));
	store(in("file"), 8 * LIMIT);
	within_the_limit(in("file"));
	OK(unlink(in("file")));
	expect_charged(0);
}

static int lease_answer(const char *path, int flags)
{
	int fd = OK(open(path, flags)), connection = dial();
	struct answer answer;
	int error = lease_try(fd, connection, &answer);

	OK(close(fd));
	OK(close(connection));
	if (!error)
		drop(&answer);
	return error;
}

static void holes_are_not_leased(void)
{
	limited_folder("leased");
	OK(close(OK(open(in("file"), O_WRONLY | O_CREAT, 0644))));
	OK(truncate(in("file"), HUGE));
	EQUAL(lease_answer(in("file"), O_RDWR), EDQUOT);
	EQUAL(lease_answer(in("file"), O_RDONLY), EDQUOT);
	expect_charged(0);
	OK(truncate(in("file"), PART));
	EQUAL(lease_answer(in("file"), O_RDWR), 0);
	expect_charged(0);
}

static void a_lease_is_charged_by_size(void)
{
	limited_folder("lease");
	int fd = OK(open(in("file"), O_WRONLY | O_CREAT, 0644));

	OK(ftruncate(fd, PART));
	OK(close(fd));
	expect_charged(0);
	fd = OK(open(in("file"), O_RDWR));
	int connection = dial();
	struct answer answer = lease_over(connection, fd);

	EQUAL(charged(), PART);
	/* A leased file may grow up to the quota. */
	FAILS(EDQUOT, ftruncate(fd, HUGE));
	OK(ftruncate(fd, LIMIT));
	EQUAL(charged(), LIMIT);
	drop(&answer);
	OK(close(connection));
	OK(close(fd));
	expect_charged(0);
}

/* Once a second the daemon updates the charges of all files whose object the kernel has. When the
 * charge of a file made for this purpose falls, the daemon has updated the other files as well. */
static void wait_for_a_look(void)
{
	int fd = OK(open(in("look"), O_RDWR | O_CREAT, 0644)), connection = dial();
	long before = charged();

	OK(ftruncate(fd, LIMIT - PART));
	struct answer answer = lease_over(connection, fd);

	OK(close(connection));
	OK(close(fd));
	EQUAL(charged(), before + LIMIT - PART);
	drop(&answer);
	expect_charged(before);
	OK(unlink(in("look")));
}

static void a_descriptor_without_a_name_stays_charged(void)
{
	limited_folder("nameless");
	int fd = OK(open(in("file"), O_RDWR | O_CREAT, 0644)), connection = dial();

	OK(ftruncate(fd, PART));
	struct answer answer = lease_over(connection, fd);

	OK(close(connection));
	OK(close(fd));
	OK(unlink(in("file")));
	for (int looks = 0; looks < 2; looks++) {
		wait_for_a_look();
		EQUAL(charged(), PART);
	}
	drop(&answer);
	expect_charged(0);
}

/* The kernel lets a descriptor from before the quota grow the object without the daemon. The daemon
 * charges the growth at its next update. */
static void growth_by_a_descriptor_is_charged_later(void)
{
	folder_make("grown");
	int fd = OK(open(in("file"), O_RDWR | O_CREAT, 0644)), connection = dial();

	OK(ftruncate(fd, PART));
	struct answer answer = lease_over(connection, fd);

	folder_limit();
	int other = OK(open(in("other"), O_WRONLY | O_CREAT, 0644));

	EQUAL(charged(), PART);
	OK(ftruncate(answer.fds[0], PART + LIMIT));
	expect_charged(PART + LIMIT);
	FAILS(EDQUOT, pwrite(other, "x", 1, 0));
	OK(ftruncate(answer.fds[0], PART));
	expect_charged(PART);
	/* After unlink and close the lease still counts. */
	OK(unlink(in("file")));
	OK(close(fd));
	OK(ftruncate(answer.fds[0], PART + LIMIT));
	expect_charged(PART + LIMIT);
	FAILS(EDQUOT, pwrite(other, "x", 1, 0));
	drop(&answer);
	OK(close(connection));
	expect_charged(0);
	EQUAL(OK(pwrite(other, "x", 1, 0)), 1);
	OK(close(other));
}

static bool is_passed_through(void)
{
	char text[8192] = "", path[PATH_MAX];

	snprintf(path, sizeof(path), "%s/.gpumem/params", getenv("MNT"));
	int fd = OK(open(path, O_RDONLY));

	OK(read(fd, text, sizeof(text) - 1));
	OK(close(fd));
	return strstr(text, "passthrough on") != NULL;
}

static void a_mapping_is_charged_by_size(void)
{
	static char bytes[MIB];

	limited_folder("mapping");
	if (!is_passed_through())
		SKIP("the kernel maps no object");
	int fd = OK(open(in("file"), O_RDWR | O_CREAT, 0644));

	OK(ftruncate(fd, PART));
	char *at = mmap(NULL, PART, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);

	CHECK(at != MAP_FAILED);
	expect_charged(PART);
	int other = OK(open(in("other"), O_RDWR | O_CREAT, 0644));

	write_all(other, bytes, sizeof(bytes), 0);
	FAILS(EDQUOT, pwrite(other, bytes, 4096, MIB));
	/* The charge outlives the handle. */
	OK(close(fd));
	for (int i = 0; i < 3; i++) {
		OK(close(OK(open(in("file"), O_RDONLY))));
		FAILS(EDQUOT, pwrite(other, bytes, 4096, MIB));
	}
	memset(at, 1, MIB);
	OK(munmap(at, PART));
	expect_charged(2 * MIB);
	write_all(other, bytes, sizeof(bytes), MIB);
	OK(close(other));
}

static void a_mapped_file_moves_in_by_its_size(void)
{
	limited_folder("moved");
	if (!is_passed_through())
		SKIP("the kernel maps no object");
	char outside[PATH_MAX];

	snprintf(outside, sizeof(outside), "%s/outside.%d", getenv("HOSTDIR"), getpid());
	int fd = OK(open(outside, O_RDWR | O_CREAT, 0644));

	OK(ftruncate(fd, HUGE));
	FAILS(EDQUOT, rename(outside, in("file")));
	OK(ftruncate(fd, PART));
	OK(rename(outside, in("file")));
	EQUAL(charged(), PART);
	OK(close(fd));
	expect_charged(0);
}

PROG(TEST(holes_made_by_a_handle_that_maps), TEST(holes_that_are_there_already),
     TEST(holes_are_not_leased), TEST(a_lease_is_charged_by_size),
     TEST(growth_by_a_descriptor_is_charged_later), TEST(a_descriptor_without_a_name_stays_charged),
     TEST(a_mapping_is_charged_by_size), TEST(a_mapped_file_moves_in_by_its_size))
