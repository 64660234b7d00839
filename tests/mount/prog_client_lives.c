/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* check: vulkan asan-host asan-standin */
/* backends: host standin vulkan cuda
 * timeout: 300
 * How long leases and mappings hold: past unlink, close and fork, and not past a process; and leaks
 * of many of them. */
#include "tests/mount/client.h"

#include <pthread.h>
#include <sys/socket.h>

static void outlives_unlink(void)
{
	int fd = patterned_file("file", 16, 4 * MIB);
	gpumem *file = lease("file", O_RDWR);

	OK(unlink("file"));
	OK(close(fd));
	unsigned char *at = host_pointer(file, 4 * MIB);

	expect_pattern(at, 16, 0, 4 * MIB);
	fd = patterned_file("another", 17, 16 * MIB);
	expect_pattern(at, 16, 0, 4 * MIB);
	GOOD(gpumem_close(file));
	pattern_check(fd, 17, 0, 16 * MIB);
}

static void holds_its_memory(void)
{
	int fd = patterned_file("file", 18, 4 * MIB);
	gpumem *one = lease("file", O_RDWR), *two = lease("file", O_RDWR);

	FAILS(EBUSY, ftruncate(fd, MIB));
	FAILS(EBUSY, fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, 2 * MIB));
	GOOD(gpumem_close(one));
	FAILS(EBUSY, ftruncate(fd, MIB));
	unsigned char *at = host_pointer(two, 4 * MIB);
	expect_pattern(at, 18, 0, 4 * MIB);
	GOOD(gpumem_close(two));
	CHECK(shrinks(fd, MIB));
}

static void from_a_descriptor(void)
{
	int fd = patterned_file("file", 20, 3 * MIB);
	gpumem *file = gpumem_open_fd(fd);

	CHECK(file);
	OK(close(fd));
	expect_pattern(host_pointer(file, 3 * MIB), 20, 0, 3 * MIB);
	EQUAL(info_of(file).flags, 0);
	GOOD(gpumem_close(file));
	fd = OK(open("file", O_WRONLY));
	CHECK(!gpumem_open_fd(fd) && errno == EBADF);
	CHECK(!gpumem_open_fd(-1) && errno == EBADF);
	fd = OK(open("file", O_RDONLY));
	file = gpumem_open_fd(fd);
	CHECK(file);
	EQUAL(info_of(file).flags, GPUMEM_INFO_PRIVATE);
	GOOD(gpumem_close(file));
}

static void map_what_came_over(int socket)
{
	int fd = receive_descriptor(socket);

	gpumem *file = gpumem_open_fd(fd);
	if (!file)
		FAIL("%s", gpumem_error());
	unsigned char *at = host_pointer(file, 3 * MIB);
	expect_pattern(at, 21, 0, 3 * MIB);
	at[0] = 99;
	GOOD(gpumem_close(file));
}

static void descriptor_over_a_socket(void)
{
	int ends[2];

	OK(socketpair(AF_UNIX, SOCK_STREAM, 0, ends));
	spawn(map_what_came_over, ends[1]);
	int fd = patterned_file("file", 21, 3 * MIB);

	send_descriptor(ends[0], fd);
	join_all(1);
	unsigned char first;
	read_all(fd, &first, 1, 0);
	EQUAL(first, 99);
}

/* Closing any descriptor of a file drops all fcntl locks of the process on the file: gpumem_close
 * must not close a descriptor of the file. */
static void locks_stay(void)
{
	struct flock whole = {.l_type = F_WRLCK};
	int fd = patterned_file("file", 22, 3 * MIB);

	OK(fcntl(fd, F_SETLK, &whole));
	gpumem *file = gpumem_open_fd(fd);
	CHECK(file);
	expect_pattern(host_pointer(file, 3 * MIB), 22, 0, 3 * MIB);
	GOOD(gpumem_close(file));
	int status;
	pid_t pid = OK(fork());
	if (pid == 0)
		_exit(fcntl(fd, F_SETLK, &whole) == 0);
	OK(waitpid(pid, &status, 0));
	EQUAL(status, 0);
}

static gpumem *inherited;
static unsigned char *inherited_at;

static void use_inherited(int fd)
{
	/* A child inherits plain mmap mappings; a child makes a lease anew. */
	if (!on_gpu()) {
		expect_pattern(inherited_at, 23, 0, 3 * MIB);
		CHECK(host_pointer(inherited, 3 * MIB) == inherited_at);
		inherited_at[10] = 123;
		pattern_write(fd, 23, 3 * MIB, MIB);
		GOOD(gpumem_extend(inherited));
		expect_pattern(host_pointer(inherited, 4 * MIB), 23, 3 * MIB, 4 * MIB);
	}
	EQUAL(info_of(inherited).n_chunks > 0, 1);
	gpumem *own = lease("file", O_RDWR);
	GOOD(gpumem_close(own));
	GOOD(gpumem_close(inherited));
}

static void a_child_has_its_own_lease(void)
{
	int fd = patterned_file("file", 23, 3 * MIB);

	inherited = lease("file", O_RDWR);
	inherited_at = host_pointer(inherited, 3 * MIB);
	spawn(use_inherited, fd);
	join_all(1);
	if (!on_gpu())
		EQUAL(inherited_at[10], 123);
	inherited_at[11] = 1;
	FAILS(EBUSY, ftruncate(fd, 0));
	GOOD(gpumem_close(inherited));
	CHECK(shrinks(fd, 0));
}

static void open_in_child(int unused)
{
	(void)unused;
	gpumem *file = lease("file", O_RDWR);
	expect_pattern(host_pointer(file, 3 * MIB), 24, 0, 3 * MIB);
	GOOD(gpumem_close(file));
	GOOD(gpumem_close(inherited)); /* not used in this process before */
}

/* A child that outlives its parent must not keep the leases of the parent. */
static void leases_end_with_their_process(void)
{
	int fd = patterned_file("file", 24, 3 * MIB), pipes[2];
	char byte;

	OK(pipe(pipes));
	pid_t pid = OK(fork());
	if (pid == 0) {
		inherited = lease("file", O_RDWR);
		if (fork() == 0) {
			OK(write(pipes[1], "", 1));
			sleep(60);
			_exit(0);
		}
		pause();
	}
	OK(close(pipes[1]));
	EQUAL(OK(read(pipes[0], &byte, 1)), 1);
	FAILS(EBUSY, ftruncate(fd, 0));
	OK(kill(pid, SIGKILL));
	OK(waitpid(pid, NULL, 0));
	CHECK(shrinks(fd, 0));
	pattern_write(fd, 24, 0, 3 * MIB);
	inherited = lease("file", O_RDWR);
	for (int i = 0; i < 3; i++)
		spawn(open_in_child, 0);
	join_all(3);
	GOOD(gpumem_close(inherited));
}

static void hold_until_killed(int ready)
{
	gpumem *file = lease("file", O_RDWR);

	if (!on_gpu())
		expect_pattern(host_pointer(file, 3 * MIB), 25, 0, 3 * MIB);
	OK(write(ready, "", 1));
	pause();
}

static void many_sharers_killed_at_once(void)
{
	int fd = patterned_file("file", 25, 3 * MIB);

	kill_sharers(fd, 30, hold_until_killed);
	pattern_check(fd, 25, 0, 3 * MIB);
	CHECK(shrinks(fd, 0));
}

static void open_and_close(int cycle)
{
	gpumem *file = lease("file", O_RDWR);

	if (cycle % 8 == 0 || !on_gpu())
		expect_pattern(host_pointer(file, 2 * MIB), 26, cycle, cycle + 100);
	GOOD(gpumem_close(file));
}

static void many_cycles_leave_nothing(void)
{
	patterned_file("file", 26, 2 * MIB);
	cycle_through(open_and_close);
}

static void *open_map_close(void *arg)
{
	uint64_t seed = (uintptr_t)arg;
	char name[32];

	sprintf(name, "file%llu", (unsigned long long)seed);
	for (int i = 0; i < repeats(40, 10); i++) {
		gpumem *own = lease(name, O_RDWR), *common = lease("file", O_RDWR);
		expect_pattern(host_pointer(own, MIB), seed, 0, 1000);
		expect_pattern(host_pointer(common, MIB), 27, 0, 1000);
		GOOD(gpumem_close(common));
		CHECK(!gpumem_open("missing", O_RDONLY) && errno == ENOENT);
		CHECK(strstr(gpumem_error(), "missing"));
		GOOD(gpumem_close(own));
	}
	return NULL;
}

static void *keep_forking(void *stop)
{
	while (!__atomic_load_n((bool *)stop, __ATOMIC_RELAXED)) {
		pid_t pid = OK(fork());
		if (pid == 0)
			_exit(gpumem_error()[0] != '\0');
		int status;
		OK(waitpid(pid, &status, 0));
		CHECK(status == 0);
	}
	return NULL;
}

static void many_threads(void)
{
	pthread_t threads[6], forker;
	bool stop = false;

	OK(close(patterned_file("file", 27, MIB)));
	for (uintptr_t i = 0; i < 6; i++) {
		char name[32];
		sprintf(name, "file%d", (int)i + 1);
		OK(close(patterned_file(name, i + 1, MIB)));
		pthread_create(&threads[i], NULL, open_map_close, (void *)(i + 1));
	}
	pthread_create(&forker, NULL, keep_forking, &stop);
	for (int i = 0; i < 6; i++)
		pthread_join(threads[i], NULL);
	__atomic_store_n(&stop, true, __ATOMIC_RELAXED);
	pthread_join(forker, NULL);
}

CLIENT_PROG(TEST(outlives_unlink), TEST(holds_its_memory), TEST(from_a_descriptor),
	    TEST(descriptor_over_a_socket), TEST(locks_stay), TEST(a_child_has_its_own_lease),
	    TEST(leases_end_with_their_process), TEST(many_sharers_killed_at_once),
	    TEST(many_cycles_leave_nothing), TEST(many_threads))
