/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* needs: daemon
 * expect-log: quota
 * Leases of host/ files below a quota: with the descriptor of a lease a process gets no memory that
 * was not charged before, whatever the process does with the descriptor. */
#include "tests/mount/protocol.h"

#define QUOTA "4194304"
#define LIMIT (4 * MIB)
#define HUGE  (64 * MIB)
#define PART  (3 * MIB)

static char folder[PATH_MAX], outside[PATH_MAX];
static char bytes[MIB];

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
	snprintf(folder, sizeof(folder), "%s/leased.%s.%d", getenv("HOSTDIR"), name, getpid());
	snprintf(outside, sizeof(outside), "%s/outside.%s.%d", getenv("HOSTDIR"), name, getpid());
	OK(mkdir(folder, 0755));
	OK(chown(folder, USER, USER));
	memset(bytes, 'x', sizeof(bytes));
}

static void folder_limit(void)
{
	OK(setxattr(folder, "user.gpumem.quota.max_bytes", QUOTA, strlen(QUOTA), 0));
}

/* Makes a folder of host/ with a quota, owned by USER, and becomes USER. */
static void limited_folder(const char *name)
{
	folder_make(name);
	folder_limit();
	become_user();
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

static long taken(int fd)
{
	struct stat st;

	OK(fstat(fd, &st));
	return st.st_blocks * 512;
}

static void part_write(const char *path)
{
	int fd = OK(open(path, O_WRONLY | O_CREAT, 0644));

	for (int i = 0; i < PART / MIB; i++)
		write_all(fd, bytes, sizeof(bytes), i * MIB);
	OK(close(fd));
}

/* A lease for writing of the file, whose connection stays open until the process ends. */
static int lease_descriptor(const char *path)
{
	int fd = OK(open(path, O_RDWR)), connection = dial();
	struct answer answer = lease_over(connection, fd);

	EQUAL(answer.n_fds, 1);
	OK(close(fd));
	return answer.fds[0];
}

static int lease_error(const char *path)
{
	int fd = OK(open(path, O_RDWR)), connection = dial();
	struct answer answer;
	int error = lease_try(fd, connection, &answer);

	OK(close(fd));
	OK(close(connection));
	if (!error)
		drop(&answer);
	return error;
}

/* In a child process, because the kernel may kill the process. */
static void store_all(int fd, size_t size)
{
	pid_t pid = OK(fork());
	int status;

	if (pid == 0) {
		volatile char *at = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);

		madvise((void *)at, size, MADV_HUGEPAGE);
		for (size_t i = 0; at != MAP_FAILED && i < size; i += 4096)
			at[i] = 1;
		_exit(0);
	}
	OK(waitpid(pid, &status, 0));
}

/* All ways to take memory through a descriptor of the object. */
static void take_all(int fd)
{
	OK(ftruncate(fd, HUGE));
	store_all(fd, HUGE);
	if (fallocate(fd, 0, 0, HUGE) < 0)
		CHECK(errno == ENOSPC || errno == EDQUOT);
	if (fallocate(fd, FALLOC_FL_KEEP_SIZE, HUGE, HUGE) < 0)
		CHECK(errno == ENOSPC || errno == EDQUOT);
	for (off_t at = 0; at < HUGE && pwrite(fd, bytes, MIB, at) > 0; at += MIB)
		;
}

static void a_descriptor_takes_what_is_charged(void)
{
	limited_folder("descriptor");
	part_write(in("file"));
	int fd = lease_descriptor(in("file"));

	EQUAL(charged(), PART);
	take_all(fd);
	EQUAL(taken(fd), PART);
	EQUAL(charged(), PART);
	/* Memory that is given up and taken again stays charged. */
	OK(fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, HUGE));
	EQUAL(charged(), PART);
	OK(ftruncate(fd, 0));
	usleep(1200000);
	EQUAL(charged(), PART);
	take_all(fd);
	EQUAL(taken(fd), PART);
	EQUAL(charged(), PART);
	OK(unlink(in("file")));
	take_all(fd);
	EQUAL(taken(fd), PART);
}

static void an_empty_file_takes_a_page(void)
{
	limited_folder("empty");
	OK(close(OK(open(in("file"), O_RDWR | O_CREAT, 0644))));
	int fd = lease_descriptor(in("file"));

	take_all(fd);
	CHECK(taken(fd) <= 4096);
	CHECK(charged() <= 4096);
}

static void no_descriptor_seals_or_locks_the_file(void)
{
	limited_folder("sealed");
	part_write(in("file"));
	int fd = lease_descriptor(in("file"));

	FAILS(EPERM, fcntl(fd, F_ADD_SEALS, F_SEAL_WRITE));
	FAILS(EPERM, fcntl(fd, F_ADD_SEALS, F_SEAL_FUTURE_WRITE));
	FAILS(EPERM, fcntl(fd, F_ADD_SEALS, F_SEAL_GROW));
	FAILS(EPERM, fchmod(fd, 0666));
	CHECK(fsetxattr(fd, "user.name", "value", 5, 0) < 0);
	int file = OK(open(in("file"), O_RDWR));

	write_all(file, "changed", 7, 0);
	OK(pread(fd, bytes, 7, 0));
	CHECK(memcmp(bytes, "changed", 7) == 0);
	OK(close(file));
}

static void a_leased_file_grows_up_to_the_quota(void)
{
	limited_folder("grows");
	part_write(in("file"));
	int lease = lease_descriptor(in("file"));
	int fd = OK(open(in("file"), O_RDWR));

	write_all(fd, "end", 3, PART);
	EQUAL(charged(), PART + 4096);
	FAILS(EDQUOT, ftruncate(fd, LIMIT + 1));
	FAILS(EDQUOT, pwrite(fd, "x", 1, LIMIT));
	OK(ftruncate(fd, LIMIT));
	EQUAL(charged(), LIMIT);
	store_all(lease, LIMIT);
	EQUAL(taken(lease), LIMIT);
	take_all(lease);
	EQUAL(taken(lease), LIMIT);
	EQUAL(charged(), LIMIT);
	OK(close(fd));
}

static void a_file_without_leases_grows_again(void)
{
	limited_folder("again");
	part_write(in("file"));
	int fd = OK(open(in("file"), O_RDWR)), connection = dial();
	struct answer answer = lease_over(connection, fd);

	OK(ftruncate(answer.fds[0], MIB));
	drop(&answer);
	OK(close(connection));
	expect_leases(fd, 0);
	OK(close(fd));
	expect_charged(MIB);
	fd = OK(open(in("file"), O_WRONLY));
	for (int i = 0; i < LIMIT / MIB; i++)
		write_all(fd, bytes, MIB, i * MIB);
	EQUAL(charged(), LIMIT);
	FAILS(EDQUOT, pwrite(fd, bytes, MIB, LIMIT));
	OK(close(fd));
}

/* The descriptor outlives its lease. */
static void a_shorter_file_takes_less(void)
{
	limited_folder("shorter");
	part_write(in("file"));
	int fd = OK(open(in("file"), O_RDWR)), connection = dial();
	struct answer answer = lease_over(connection, fd);

	FAILS(EBUSY, ftruncate(fd, MIB));
	OK(close(connection));
	expect_leases(fd, 0);
	OK(ftruncate(fd, MIB));
	EQUAL(charged(), MIB);
	take_all(answer.fds[0]);
	EQUAL(taken(answer.fds[0]), MIB);
	EQUAL(charged(), MIB);
	OK(close(fd));
	drop(&answer);
}

static void a_file_that_was_there_before_the_quota(void)
{
	folder_make("before");
	part_write(in("file"));
	OK(chown(in("file"), USER, USER));
	folder_limit();
	become_user();
	int fd = lease_descriptor(in("file"));

	EQUAL(charged(), PART);
	EQUAL(OK(pread(fd, bytes, MIB, 2 * MIB)), MIB);
	EQUAL(bytes[MIB - 1], 'x');
	take_all(fd);
	EQUAL(taken(fd), PART);
	EQUAL(charged(), PART);
}

static void a_file_that_moves_in(void)
{
	limited_folder("moves");
	part_write(outside);
	OK(rename(outside, in("file")));
	/* The kernel has the object until the reader closes it. */
	int reader = OK(open(in("file"), O_RDONLY)), error = lease_error(in("file"));

	CHECK(error == EBUSY || error == 0);
	OK(close(reader));
	AWAIT(lease_error(in("file")) == 0);
	int fd = lease_descriptor(in("file"));

	take_all(fd);
	EQUAL(taken(fd), PART);
	EQUAL(charged(), PART);
}

static void a_file_that_moves_in_from_a_gpu(void)
{
	char name[64];

	folder_make("gpu");
	folder_limit();
	snprintf(name, sizeof(name), "leased.gpu.%d", getpid());
	part_write(name);
	OK(rename(name, in("file")));
	OK(chown(in("file"), USER, USER));
	become_user();
	int fd = lease_descriptor(in("file"));

	take_all(fd);
	EQUAL(taken(fd), PART);
	EQUAL(charged(), PART);
}

/* Room behind the end of a file that is open is no reason against its move. */
static void a_file_that_is_open_moves_in(void)
{
	char name[64], limited[64], path[160];

	snprintf(name, sizeof(name), "open.%d", getpid());
	snprintf(limited, sizeof(limited), "limited.%d", getpid());
	snprintf(path, sizeof(path), "%s/file", limited);
	folder_make("open");
	OK(mkdir(limited, 0755));
	OK(setxattr(limited, "user.gpumem.quota.max_bytes", QUOTA, strlen(QUOTA), 0));
	int fd = OK(open(name, O_WRONLY | O_CREAT, 0644));

	for (int i = 0; i < PART / MIB; i++)
		write_all(fd, bytes, sizeof(bytes), i * MIB);
	OK(rename(name, path));
	OK(close(fd));
	OK(unlink(path));
	OK(rmdir(limited));
}

static void a_leased_file_stays_outside(void)
{
	limited_folder("outside");
	part_write(outside);
	int fd = OK(open(outside, O_RDWR)), connection = dial();
	struct answer answer = lease_over(connection, fd);

	FAILS(EBUSY, rename(outside, in("file")));
	OK(close(connection));
	expect_leases(fd, 0);
	OK(close(fd));
	FAILS(EBUSY, rename(outside, in("file")));
	drop(&answer);
	OK(rename(outside, in("file")));
	expect_charged(PART);
}

/* A file from below a quota takes no more memory elsewhere. */
static void a_leased_file_moves_out_and_in(void)
{
	limited_folder("out");
	part_write(in("file"));
	int fd = lease_descriptor(in("file"));

	OK(rename(in("file"), outside));
	expect_charged(0);
	take_all(fd);
	EQUAL(taken(fd), PART);
	OK(rename(outside, in("file")));
	take_all(fd);
	EQUAL(taken(fd), PART);
	EQUAL(charged(), PART);
}

static void huge_pages_are_charged(void)
{
	limited_folder("huge");
	OK(mknod(in("file"), S_IFREG | 0644, 0));
	OK(setxattr(in("file"), "user.gpumem.page_size", "2M", 2, 0));
	OK(truncate(in("file"), MIB));
	int lease = lease_descriptor(in("file"));

	EQUAL(charged(), 2 * MIB);
	take_all(lease);
	CHECK(taken(lease) <= 2 * MIB);
	EQUAL(charged(), 2 * MIB);
}

static void two_files_take_what_is_charged(void)
{
	limited_folder("two");
	int fd = OK(open(in("one"), O_RDWR | O_CREAT, 0644));

	OK(ftruncate(fd, PART));
	OK(close(fd));
	fd = OK(open(in("two"), O_RDWR | O_CREAT, 0644));
	OK(ftruncate(fd, MIB));
	OK(close(fd));
	int one = lease_descriptor(in("one")), two = lease_descriptor(in("two"));

	EQUAL(charged(), LIMIT);
	take_all(one);
	take_all(two);
	EQUAL(taken(one), PART);
	EQUAL(taken(two), MIB);
	EQUAL(charged(), LIMIT);
}

PROG(TEST(a_descriptor_takes_what_is_charged), TEST(an_empty_file_takes_a_page),
     TEST(no_descriptor_seals_or_locks_the_file), TEST(a_leased_file_grows_up_to_the_quota),
     TEST(a_file_without_leases_grows_again), TEST(a_shorter_file_takes_less),
     TEST(a_file_that_was_there_before_the_quota), TEST(a_file_that_moves_in),
     TEST(a_file_that_moves_in_from_a_gpu), TEST(a_file_that_is_open_moves_in),
     TEST(a_leased_file_stays_outside), TEST(a_leased_file_moves_out_and_in),
     TEST(huge_pages_are_charged), TEST(two_files_take_what_is_charged))
