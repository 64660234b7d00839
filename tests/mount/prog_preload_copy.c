/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* check: asan-standin */
/* backends: standin cuda
 * timeout: 300
 * Copies out of private mappings, to a GPU and in memory, under the preload library: a copy has the
 * bytes that the mapping shows, and the library serves exactly the copies whose bytes are the
 * file's. */
#include "tests/mount/preload.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdatomic.h>

#include "backend/cuda/driver/abi.h"

/* Value for GPUMEM_PRELOAD_AFTER: reads and writes never take leases. */
#define NEVER "1000000000000"

/* cudaMemcpyKind */
#define TO_DEVICE 1

/* The dynamic linker binds these to the preload library. */
gm_CUresult cuMemcpyHtoD_v2(gm_CUdeviceptr, const void *, size_t) __attribute__((weak));
gm_CUresult cuMemcpyHtoDAsync_v2(gm_CUdeviceptr, const void *, size_t, gm_CUstream)
    __attribute__((weak));
gm_CUresult cuMemcpy(gm_CUdeviceptr, gm_CUdeviceptr, size_t) __attribute__((weak));
gm_CUresult cuMemcpyAsync(gm_CUdeviceptr, gm_CUdeviceptr, size_t, gm_CUstream)
    __attribute__((weak));
int cudaMemcpy(void *, const void *, size_t, int) __attribute__((weak));
int cudaMemcpyAsync(void *, const void *, size_t, int, void *) __attribute__((weak));

/* clang-format off */
#define FUNCTIONS(X) \
	X(cuInit, cuInit, (unsigned)) \
	X(cuDevicePrimaryCtxRetain, cuDevicePrimaryCtxRetain, (gm_CUcontext *, gm_CUdevice)) \
	X(cuCtxSetCurrent, cuCtxSetCurrent, (gm_CUcontext)) \
	X(cuCtxSynchronize, cuCtxSynchronize, (void)) \
	X(cuMemcpyHtoD, cuMemcpyHtoD_v2, (gm_CUdeviceptr, const void *, size_t)) \
	X(cuMemAlloc, cuMemAlloc_v2, (gm_CUdeviceptr *, size_t)) \
	X(cuMemcpyDtoH, cuMemcpyDtoH_v2, (void *, gm_CUdeviceptr, size_t)) \
	X(cuMemsetD8, cuMemsetD8_v2, (gm_CUdeviceptr, unsigned char, size_t)) \
	X(cuStreamCreate, cuStreamCreate, (gm_CUstream *, unsigned))
/* clang-format on */

#define FIELD(field, symbol, arguments) gm_CUresult(*field) arguments;
static struct {
	FUNCTIONS(FIELD)
} cu;
static gm_CUcontext context;
static gm_CUdeviceptr buffer;

#define ROOM (8 * MIB)

/* RTLD_GLOBAL: the driver is where a program has it that is linked with the driver. */
static void use_gpu(void)
{
	void *library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_GLOBAL);

	if (!library)
		FAIL("%s", dlerror());
#define FIND(field, symbol, arguments) *(void **)&cu.field = dlsym(library, #symbol);
	FUNCTIONS(FIND)
	EQUAL(cu.cuInit(0), 0);
	gm_CUresult result = cu.cuDevicePrimaryCtxRetain(&context, 0);
	if (result == GM_CUDA_ERROR_DEVICE_UNAVAILABLE)
		SKIP("the GPU's compute mode allows no second process a context");
	EQUAL(result, 0);
	EQUAL(cu.cuCtxSetCurrent(context), 0);
	EQUAL(cu.cuMemAlloc(&buffer, ROOM), 0);
	EQUAL(cu.cuMemsetD8(buffer, 0xEE, ROOM), 0);
	EQUAL(cu.cuCtxSynchronize(), 0);
}

static void data_file(const char *name, uint64_t seed, size_t bytes)
{
	int fd = new_file(name);

	pattern_write(fd, seed, 0, bytes);
	OK(close(fd));
}

/* As a framework maps: the descriptor is closed before the first copy. */
static unsigned char *map(const char *name, size_t bytes, int protection, off_t offset)
{
	int fd = OK(open(name, O_RDONLY));
	unsigned char *at = mmap(NULL, bytes, protection, MAP_PRIVATE, fd, offset);

	CHECK(at != MAP_FAILED);
	OK(close(fd));
	return at;
}

static void expect(uint64_t seed, off_t offset, size_t bytes)
{
	unsigned char *seen = malloc(bytes);

	EQUAL(cu.cuMemcpyDtoH(seen, buffer, bytes), 0);
	for (size_t i = 0; i < bytes; i++)
		if (seen[i] != pattern_at(seed, offset + i))
			FAIL("byte %lld is %02x, wanted %02x", (long long)offset + (long long)i,
			     seen[i], pattern_at(seed, offset + i));
	free(seen);
}

static void copy(const unsigned char *from, size_t bytes)
{
	EQUAL(cuMemcpyHtoD_v2(buffer, from, bytes), 0);
}

static void copy_and_expect(const unsigned char *at, uint64_t seed, off_t offset, size_t bytes)
{
	copy(at + offset, bytes);
	expect(seed, offset, bytes);
}

static void whole_and_in_parts(void)
{
	size_t bytes = 5 * MIB + 123;

	data_file("file", 1, bytes);
	use_gpu();
	unsigned char *at = map("file", bytes, PROT_READ, 0);
	CHECK(!leased("file"));
	copy_and_expect(at, 1, 0, bytes);
	CHECK(leased("file"));
	copy_and_expect(at, 1, 3 * MIB + 77, MIB + 1);
	copy_and_expect(at, 1, (off_t)bytes - 1, 1);
	OK(munmap(at, bytes));
	CHECK(!leased("file"));
	at = map("file", 2 * MIB, PROT_READ, 3 * MIB);
	copy(at + 5, MIB);
	expect(1, 3 * MIB + 5, MIB);
	expect_copied(4);
}

static void by_every_call(void)
{
	gm_CUstream stream;

	data_file("file", 1, 3 * MIB);
	use_gpu();
	unsigned char *at = map("file", 3 * MIB, PROT_READ, 0);
	EQUAL(cu.cuStreamCreate(&stream, 1), 0);
	EQUAL(cuMemcpyHtoDAsync_v2(buffer, at, MIB, stream), 0);
	expect(1, 0, MIB);
	EQUAL(cuMemcpy(buffer, (uintptr_t)at + 100, MIB), 0);
	expect(1, 100, MIB);
	EQUAL(cuMemcpyAsync(buffer, (uintptr_t)at + 200, MIB, NULL), 0);
	expect(1, 200, MIB);
	void *to = (void *)(uintptr_t)buffer;
	EQUAL(cudaMemcpy(to, at + 300, MIB, TO_DEVICE), 0);
	expect(1, 300, MIB);
	EQUAL(cudaMemcpyAsync(to, at + 400, MIB, TO_DEVICE, stream), 0);
	expect(1, 400, MIB);
	expect_copied(5);
}

/* A private mapping that may be written is served where the program has not stored. */
static void own_stores_are_copied(void)
{
	data_file("file", 1, 3 * MIB);
	use_gpu();
	unsigned char *at = map("file", 3 * MIB, PROT_READ | PROT_WRITE, 0);
	EQUAL(at[2 * MIB], pattern_at(1, 2 * MIB));
	copy_and_expect(at, 1, 0, 3 * MIB);
	at[MIB + 5000] = (unsigned char)~at[MIB + 5000];
	copy(at, 2 * MIB);
	unsigned char seen;
	EQUAL(cu.cuMemcpyDtoH(&seen, buffer + MIB + 5000, 1), 0);
	EQUAL(seen, at[MIB + 5000]);
	copy_and_expect(at, 1, 2 * MIB, MIB);
	copy_and_expect(at, 1, 0, MIB);
	expect_copied(3);
}

static void stores_after_mprotect(void)
{
	data_file("file", 1, 3 * MIB);
	use_gpu();
	unsigned char *at = map("file", 3 * MIB, PROT_READ, 0);
	OK(mprotect(at, 3 * MIB, PROT_READ | PROT_WRITE));
	pattern_fill(at + MIB, MIB, 2, MIB);
	OK(mprotect(at, 3 * MIB, PROT_READ));
	copy_and_expect(at, 2, MIB, MIB);
	expect_copied(0);
}

/* A shared mapping that is only read is a source, too, until the program may store. */
static void shared_mappings(void)
{
	data_file("file", 1, 3 * MIB);
	use_gpu();
	int fd = OK(open("file", O_RDWR));
	unsigned char *at = mmap(NULL, 3 * MIB, PROT_READ, MAP_SHARED, fd, 0);
	CHECK(at != MAP_FAILED);
	copy_and_expect(at, 1, 0, 3 * MIB);
	pattern_write(fd, 2, 0, 3 * MIB);
	copy_and_expect(at, 2, MIB, MIB);
	expect_copied(2);
	OK(mprotect(at, 3 * MIB, PROT_READ | PROT_WRITE));
	pattern_fill(at + MIB, MIB, 3, MIB);
	copy_and_expect(at, 3, MIB, MIB);
	expect_copied(2);
}

/* Behind the file's end the last page reads as zeroes, whatever the memory there has. */
static void across_the_end(void)
{
	unsigned char seen[100];

	data_file("file", 1, 3 * MIB + 100);
	use_gpu();
	unsigned char *at = map("file", 3 * MIB + 4096, PROT_READ, 0);
	copy(at + MIB, 2 * MIB + 200);
	expect(1, MIB, 2 * MIB + 100);
	EQUAL(cu.cuMemcpyDtoH(seen, buffer + 2 * MIB + 100, 100), 0);
	for (int i = 0; i < 100; i++)
		EQUAL(seen[i], 0);
	copy_and_expect(at, 1, 2 * MIB, MIB + 100);
	expect_copied(1);
}

static void addresses_that_are_used_again(void)
{
	data_file("file", 1, 3 * MIB);
	use_gpu();
	unsigned char *at = map("file", 3 * MIB, PROT_READ, 0);
	copy_and_expect(at, 1, 0, MIB);
	OK(munmap(at + MIB, MIB));
	CHECK(!leased("file"));
	int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED;
	CHECK(mmap(at + MIB, MIB, PROT_READ | PROT_WRITE, flags, -1, 0) == at + MIB);
	pattern_fill(at + MIB, MIB, 7, MIB);
	copy_and_expect(at, 7, MIB, MIB);
	at = map("file", 3 * MIB, PROT_READ, 0);
	CHECK(mmap(at, 3 * MIB, PROT_READ | PROT_WRITE, flags, -1, 0) == at);
	pattern_fill(at, 3 * MIB, 8, 0);
	copy_and_expect(at, 8, 0, 3 * MIB);
	expect_copied(1);
}

static void moved_mappings(void)
{
	data_file("file", 1, 4 * MIB);
	data_file("other", 2, 4 * MIB);
	use_gpu();
	unsigned char *at = map("file", 3 * MIB, PROT_READ, 0);
	unsigned char *there = map("other", 3 * MIB, PROT_READ, 0);
	copy_and_expect(there, 2, 0, 3 * MIB);
	CHECK(mremap(at, 3 * MIB, 3 * MIB, MREMAP_MAYMOVE | MREMAP_FIXED, there) == there);
	copy_and_expect(there, 1, 0, 3 * MIB);
	at = map("other", 3 * MIB, PROT_READ, 0);
	CHECK(at != MAP_FAILED);
	copy_and_expect(at, 2, 0, 3 * MIB);
	expect_copied(2);
}

/* A mapping is of the file, not of the name. */
static void replaced_and_unlinked_files(void)
{
	data_file("file", 1, 3 * MIB);
	data_file("new", 2, 3 * MIB);
	use_gpu();
	unsigned char *at = map("file", 3 * MIB, PROT_READ, 0);
	OK(rename("new", "file"));
	copy_and_expect(at, 1, 0, 3 * MIB);
	unsigned char *other = map("file", 3 * MIB, PROT_READ, 0);
	OK(unlink("file"));
	copy_and_expect(other, 2, 0, 3 * MIB);
	copy_and_expect(at, 1, MIB, 2 * MIB);
	expect_copied(3);
}

/* A lease that the library took does not keep the program from shortening its file. */
static void truncating_what_is_mapped(void)
{
	data_file("file", 1, 3 * MIB);
	use_gpu();
	unsigned char *at = map("file", 3 * MIB, PROT_READ, 0);
	copy_and_expect(at, 1, 0, 3 * MIB);
	OK(truncate("file", MIB));
	copy_and_expect(at, 1, 0, MIB);
	expect_copied(1);
}

static void store_by_write(int unused)
{
	(void)unused;
	int fd = OK(open("file", O_RDWR));

	pattern_write(fd, 3, 0, 3 * MIB);
	OK(close(fd));
}

/* Writes before the mapping are in the copy, by whatever process. */
static void earlier_writes_are_copied(void)
{
	data_file("file", 1, 3 * MIB);
	unsigned char *before = map("file", 3 * MIB, PROT_READ, 0);
	EQUAL(before[MIB], pattern_at(1, MIB));
	spawn(store_by_write, 0);
	join_all(1);
	use_gpu();
	unsigned char *at = map("file", 3 * MIB, PROT_READ, 0);
	copy_and_expect(at, 3, 0, 3 * MIB);
	expect_copied(1);
}

static void try_lock(int unused)
{
	struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET};

	(void)unused;
	int fd = OK(open("file", O_RDWR));
	CHECK(fcntl(fd, F_SETLK, &lock) < 0 && (errno == EAGAIN || errno == EACCES));
}

/* The library's descriptors do not drop the process's locks. */
static void locks_stay(void)
{
	struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET};

	data_file("file", 1, 3 * MIB);
	int fd = OK(open("file", O_RDWR));
	OK(fcntl(fd, F_SETLK, &lock));
	void *at = mmap(NULL, 3 * MIB, PROT_READ, MAP_PRIVATE, fd, 0);
	CHECK(at != MAP_FAILED);
	use_gpu();
	copy_and_expect(at, 1, 0, 3 * MIB);
	OK(munmap(at, 3 * MIB));
	CHECK(!leased("file"));
	spawn(try_lock, 0);
	join_all(1);
	expect_copied(1);
}

static void readers_copy_from_their_pages(void)
{
	data_file("file", 1, 3 * MIB);
	OK(chmod("file", 0444));
	use_gpu();
	unsigned char *at = map("file", 3 * MIB, PROT_READ, 0);
	OK(seteuid(65534));
	copy_and_expect(at, 1, 0, 3 * MIB);
	OK(seteuid(0));
	CHECK(!leased("file"));
	expect_copied(0);
}

/* A lease would fill the hole. */
static void sparse_files_stay_sparse(void)
{
	int fd = new_file("file");
	struct stat st;

	OK(ftruncate(fd, 64 * MIB));
	pattern_write(fd, 1, MIB, MIB);
	OK(close(fd));
	use_gpu();
	unsigned char *at = map("file", 64 * MIB, PROT_READ, 0);
	copy_and_expect(at, 1, MIB, MIB);
	OK(stat("file", &st));
	CHECK(st.st_blocks * 512 < 32 * MIB);
	CHECK(!leased("file"));
	expect_copied(0);
}

/* Small copies out of a leased file need no lease of their own. */
static void small_copies(void)
{
	data_file("file", 1, 3 * MIB);
	use_gpu();
	unsigned char *at = map("file", 3 * MIB, PROT_READ, 0);
	copy_and_expect(at, 1, MIB, 1000);
	CHECK(!leased("file"));
	copy_and_expect(at, 1, 0, MIB);
	copy_and_expect(at, 1, 2 * MIB, 1000);
	expect_copied(2);
}

typedef int copy_function(const void *, size_t);
typedef int copy_last_function(void *, const void *, size_t, int, void *);

/* Calls that the library does not serve reach the runtime library of the calling library. */
static void each_library_has_its_runtime(void)
{
	copy_function *copies[2];
	copy_last_function *last = NULL;
	char path[PATH_MAX], byte = 0;

	for (int i = 0; i < 2; i++) {
		sprintf(path, "%s/runtime%d/user.so", getenv("TOOLS"), i + 1);
		void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
		if (!library)
			FAIL("%s", dlerror());
		*(void **)&copies[i] = dlsym(library, "user_copy");
		if (i == 0)
			*(void **)&last = dlsym(library, "user_copy_last");
	}
	for (int i = 0; i < 4; i++)
		EQUAL(copies[i % 2](&byte, 1), i % 2 + 1);
	EQUAL(last(NULL, &byte, 1, TO_DEVICE, NULL), 1);
}

static unsigned char *inherited;

static void read_in_child(int unused)
{
	(void)unused;
	for (size_t i = 0; i < 3 * MIB; i++)
		EQUAL(inherited[i], pattern_at(1, (off_t)i));
	OK(munmap(inherited, 3 * MIB));
	expect_copied(0);
}

static void children_inherit_mappings(void)
{
	data_file("file", 1, 3 * MIB);
	use_gpu();
	inherited = map("file", 3 * MIB, PROT_READ, 0);
	copy_and_expect(inherited, 1, 0, 3 * MIB);
	spawn(read_in_child, 0);
	join_all(1);
	CHECK(leased("file"));
	copy_and_expect(inherited, 1, MIB, MIB);
	expect_copied(2);
}

/* Without a context the driver's own call decides; the library does not make a context. */
static void before_cuda_is_initialised(void)
{
	data_file("file", 1, 3 * MIB);
	unsigned char *at = map("file", 3 * MIB, PROT_READ, 0);
	CHECK(dlopen("libcuda.so.1", RTLD_NOW | RTLD_GLOBAL));
	EQUAL(cuMemcpyHtoD_v2(4096, at, 3 * MIB), GM_CUDA_ERROR_NOT_INITIALIZED);
	expect_copied(0);
}

#define THREADS 4
#define ROUNDS	20
static unsigned char *shared_mapping;

static void *copy_in_turns(void *argument)
{
	gm_CUdeviceptr own;
	unsigned char *seen = malloc(MIB);
	size_t number = (size_t)argument;

	EQUAL(cu.cuCtxSetCurrent(context), 0);
	EQUAL(cu.cuMemAlloc(&own, MIB), 0);
	for (size_t round = 0; round < ROUNDS; round++) {
		unsigned char *mine = map("file", 3 * MIB, PROT_READ, 0);
		size_t offset = (number * ROUNDS + round) * 1000;
		const unsigned char *from = round % 2 ? mine : shared_mapping;
		EQUAL(cuMemcpyHtoD_v2(own, from + offset, MIB), 0);
		EQUAL(cu.cuMemcpyDtoH(seen, own, MIB), 0);
		for (size_t i = 0; i < MIB; i += 997)
			EQUAL(seen[i], pattern_at(1, (off_t)(offset + i)));
		OK(munmap(mine, 3 * MIB));
	}
	free(seen);
	return NULL;
}

/* Copies in memory, as a program does that fills pinned memory. memory: a buffer of bytes. */
static void memory_and_expect(unsigned char *memory, const unsigned char *at, uint64_t seed,
			      off_t offset, size_t bytes)
{
	void *(*volatile copies[])(void *, const void *, size_t) = {memcpy, memmove};

	for (int i = 0; i < 2; i++) {
		memset(memory, 0xEE, bytes);
		CHECK(copies[i](memory, at + offset, bytes) == memory);
		for (size_t k = 0; k < bytes; k++)
			if (memory[k] != pattern_at(seed, offset + (off_t)k))
				FAIL("byte %zu is %02x", k, memory[k]);
	}
}

static void copies_in_memory(void)
{
	unsigned char *memory = malloc(3 * MIB);

	data_file("file", 1, 3 * MIB + 100);
	unsigned char *at = map("file", 3 * MIB + 100, PROT_READ | PROT_WRITE, 0);
	/* A program that uses no GPU needs no lease. */
	memory_and_expect(memory, at, 1, 0, MIB);
	use_gpu();
	memory_and_expect(memory, at, 1, 0, MIB);
	CHECK(leased("file"));
	memory_and_expect(memory, at, 1, MIB + 33, MIB + 77);
	memory_and_expect(memory, at, 1, 3 * MIB, 100);
	expect_copied(4);
	/* What the program has stored is its own. */
	at[2 * MIB] = (unsigned char)~at[2 * MIB];
	memcpy(memory, at + MIB, 2 * MIB);
	EQUAL(memory[MIB], at[2 * MIB]);
	memcpy(memory, memory + MIB, MIB);
	EQUAL(memory[0], at[2 * MIB]);
	free(memory);
}

/* The driver copies out of a mapping by memcpy(3) itself, with its locks held. */
static void copies_by_the_driver(void)
{
	data_file("file", 1, 3 * MIB);
	use_gpu();
	unsigned char *at = map("file", 3 * MIB, PROT_READ, 0);
	EQUAL(cu.cuMemcpyHtoD(buffer, at, 3 * MIB), 0);
	expect(1, 0, 3 * MIB);
	CHECK(!leased("file"));
	expect_copied(0);
}

static void *copy_to_memory_in_turns(void *argument)
{
	unsigned char *memory = malloc(MIB);
	size_t number = (size_t)argument;

	EQUAL(cu.cuCtxSetCurrent(context), 0);
	for (size_t round = 0; round < ROUNDS; round++) {
		size_t offset = (number * ROUNDS + round) * 1000;
		memcpy(memory, shared_mapping + offset, MIB);
		for (size_t i = 0; i < MIB; i += 997)
			EQUAL(memory[i], pattern_at(1, (off_t)(offset + i)));
	}
	free(memory);
	return NULL;
}

static void run_threads(void *(*run)(void *))
{
	pthread_t threads[THREADS];

	data_file("file", 1, 3 * MIB);
	use_gpu();
	shared_mapping = map("file", 3 * MIB, PROT_READ, 0);
	for (size_t i = 0; i < THREADS; i++)
		CHECK(pthread_create(&threads[i], NULL, run, (void *)i) == 0);
	for (size_t i = 0; i < THREADS; i++)
		CHECK(pthread_join(threads[i], NULL) == 0);
	expect_copied(THREADS * ROUNDS);
}

static void threads_map_and_copy(void)
{
	run_threads(copy_in_turns);
}

static void threads_copy_to_memory(void)
{
	run_threads(copy_to_memory_in_turns);
}

int main(int argc, char **argv)
{
	static const struct prog_test tests[] = {
	    TEST(whole_and_in_parts),
	    TEST(by_every_call),
	    TEST(own_stores_are_copied),
	    TEST(stores_after_mprotect),
	    TEST(shared_mappings),
	    TEST(across_the_end),
	    TEST(addresses_that_are_used_again),
	    TEST(moved_mappings),
	    TEST(replaced_and_unlinked_files),
	    TEST(truncating_what_is_mapped),
	    TEST(earlier_writes_are_copied),
	    TEST(locks_stay),
	    TEST(readers_copy_from_their_pages),
	    TEST(sparse_files_stay_sparse),
	    TEST(small_copies),
	    TEST(each_library_has_its_runtime),
	    TEST(children_inherit_mappings),
	    TEST(before_cuda_is_initialised),
	    TEST(threads_map_and_copy),
	    TEST(copies_in_memory),
	    TEST(copies_by_the_driver),
	    TEST(threads_copy_to_memory),
	};
	static const char *const kinds[] = {"copied", NULL};

	return preload_main(argc, argv, tests, sizeof(tests) / sizeof(tests[0]), NEVER, kinds);
}
