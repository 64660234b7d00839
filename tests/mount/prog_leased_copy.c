/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* check: asan-host asan-standin tsan */
/* kills: no
 * backends: host standin vulkan cuda
 * timeout: 120
 * GPUMEM_IOC_COPY: copies leased memory into a file, with the same result as copy_file_range(2). A
 * caller without permission gets no bytes. (A daemon that took over from a killed daemon knows no
 * keys.) */
#include "tests/mount/protocol.h"

static struct gpumem_copy_ask leased(int fd, int connection)
{
	struct gpumem_lease_ask key = key_of(connection);
	struct answer answer = lease_over(connection, fd);
	struct gpumem_copy_ask ask = {.version = GPUMEM_PROTOCOL_VERSION,
				      .lease = answer.packet.layout.lease,
				      .bytes = BYTES};

	memcpy(ask.key, key.key, sizeof(ask.key));
	drop(&answer);
	return ask;
}

static int host_file(void)
{
	char path[PATH_MAX];

	snprintf(path, sizeof(path), "%s/leased-copy", getenv("HOSTDIR"));
	int fd = filled_file(path, 0600);

	OK(unlink(path));
	return fd;
}

static int sized_file(const char *path, off_t size)
{
	int fd = new_file(path);

	OK(ftruncate(fd, size));
	return fd;
}

static struct timespec changed(int fd)
{
	struct stat st;

	OK(fstat(fd, &st));
	CHECK(st.st_mtim.tv_sec == st.st_ctim.tv_sec && st.st_mtim.tv_nsec == st.st_ctim.tv_nsec);
	return st.st_mtim;
}

/* From host memory, from the same GPU, and from the next GPU. */
static void arrives_from(int source)
{
	int connection = dial(), to = sized_file("to", BYTES + 100);
	struct gpumem_copy_ask ask = leased(source, connection);
	struct timespec before = changed(to);

	ask.to = 100;
	usleep(20000);
	EQUAL(OK(ioctl(to, GPUMEM_IOC_COPY, &ask)), BYTES);
	struct timespec after = changed(to);

	CHECK(after.tv_sec > before.tv_sec || after.tv_nsec > before.tv_nsec);
	pattern_check_from(to, 3, 0, 100, BYTES);
	EQUAL(size_of(to), BYTES + 100);
	/* The target is a copy: a later write to the source does not change the target. */
	pattern_write(source, 4, 0, MIB);
	pattern_check_from(to, 3, 0, 100, BYTES);
	OK(close(connection));
	OK(close(to));
	OK(unlink("to"));
}

static void bytes_arrive(void)
{
	char path[PATH_MAX];
	const char *next = getenv("GPU1");

	arrives_from(host_file());
	arrives_from(filled_file("from", 0600));
	if (!next || !*next)
		return;
	snprintf(path, sizeof(path), "%s/leased-copy", next);
	arrives_from(filled_file(path, 0600));
	OK(unlink(path));
}

static const struct {
	uint64_t from, to, bytes;
	long copied;
} ranges[] = {
    {0, 0, 0, 0},
    {0, 0, 1, 1},
    {17, 4095, 70000, 70000},
    {BYTES - 10, 0, 100, 10},
    {BYTES, 0, 100, 0},
    {0, BYTES - 10, 100, 10},
    {0, BYTES, 100, 0},
    {0, UINT64_MAX, 100, 0},
    {UINT64_MAX, 0, 100, 0},
    {UINT64_MAX - 10, BYTES - 5, UINT64_MAX, 0},
    {3, 0, UINT64_MAX, BYTES - 3},
    {0, 3, UINT64_MAX - 2, BYTES - 3},
    {1ULL << 62, 1, 1ULL << 62, 0},
};

/* A copy ends at the end of the shorter file. */
static void ranges_end_with_the_files(void)
{
	int connection = dial();
	struct gpumem_copy_ask ask = leased(host_file(), connection);

	for (unsigned i = 0; i < sizeof(ranges) / sizeof(ranges[0]); i++) {
		int to = sized_file("to", BYTES);

		ask.from = ranges[i].from;
		ask.to = ranges[i].to;
		ask.bytes = ranges[i].bytes;
		EQUAL(OK(ioctl(to, GPUMEM_IOC_COPY, &ask)), ranges[i].copied);
		EQUAL(size_of(to), BYTES);
		if (ranges[i].copied)
			pattern_check_from(to, 3, (off_t)ranges[i].from, (off_t)ranges[i].to,
					   ranges[i].copied);
		OK(close(to));
		OK(unlink("to"));
	}
	OK(close(connection));
}

#define THREADS 4
static struct gpumem_copy_ask shared_ask;

static void copy_a_quarter(int number)
{
	int to = OK(open("to", O_RDWR));
	struct gpumem_copy_ask ask = shared_ask;

	ask.bytes = BYTES / THREADS;
	ask.from = ask.to = ask.bytes * (uint64_t)number;
	for (int turn = 0; turn < 50; turn++)
		EQUAL(OK(ioctl(to, GPUMEM_IOC_COPY, &ask)), BYTES / THREADS);
}

static void several_at_a_time(void)
{
	int connection = dial(), to = sized_file("to", BYTES);

	shared_ask = leased(host_file(), connection);
	for (int i = 0; i < THREADS; i++)
		spawn(copy_a_quarter, i);
	join_all(THREADS);
	pattern_check(to, 3, 0, BYTES);
	OK(close(connection));
}

static void what_is_wrong(void)
{
	int source = filled_file("from", 0600), connection = dial(), to = sized_file("to", BYTES);
	struct gpumem_copy_ask ask = leased(source, connection), wrong = ask;

	wrong.version++;
	FAILS(EOPNOTSUPP, ioctl(to, GPUMEM_IOC_COPY, &wrong));
	wrong = ask;
	wrong.reserved = 1;
	FAILS(EINVAL, ioctl(to, GPUMEM_IOC_COPY, &wrong));
	wrong = ask;
	wrong.lease++;
	FAILS(ENOENT, ioctl(to, GPUMEM_IOC_COPY, &wrong));
	wrong = ask;
	wrong.key[0] ^= 1;
	FAILS(ESTALE, ioctl(to, GPUMEM_IOC_COPY, &wrong));
	FAILS(EBADF, ioctl((int)OK(open("to", O_RDONLY)), GPUMEM_IOC_COPY, &ask));
	FAILS(EISDIR, ioctl((int)OK(open(".", O_RDONLY)), GPUMEM_IOC_COPY, &ask));
	FAILS(EOPNOTSUPP, ioctl(host_file(), GPUMEM_IOC_COPY, &ask));
	FAILS(EINVAL, ioctl(source, GPUMEM_IOC_COPY, &ask)); /* the target is the source */
	FAILS(ENOTTY, ioctl(to, _IO('g', 0x4a), &ask));
	FAILS(EFAULT, ioctl(to, GPUMEM_IOC_COPY, NULL));
	pattern_check(source, 3, 0, BYTES);
	OK(close(connection));
	expect_leases(source, 0);
	FAILS(ESTALE, ioctl(to, GPUMEM_IOC_COPY, &ask));
}

static struct gpumem_copy_ask root_ask;

/* The other user may copy with the user's own lease. The copy clears the set-id bits of the target.
 */
static void copy_as_another(int target)
{
	struct stat st;

	become_user();
	FAILS(ESTALE, ioctl(target, GPUMEM_IOC_COPY, &root_ask));
	int connection = dial(), fd = OK(open("open", O_RDONLY)),
	    to = OK(open("theirs", O_RDWR | O_CREAT, 0600));
	struct gpumem_copy_ask ask = leased(fd, connection);

	/* A reader's lease is of a private copy. */
	OK(ftruncate(to, BYTES));
	EQUAL(OK(ioctl(to, GPUMEM_IOC_COPY, &ask)), BYTES);
	pattern_check(to, 3, 0, BYTES);
	ask = leased(to, connection);
	EQUAL(OK(ioctl(target, GPUMEM_IOC_COPY, &ask)), BYTES);
	OK(fstat(target, &st));
	EQUAL(st.st_mode & 07777, 0777);
}

static void of_another_user(void)
{
	int connection = dial(), target = sized_file("target", BYTES);

	filled_file("open", 0644);
	OK(chmod(".", 0777));
	OK(fchmod(target, 06777));
	root_ask = leased(filled_file("roots", 0600), connection);
	spawn(copy_as_another, target);
	join_all(1);
	pattern_check(target, 3, 0, BYTES);
	OK(close(connection));
}

PROG(TEST(bytes_arrive), TEST(ranges_end_with_the_files), TEST(several_at_a_time),
     TEST(what_is_wrong), TEST(of_another_user))
