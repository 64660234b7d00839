/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* check: asan-standin */
/* backends: standin cuda
 * mount: recovery=transparent
 * needs: daemon
 * gpumem_share: files of memory that a process has allocated by cudaMalloc. */
#include "tests/mount/kills.h"

#include "tests/mount/client_gpu.h"

#include <inttypes.h>
#include <poll.h>

#define ALLOCATION (5 * MIB + 5000)
#define BEFORE	   4096
#define SIZE	   (ALLOCATION - BEFORE)

typedef gm_CUresult alloc_function(gm_CUdeviceptr *address, size_t bytes);
typedef gm_CUresult free_function(gm_CUdeviceptr address);

static gm_CUdeviceptr own;

static void *cuda_function(const char *name)
{
	return dlsym(dlopen("libcuda.so.1", RTLD_NOW), name);
}

static void memory_make(int device)
{
	use_gpu_number(device);
	alloc_function *allocate = (alloc_function *)cuda_function("cuMemAlloc_v2");
	unsigned char *pattern = malloc(ALLOCATION);

	EQUAL(allocate(&own, ALLOCATION), 0);
	pattern_fill(pattern, ALLOCATION, 1, 0);
	MUST(cuMemcpyHtoD(own, pattern, ALLOCATION));
	free(pattern);
}

static void memory_free(void)
{
	EQUAL(((free_function *)cuda_function("cuMemFree_v2"))(own), 0);
}

static gpumem *shared(void)
{
	gpumem *file = gpumem_share("shared", own + BEFORE, SIZE, 0640, 0);

	if (!file)
		FAIL("gpumem_share: %s: %s", strerror(errno), gpumem_error());
	return file;
}

/* Another process shares memory, and changes the bytes or frees the memory on request. CUDA does
 * not open memory in the process of the allocation. */
static struct producer {
	pid_t pid;
	int tells, answers;
} producer;

static void producer_run(int told, int answers)
{
	char what;

	memory_make(0);
	gpumem *file = shared();
	unsigned long long address;

	CHECK(gpumem_map_device(file, &address, NULL) < 0 && errno == EINVAL);
	OK(write(answers, "", 1));
	while (read(told, &what, 1) == 1) {
		if (what == 'w')
			MUST(cuMemsetD8(own + BEFORE + 7, 77, 1));
		else if (what == 'f')
			memory_free();
		else
			GOOD(gpumem_close(file));
		MUST(cuCtxSynchronize());
		OK(write(answers, "", 1));
	}
}

static void producer_tell(char what)
{
	char byte;

	if (what)
		OK(write(producer.tells, &what, 1));
	EQUAL(OK(read(producer.answers, &byte, 1)), 1);
}

static void producer_start(void)
{
	int tells[2], answers[2];

	need_gpu();
	OK(pipe(tells));
	OK(pipe(answers));
	producer = (struct producer){OK(fork()), tells[1], answers[0]};
	if (producer.pid == 0) {
		OK(close(tells[1]));
		producer_run(tells[0], answers[1]);
		fflush(stdout);
		_exit(prog_failures ? 1 : 0);
	}
	OK(close(tells[0]));
	OK(close(answers[1]));
	producer_tell(0);
}

static void producer_kill(void)
{
	OK(kill(producer.pid, SIGKILL));
	OK(waitpid(producer.pid, NULL, 0));
}

static void another_process_maps_it(void)
{
	unsigned char byte = 0;

	producer_start();
	use_gpu();
	gpumem *file = lease("shared", O_RDWR);
	gm_CUdeviceptr at = device_pointer(file, SIZE);

	expect_device(at - BEFORE, 1, BEFORE, ALLOCATION);
	producer_tell('w');
	MUST(cuMemcpyDtoH(&byte, at + 7, 1));
	EQUAL(byte, 77);
	MUST(cuMemsetD8(at + 9, 99, 1));
	MUST(cuCtxSynchronize());
	read_all(OK(open("shared", O_RDONLY)), &byte, 1, 9);
	EQUAL(byte, 99);
	CHECK(gpumem_export(file, 0, NULL, &(size_t){0}) < 0 && errno == EOPNOTSUPP);
	FAILS(ENOTSUP, gpumem_park(file));
	GOOD(gpumem_close(file));
	producer_kill();
}

static void read_written_and_copied(void)
{
	char *data = malloc(SIZE), seen[6];

	producer_start();
	int fd = OK(open("shared", O_RDWR)), copy = new_file("copy");

	EQUAL(size_of(fd), SIZE);
	read_all(fd, data, SIZE, 0);
	for (size_t i = 0; i < SIZE; i++)
		if ((unsigned char)data[i] != pattern_at(1, BEFORE + i))
			FAIL("byte %zu", i);
	write_all(fd, "stored", 6, SIZE - 6);
	EQUAL(copy_file_range(fd, NULL, copy, NULL, SIZE, 0), SIZE);
	read_all(copy, seen, 6, SIZE - 6);
	EQUAL(memcmp(seen, "stored", 6), 0);
	FAILS(EFBIG, pwrite(fd, "x", 1, SIZE));
	free(data);
	producer_kill();
}

static void refused(void)
{
	memory_make(0);
	CHECK(!gpumem_share("shared", own, ALLOCATION, 0640, GPUMEM_SHARE_STAYS) &&
	      errno == ENOTSUP);
	EQUAL(names_here(), 0);
	memory_free();
}

static void memory_of_another_gpu_is_refused(void)
{
	int count = 0;

	load_cuda();
	MUST(cuInit(0));
	MUST(cuDeviceGetCount(&count));
	if (count < 2)
		SKIP("one GPU");
	memory_make(1);
	CHECK(!gpumem_share("shared", own, ALLOCATION, 0640, 0) && errno == EINVAL);
	EQUAL(names_here(), 0);
	memory_free();
}

static void daemon_kill(void)
{
	pid_t keeper = keeper_pid(), daemon = serving_daemon(keeper), next;

	OK(kill(daemon, SIGKILL));
	AWAIT((next = serving_daemon(keeper)) && next != daemon);
}

static void a_killed_daemon_changes_nothing(void)
{
	unsigned char byte;

	producer_start();
	int fd = OK(open("shared", O_RDWR));

	read_all(fd, &byte, 1, 5);
	EQUAL(byte, pattern_at(1, BEFORE + 5));
	daemon_kill();
	producer_tell('w');
	read_all(fd, &byte, 1, 7);
	EQUAL(byte, 77);
	use_gpu();
	gpumem *file = lease("shared", O_RDWR);

	expect_device(device_pointer(file, SIZE) - BEFORE, 1, BEFORE + 8, ALLOCATION);
	GOOD(gpumem_close(file));
	producer_kill();
	AWAIT(!exists("shared"));
	CHECK(!exists("shared"));
}

/* Mapped memory stays, and a consumer is told. */
static void the_end_of_the_process(void)
{
	unsigned char byte = 0;

	producer_start();
	use_gpu();
	int fd = OK(open("shared", O_RDWR));
	gpumem *file = lease("shared", O_RDWR);
	gm_CUdeviceptr at = device_pointer(file, SIZE);
	struct pollfd end = {.fd = gpumem_end_fd(file), .events = POLLIN};

	CHECK(end.fd >= 0);
	producer_kill();
	EQUAL(OK(poll(&end, 1, 10000)), 1);
	AWAIT(!exists("shared"));
	CHECK(!exists("shared"));
	FAILS(EIO, pread(fd, &byte, 1, 0));
	expect_device(at - BEFORE, 1, BEFORE, ALLOCATION);
	MUST(cuMemsetD8(at, 1, SIZE));
	MUST(cuCtxSynchronize());
	GOOD(gpumem_close(file));
}

/* The end of a context closes its mappings, and the next context may get the same pointer. */
static void the_end_of_a_context(void)
{
	producer_start();
	use_gpu();
	gpumem *file = lease("shared", O_RDWR), *other = lease("shared", O_RDWR);

	device_pointer(file, SIZE);
	device_pointer(other, SIZE);
	MUST(cuDevicePrimaryCtxRelease(0));
	use_gpu();
	GOOD(gpumem_close(other));
	expect_device(device_pointer(file, SIZE) - BEFORE, 1, BEFORE, ALLOCATION);
	GOOD(gpumem_close(file));
	producer_kill();
}

static void freed_memory_is_stale(void)
{
	unsigned long long address;
	char byte;

	producer_start();
	producer_tell('f');
	use_gpu();
	gpumem *file = lease("shared", O_RDWR);

	CHECK(gpumem_map_device(file, &address, NULL) < 0);
	EQUAL(errno, ESTALE);
	/* The daemon has had the memory open since the call of gpumem_share. */
	read_all(OK(open("shared", O_RDONLY)), &byte, 1, 5);
	EQUAL((unsigned char)byte, pattern_at(1, BEFORE + 5));
	GOOD(gpumem_close(file));
	producer_tell('c');
	AWAIT(!exists("shared"));
	CHECK(!exists("shared"));
	producer_kill();
}

CLIENT_PROG(TEST(another_process_maps_it), TEST(read_written_and_copied), TEST(refused),
	    TEST(memory_of_another_gpu_is_refused), TEST(a_killed_daemon_changes_nothing),
	    TEST(the_end_of_the_process), TEST(the_end_of_a_context), TEST(freed_memory_is_stale))
