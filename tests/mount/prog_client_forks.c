/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* check: asan-host asan-standin */
/* backends: host standin cuda
 * Tests of processes, taken from libraries that map GPU memory, but with files: forks around a
 * mapping, children that map files opened or passed by the parent, and the resources left by the
 * children. Sub-tests that the machine cannot run are skipped. */
#include "tests/mount/client_gpu.h"

#include <pthread.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/xattr.h>

#define BYTES (2 * MIB + 4096)

static int leases_of(int fd)
{
	char text[32] = "";

	OK(fgetxattr(fd, "user.gpumem.leases", text, sizeof(text) - 1));
	return atoi(text);
}

static gpumem *inherited;

static void map_host_in_child(int unused)
{
	(void)unused;
	unsigned char *at = cpu_pointer(inherited, BYTES);

	expect_ends(at, 10, BYTES);
	at[5] = 201;
	GOOD(gpumem_close(inherited));
}

static void map_host(void)
{
	OK(close(patterned_file("tried", 10, BYTES)));
	gpumem *file = lease("tried", O_RDWR);

	cpu_pointer(file, BYTES);
	GOOD(gpumem_close(file));
}

static void a_child_maps_what_its_parent_opened(void)
{
	unsigned char byte;

	need_in_children(map_host);
	int fd = patterned_file("file", 10, BYTES);

	inherited = lease("file", O_RDWR);
	spawn(map_host_in_child, 0);
	join_all(1);
	read_all(fd, &byte, 1, 5);
	EQUAL(byte, 201);
	EQUAL(leases_of(fd), 1);
	EQUAL(cpu_pointer(inherited, BYTES)[5], 201);
	GOOD(gpumem_close(inherited));
	CHECK(shrinks(fd, 0));
}

static void map_device_in_child(int unused)
{
	(void)unused;
	use_gpu();
	gm_CUdeviceptr at = device_pointer(inherited, BYTES);

	expect_device(at, 11, 0, BYTES);
	MUST(cuMemsetD8(at + 5, 202, 1));
	MUST(cuCtxSynchronize());
	GOOD(gpumem_close(inherited));
}

static void a_child_maps_it_on_the_device(void)
{
	unsigned char byte;

	need_in_children(use_gpu);
	int fd = patterned_file("file", 11, BYTES);
	inherited = lease("file", O_RDWR);
	spawn(map_device_in_child, 0);
	join_all(1);
	read_all(fd, &byte, 1, 5);
	EQUAL(byte, 202);
	use_gpu();
	MUST(cuMemcpyDtoH(&byte, device_pointer(inherited, BYTES) + 5, 1));
	EQUAL(byte, 202);
	GOOD(gpumem_close(inherited));
	CHECK(shrinks(fd, 0));
}

static void map_what_came_over(int socket)
{
	int fd = receive_descriptor(socket);

	use_gpu();
	gpumem *file = gpumem_open_fd(fd);
	if (!file)
		FAIL("%s", gpumem_error());
	gm_CUdeviceptr at = device_pointer(file, BYTES);
	expect_device(at, 12, 0, BYTES);
	MUST(cuMemsetD8(at, 203, 1));
	MUST(cuCtxSynchronize());
	GOOD(gpumem_close(file));
}

static void a_passed_descriptor_on_the_device(void)
{
	unsigned char first;
	int ends[2];

	need_in_children(use_gpu);
	OK(socketpair(AF_UNIX, SOCK_STREAM, 0, ends));
	spawn(map_what_came_over, ends[1]);
	int fd = patterned_file("file", 12, BYTES);

	send_descriptor(ends[0], fd);
	join_all(1);
	read_all(fd, &first, 1, 0);
	EQUAL(first, 203);
}

static void *map_again_and_again(void *done)
{
	MUST(cuCtxSetCurrent(context));
	for (int i = 0; i < 50; i++) {
		gpumem *file = lease("file", O_RDWR);

		expect_device(device_pointer(file, BYTES), 13, 0, 100);
		GOOD(gpumem_close(file));
	}
	__atomic_store_n((bool *)done, true, __ATOMIC_RELEASE);
	return NULL;
}

static void close_in_child(int unused)
{
	(void)unused;
	EQUAL(info_of(inherited).mapped, 0);
	GOOD(gpumem_close(inherited));
}

static void forks_while_a_thread_maps(void)
{
	bool done = false;
	pthread_t thread;

	use_gpu();
	int fd = patterned_file("file", 13, BYTES);
	inherited = lease("file", O_RDWR);
	gm_CUdeviceptr at = device_pointer(inherited, BYTES);

	EQUAL(pthread_create(&thread, NULL, map_again_and_again, &done), 0);
	do {
		spawn(close_in_child, 0);
		join_all(1);
	} while (!__atomic_load_n(&done, __ATOMIC_ACQUIRE));
	pthread_join(thread, NULL);
	expect_device(at, 13, 0, BYTES);
	GOOD(gpumem_close(inherited));
	CHECK(shrinks(fd, 0));
}

static void lease_in_child(int turn)
{
	gpumem *own = lease("file", O_RDWR);

	EQUAL(info_of(inherited).size, BYTES); /* the child gets its own lease */
	if (!on_gpu())
		expect_ends(cpu_pointer(own, BYTES), 14, BYTES);
	if (turn % 2)
		_exit(0); /* exits with two leases */
	GOOD(gpumem_close(own));
	GOOD(gpumem_close(inherited));
}

static void children_leave_nothing(void)
{
	int fd = patterned_file("file", 14, BYTES);

	inherited = lease("file", O_RDWR);
	int before = open_descriptors(), mapped = mappings();

	for (int i = 0; i < 60; i++) {
		spawn(lease_in_child, i);
		if (i % 4 == 3)
			join_all(4);
	}
	EQUAL(open_descriptors(), before);
	EQUAL(mappings(), mapped);
	AWAIT(leases_of(fd) <= 1);
	EQUAL(leases_of(fd), 1);
	GOOD(gpumem_close(inherited));
	CHECK(shrinks(fd, 0));
}

static void map_and_leave(int turn)
{
	use_gpu();
	gpumem *file = lease("file", O_RDWR);

	expect_device(device_pointer(file, BYTES), 15, 0, BYTES);
	if (turn % 2)
		kill(getpid(), SIGKILL);
	GOOD(gpumem_close(file));
}

static void children_with_contexts_leave_nothing(void)
{
	need_in_children(use_gpu);
	int fd = patterned_file("file", 15, BYTES);

	for (int i = 0; i < 6; i++)
		spawn(map_and_leave, i);
	for (int i = 0; i < 6; i++) {
		int status;

		OK(wait(&status));
		CHECK(status == 0 || (WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL));
	}
	CHECK(shrinks(fd, BYTES / 2));
	EQUAL(leases_of(fd), 0);
	pattern_check(fd, 15, 0, BYTES / 2);
}

CLIENT_PROG(TEST(a_child_maps_what_its_parent_opened), TEST(a_child_maps_it_on_the_device),
	    TEST(a_passed_descriptor_on_the_device), TEST(forks_while_a_thread_maps),
	    TEST(children_leave_nothing), TEST(children_with_contexts_leave_nothing))
