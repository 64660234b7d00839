/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* kills: no
 * backends: host standin vulkan cuda
 * A sharer has descriptors of a file's memory and changes the memory object by truncate(2) and
 * fcntl(2). The bytes of other files must not change, and the daemon must go on. */
#include "tests/mount/protocol.h"

#define SIZE   (3 * MIB)
#define ROUNDS 24

#ifndef F_SEAL_EXEC
#define F_SEAL_EXEC 0x0020
#endif

static char host_path[PATH_MAX];

static const char *host(const char *name)
{
	snprintf(host_path, sizeof(host_path), "%s/cut.%s.%d", getenv("HOSTDIR"), name, getpid());
	return host_path;
}

static int connection;

/* Leases the opened file and returns the answer with the descriptors. */
static struct answer leased(int fd)
{
	connection = dial();
	return lease_over(connection, fd);
}

/* The descriptor of a host/ file's memory object, leased by an opener with these flags. */
static int object_of(const char *path, int flags)
{
	int fd = OK(open(path, flags | O_CLOEXEC));
	struct answer answer = leased(fd);

	EQUAL(answer.n_fds, 1);
	EQUAL(answer.packet.layout.kind, GPUMEM_KIND_HOST);
	OK(close(fd));
	return answer.fds[0];
}

static int patterned(const char *path)
{
	int fd = OK(open(path, O_CREAT | O_RDWR | O_CLOEXEC, 0644));

	pattern_write(fd, 3, 0, SIZE);
	return fd;
}

/* The bytes that a program reads while another program cuts the file: as written or zero, in
 * blocks. */
static void expect_torn(const unsigned char *bytes, size_t size)
{
	for (size_t i = 0; i < size; i++)
		if (bytes[i] && bytes[i] != pattern_at(3, i))
			FAIL("byte %zu is %02x: neither zero nor %02x", i, bytes[i],
			     pattern_at(3, i));
}

/* Opens the object again with these flags; 0: the kernel refuses. */
static int opened_again(int fd, int flags)
{
	char path[40];
	int again;

	snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	again = open(path, flags | O_CLOEXEC);
	return again < 0 ? 0 : again;
}

static void refuses_to_be_cut(int fd)
{
	CHECK(ftruncate(fd, 0) < 0);
	CHECK(ftruncate(fd, 4096) < 0);
	CHECK(ftruncate(fd, 1024 * MIB) < 0);
	CHECK(fcntl(fd, F_ADD_SEALS, F_SEAL_WRITE) < 0);
	CHECK(fcntl(fd, F_ADD_SEALS, F_SEAL_FUTURE_WRITE) < 0);
}

static void the_memory_of_a_gpu_has_its_length(void)
{
	int fd = patterned("file");
	struct answer answer = leased(fd);

	CHECK(answer.n_fds > 0);
	for (unsigned i = 0; i < answer.n_fds; i++) {
		int again = opened_again(answer.fds[i], O_RDWR);

		refuses_to_be_cut(answer.fds[i]);
		if (again)
			refuses_to_be_cut(again);
	}
	pattern_check(fd, 3, 0, SIZE);
	pattern_write(fd, 4, 0, SIZE);
	pattern_check(fd, 4, 0, SIZE);
}

static void a_reader_s_descriptor_is_for_reading(void)
{
	int fd = patterned(host("reader"));

	become_user();
	int object = object_of(host("reader"), O_RDONLY);

	CHECK(ftruncate(object, 0) < 0);
	CHECK(fcntl(object, F_ADD_SEALS, F_SEAL_WRITE) < 0);
	CHECK(fallocate(object, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, SIZE) < 0);
	CHECK(!opened_again(object, O_RDWR));
	pattern_check(fd, 3, 0, SIZE);
}

static void a_writer_s_descriptor_cannot_be_sealed(void)
{
	int fd = patterned(host("sealed"));
	int object = object_of(host("sealed"), O_RDWR);

	CHECK(fcntl(object, F_ADD_SEALS, F_SEAL_WRITE) < 0);
	CHECK(fcntl(object, F_ADD_SEALS, F_SEAL_SHRINK) < 0);
	CHECK(fcntl(object, F_ADD_SEALS, F_SEAL_GROW) < 0);
	pattern_write(fd, 4, 0, SIZE);
	pattern_check(fd, 4, 0, SIZE);
	OK(unlink(host("sealed")));
}

/* The sharer sets O_APPEND on its descriptor. copy_file_range(2) into the file must still write at
 * the offset: the daemon has a descriptor with flags of its own. */
static void a_descriptor_s_flags_are_its_own(void)
{
	int fd = patterned(host("flags")), other = patterned("other");
	int object = object_of(host("flags"), O_RDWR);
	off_t from = 0, to = 0;

	OK(fcntl(object, F_SETFL, O_APPEND | O_NONBLOCK));
	pattern_write(other, 5, 0, SIZE);
	EQUAL(OK(copy_file_range(other, &from, fd, &to, SIZE, 0)), SIZE);
	EQUAL(size_of(fd), SIZE);
	pattern_check(fd, 5, 0, SIZE);
	OK(unlink(host("flags")));
}

/* Truncates the object and fills the object again, until the process is killed. */
static void cut_for_ever(int object)
{
	unsigned char *bytes = malloc(SIZE);

	OK(close(connection));
	pattern_fill(bytes, SIZE, 3, 0);
	for (unsigned i = 0;; i++) {
		OK(ftruncate(object, i % 3 ? 0 : 4097));
		if (i % 2)
			OK(ftruncate(object, SIZE));
		OK(pwrite(object, bytes, SIZE, 0));
		OK(fallocate(object, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
			     (i % 5) * 4096 * KIB / 4, MIB));
	}
}

/* The operations may fail with EIO because the size of the file changes at any moment. The bytes of
 * successful reads are checked. */
static void work_on(const char *path, unsigned char *bytes)
{
	int fd = OK(open(path, O_RDWR | O_CLOEXEC)), gpu = OK(open("copy", O_RDWR | O_CLOEXEC));
	off_t from = 0, to = 0;
	ssize_t n = pread(fd, bytes, SIZE, 0);

	CHECK(n >= 0 || errno == EIO);
	expect_torn(bytes, n > 0 ? (size_t)n : 0);
	pattern_fill(bytes, MIB, 3, MIB);
	CHECK(pwrite(fd, bytes, MIB, MIB) == MIB);
	lseek(fd, 0, SEEK_DATA);
	CHECK(fallocate(fd, 0, 0, 2 * MIB) == 0);
	CHECK(fallocate(fd, FALLOC_FL_ZERO_RANGE, MIB, MIB) == 0);
	n = copy_file_range(fd, &from, gpu, &to, SIZE, 0);
	CHECK(n >= 0 || errno == EIO);
	read_all(gpu, bytes, SIZE, 0);
	expect_torn(bytes, SIZE);
	from = to = 0;
	n = copy_file_range(gpu, &from, fd, &to, SIZE, 0);
	CHECK(n >= 0 || errno == EIO);
	OK(close(fd));
	OK(close(gpu));
}

static pid_t cutter_of(const char *path)
{
	int object = object_of(path, O_RDWR);

	return spawn(cut_for_ever, object);
}

static void end_cutter(pid_t pid)
{
	int status;

	OK(kill(pid, SIGKILL));
	EQUAL(OK(waitpid(pid, &status, 0)), pid);
	CHECK(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
}

static void a_file_of_host_is_cut_all_the_time(void)
{
	unsigned char *bytes = malloc(SIZE);
	int beside = patterned(host("beside")), fd = patterned(host("all")), gpu = patterned("gpu");

	OK(close(patterned("copy")));
	OK(close(fd));
	pid_t pid = cutter_of(host("all"));

	for (unsigned i = 0; i < ROUNDS; i++)
		work_on(host("all"), bytes);
	end_cutter(pid);
	pattern_check(beside, 3, 0, SIZE);
	pattern_check(gpu, 3, 0, SIZE);
	fd = OK(open(host("all"), O_RDWR | O_CLOEXEC));
	OK(ftruncate(fd, SIZE));
	pattern_write(fd, 6, 0, SIZE);
	pattern_check(fd, 6, 0, SIZE);
	OK(unlink(host("all")));
	OK(unlink(host("beside")));
}

/* After the end of the lease the sharer still has a descriptor of the file's old memory. */
static void a_file_of_host_is_cut_while_it_moves(void)
{
	unsigned char *bytes = malloc(SIZE), *again = malloc(SIZE);

	for (unsigned i = 0; i < ROUNDS / 4; i++) {
		OK(close(patterned(host("moves"))));
		pid_t pid = cutter_of(host("moves"));

		FAILS(EBUSY, rename(host("moves"), "moved"));
		OK(close(connection));
		rename_when_closed(host("moves"), "moved");
		int fd = OK(open("moved", O_RDONLY | O_CLOEXEC));
		ssize_t n = OK(pread(fd, bytes, SIZE, 0));

		expect_torn(bytes, (size_t)n);
		EQUAL(OK(pread(fd, again, SIZE, 0)), n);
		CHECK(memcmp(bytes, again, (size_t)n) == 0);
		end_cutter(pid);
		OK(close(fd));
		OK(unlink("moved"));
	}
}

/* Runs in a mount with a spool: the case cut_off_saved. */
static void it_is_cut_while_it_is_saved(void)
{
	int fd = patterned(host("saved"));

	if (setxattr(host("saved"), "user.gpumem.persist", "disk", 4, 0) < 0)
		SKIP("the mount has no spool");
	OK(close(fd));
	pid_t pid = cutter_of(host("saved"));

	for (unsigned i = 0; i < ROUNDS; i++) {
		fd = OK(open(host("saved"), O_RDWR | O_CLOEXEC));
		CHECK(pwrite(fd, "", 1, 0) == 1);
		CHECK(fsync(fd) == 0 || errno == EIO);
		OK(close(fd));
	}
	end_cutter(pid);
	fd = OK(open(host("saved"), O_RDWR | O_CLOEXEC));
	OK(ftruncate(fd, SIZE));
	pattern_write(fd, 7, 0, SIZE);
	OK(fsync(fd));
	pattern_check(fd, 7, 0, SIZE);
}

PROG(TEST(the_memory_of_a_gpu_has_its_length), TEST(a_reader_s_descriptor_is_for_reading),
     TEST(a_writer_s_descriptor_cannot_be_sealed), TEST(a_descriptor_s_flags_are_its_own),
     TEST(a_file_of_host_is_cut_all_the_time), TEST(a_file_of_host_is_cut_while_it_moves),
     TEST(it_is_cut_while_it_is_saved))
