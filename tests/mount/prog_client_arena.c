/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* check: asan-standin */
/* backends: standin cuda
 * timeout: 300
 * Arenas: what a program allocates lies in a file that other processes see, and the file goes with
 * its process. The functions for torch. */
#include "tests/mount/client_gpu.h"

#include <pthread.h>
#include <sys/xattr.h>
#include <time.h>

#define NAME "arena"

static gpumem_arena *arena_new(const char *path, size_t reserve, int flags)
{
	gpumem_arena *arena = gpumem_arena_open(path, reserve, flags);

	if (!arena)
		FAIL("gpumem_arena_open(%s): %s", path, gpumem_error());
	return arena;
}

static gm_CUdeviceptr alloc(gpumem_arena *arena, size_t bytes)
{
	unsigned long long address;

	GOOD(gpumem_arena_alloc(arena, bytes, 0, &address));
	EQUAL(address % 512, 0);
	return address;
}

/* Where the address lies in the file of this name. */
static off_t offset_of(gm_CUdeviceptr address, const char *name)
{
	char path[PATH_MAX];
	uint64_t offset;

	GOOD(gpumem_arena_find(address, path, sizeof(path), &offset));
	CHECK(*path == '/' && !strcmp(strrchr(path, '/') + 1, name));
	return (off_t)offset;
}

static void fill(gm_CUdeviceptr address, uint64_t seed, size_t bytes)
{
	unsigned char *content = malloc(bytes);

	pattern_fill(content, bytes, seed, 0);
	MUST(cuMemcpyHtoD(address, content, bytes));
	free(content);
}

/* The file has the pattern from the offset on. */
static void expect_in_file(gm_CUdeviceptr address, uint64_t seed, size_t bytes)
{
	unsigned char *content = malloc(bytes);
	int fd = OK(open(NAME, O_RDONLY));

	EQUAL(pread(fd, content, bytes, offset_of(address, NAME)), bytes);
	expect_pattern(content, seed, 0, bytes);
	OK(close(fd));
	free(content);
}

static void allocations_are_the_file(void)
{
	static const size_t sizes[] = {1000, 2 * MIB, 5 * MIB + 1, 40 * MIB, 512, 9 * MIB};
	gm_CUdeviceptr at[6];
	char path[8];
	uint64_t offset;

	use_gpu();
	gpumem_arena *arena = arena_new(NAME, 0, GPUMEM_CREATE_EXCL);
	for (int i = 0; i < 6; i++) {
		at[i] = alloc(arena, sizes[i]);
		fill(at[i], i, sizes[i]);
	}
	for (int i = 0; i < 6; i++)
		expect_in_file(at[i], i, sizes[i]);
	gpumem *file = lease(NAME, O_RDWR);
	gm_CUdeviceptr shared = device_pointer(file, info_of(file).size);
	CHECK(shared != at[0]);
	expect_device(shared + offset_of(at[3], NAME), 3, 0, sizes[3]);
	EQUAL(at[3] - at[1], offset_of(at[3], NAME) - offset_of(at[1], NAME));
	REFUSED(ERANGE, "too few", gpumem_arena_find(at[0], path, sizeof(path), &offset));
	REFUSED(ENOENT, "no arena", gpumem_arena_find(1, path, sizeof(path), &offset));
	GOOD(gpumem_close(file));
	GOOD(gpumem_arena_close(arena));
	FAILS(ENOENT, access(NAME, F_OK));
	GOOD(gpumem_arena_close(NULL));
}

static void freed_memory_is_used_again(void)
{
	unsigned long long address;
	struct stat st;

	use_gpu();
	gpumem_arena *arena = arena_new(NAME, 0, 0);
	gm_CUdeviceptr first = alloc(arena, 20 * MIB), second = alloc(arena, 20 * MIB);
	OK(stat(NAME, &st));
	for (int i = 0; i < 50; i++) {
		GOOD(gpumem_arena_free(arena, first));
		EQUAL(alloc(arena, 20 * MIB), first);
	}
	GOOD(gpumem_arena_free(arena, first));
	GOOD(gpumem_arena_free(arena, second));
	EQUAL(alloc(arena, 40 * MIB), first);
	off_t before = st.st_size;
	OK(stat(NAME, &st));
	EQUAL(st.st_size, before);
	GOOD(gpumem_arena_alloc(arena, 100, 2 * MIB, &address));
	EQUAL(address % (2 * MIB), 0);
	REFUSED(EINVAL, "begins", gpumem_arena_free(arena, address + 512));
	REFUSED(EINVAL, "power of two", gpumem_arena_alloc(arena, 100, 3, &address));
	REFUSED(EINVAL, "0 bytes", gpumem_arena_alloc(arena, 0, 0, &address));
	GOOD(gpumem_arena_close(arena));
}

static void what_is_full(void)
{
	unsigned long long address;

	use_gpu();
	gpumem_arena *arena = arena_new(NAME, 6 * MIB, 0);
	alloc(arena, 5 * MIB);
	REFUSED(ENOSPC, "reserve", gpumem_arena_alloc(arena, 2 * MIB, 0, &address));
	alloc(arena, MIB);
	GOOD(gpumem_arena_close(arena));
	arena = arena_new(NAME, 1L << 40, 0);
	REFUSED(ENOSPC, "no memory for", gpumem_arena_alloc(arena, 1L << 39, 0, &address));
	fill(alloc(arena, 3 * MIB), 4, 3 * MIB);
	GOOD(gpumem_arena_close(arena));
	FAILS(ENOENT, access(NAME, F_OK));
}

static void parked_arena(void)
{
	unsigned long long address;

	use_gpu();
	gpumem_arena *arena = arena_new(NAME, 0, 0);
	gm_CUdeviceptr first = alloc(arena, 3 * MIB), second = alloc(arena, 20 * MIB);
	fill(first, 1, 3 * MIB);
	fill(second, 2, 20 * MIB);
	MUST(cuCtxSynchronize());
	GOOD(gpumem_arena_park(arena));
	GOOD(gpumem_arena_park(arena));
	REFUSED(EBUSY, "parked", gpumem_arena_alloc(arena, 512, 0, &address));
	GOOD(gpumem_arena_free(arena, first));
	expect_in_file(second, 2, 20 * MIB);
	EQUAL(gpumem_arena_unpark(arena), GPUMEM_UNPARKED_SAME);
	EQUAL(gpumem_arena_unpark(arena), GPUMEM_UNPARKED_SAME);
	expect_device(second, 2, 0, 20 * MIB);
	EQUAL(alloc(arena, 3 * MIB), first);
	alloc(arena, 60 * MIB);

	/* Another process with the file's rights changed or shortened the file. */
	GOOD(gpumem_arena_park(arena));
	int fd = OK(open(NAME, O_RDWR));
	EQUAL(pwrite(fd, "", 1, 0), 1);
	EQUAL(gpumem_arena_unpark(arena), GPUMEM_UNPARKED_CHANGED);
	CHECK(strstr(gpumem_error(), "/" NAME ": the file was changed"));
	GOOD(gpumem_arena_park(arena));
	OK(ftruncate(fd, 4 * MIB));
	REFUSED(ESTALE, "shortened", gpumem_arena_unpark(arena));
	REFUSED(EBUSY, "parked", gpumem_arena_alloc(arena, 512, 0, &address));
	OK(close(fd));
	GOOD(gpumem_arena_close(arena));
	FAILS(ENOENT, access(NAME, F_OK));
}

static void bad_opens(void)
{
	OK(close(patterned_file("file", 1, 1000)));
	FAILS(EINVAL, -!gpumem_arena_open(NAME, 0, 0)); /* no context */
	use_gpu();
	FAILS(EEXIST, -!gpumem_arena_open("file", 0, GPUMEM_CREATE_EXCL));
	FAILS(EINVAL, -!gpumem_arena_open(NAME, 0, GPUMEM_CREATE_PENDING));
	FAILS(ENOENT, -!gpumem_arena_open("none/arena", 0, 0));
	FAILS(ENOTSUP, -!gpumem_arena_open("/tmp/gpumem-arena", 0, 0));
	FAILS(ENOENT, access(NAME, F_OK));
	FAILS(ENOENT, access("/tmp/gpumem-arena", F_OK));
}

/* The arena is left open, which the stand-in would print as a leak. */
static void exit_with_arena(int persist)
{
	unsetenv("GPUMEM_STANDIN_LEAKCHECK");
	use_gpu();
	gpumem_arena *arena = arena_new(NAME, 0, 0);

	fill(alloc(arena, 3 * MIB), 5, 3 * MIB);
	if (persist)
		OK(setxattr(NAME, "user.gpumem.persist", "restart", 7, 0));
	fflush(stdout);
	exit(0);
}

static void goes_with_its_process(void)
{
	need_gpu();
	spawn(exit_with_arena, 0);
	join_all(1);
	FAILS(ENOENT, access(NAME, F_OK));
}

static void stays_if_it_persists(void)
{
	need_gpu();
	if (setxattr(".", "user.gpumem.persist", "restart", 7, 0) < 0)
		SKIP("no file outlives the daemon of this mount");
	OK(setxattr(".", "user.gpumem.persist", "volatile", 8, 0));
	spawn(exit_with_arena, 1);
	join_all(1);
	int fd = OK(open(NAME, O_RDONLY));
	pattern_check(fd, 5, 0, 3 * MIB);
	OK(unlink(NAME));
}

static void renamed_files_stay(void)
{
	use_gpu();
	gpumem_arena *arena = arena_new(NAME, 0, 0);

	fill(alloc(arena, MIB), 6, MIB);
	OK(rename(NAME, "kept"));
	OK(close(patterned_file(NAME, 7, 1000)));
	GOOD(gpumem_arena_close(arena));
	int fd = OK(open("kept", O_RDONLY));
	pattern_check(fd, 6, 0, MIB);
	OK(access(NAME, F_OK));
}

static gpumem_arena *inherited;
static gm_CUdeviceptr inherited_at;

static void arena_in_a_child(int unused)
{
	unsigned long long address;

	(void)unused;
	REFUSED(EINVAL, "fork", gpumem_arena_alloc(inherited, 512, 0, &address));
	REFUSED(EINVAL, "fork", gpumem_arena_free(inherited, inherited_at));
	REFUSED(EINVAL, "fork", gpumem_arena_park(inherited));
	REFUSED(EINVAL, "fork", gpumem_arena_unpark(inherited));
	GOOD(gpumem_arena_close(inherited));
}

static void fork_with_an_arena(void)
{
	use_gpu();
	inherited = arena_new(NAME, 0, 0);
	inherited_at = alloc(inherited, MIB);
	fill(inherited_at, 8, MIB);
	spawn(arena_in_a_child, 0);
	join_all(1);
	expect_in_file(inherited_at, 8, MIB);
	alloc(inherited, 30 * MIB);
	GOOD(gpumem_arena_close(inherited));
}

static void *alloc_and_free(void *argument)
{
	gpumem_arena *arena = argument;
	gm_CUdeviceptr at[8];

	MUST(cuCtxSetCurrent(context));
	for (int round = 0; round < repeats(20, 5); round++) {
		for (int i = 0; i < 8; i++) {
			at[i] = alloc(arena, (i + 1) * 100000);
			fill(at[i], at[i], 100000);
		}
		for (int i = 0; i < 8; i++) {
			expect_device(at[i], at[i], 0, 100000);
			GOOD(gpumem_arena_free(arena, at[i]));
		}
	}
	return NULL;
}

static void many_threads(void)
{
	pthread_t threads[4];

	use_gpu();
	gpumem_arena *arena = arena_new(NAME, 0, 0);
	for (int i = 0; i < 4; i++)
		EQUAL(pthread_create(&threads[i], NULL, alloc_and_free, arena), 0);
	for (int i = 0; i < 4; i++)
		EQUAL(pthread_join(threads[i], NULL), 0);
	GOOD(gpumem_arena_close(arena));
}

/* --- torch ----------------------------------------------------------------------------------- */

static int files_named_torch(char name[256])
{
	DIR *folder = opendir(".");
	int n = 0;

	for (const struct dirent *at; (at = readdir(folder));)
		if (!strncmp(at->d_name, "torch-", 6)) {
			strcpy(name, at->d_name);
			n++;
		}
	closedir(folder);
	return n;
}

static void functions_for_torch(void)
{
	struct gpumem_torch torch, more[14];
	char name[256];

	use_gpu();
	MUST(cuCtxSetCurrent(NULL)); /* as in a new thread of the CUDA runtime */
	GOOD(gpumem_torch_open(".", NULL, 0, &torch));
	EQUAL(files_named_torch(name), 1);
	char *first = torch.alloc(3 * MIB, 0, NULL), *second = torch.alloc(MIB, 0, NULL);
	CHECK(first && second);
	MUST(cuCtxSetCurrent(context));
	fill((gm_CUdeviceptr)second, 9, MIB);
	EQUAL(offset_of((gm_CUdeviceptr)second, name), 3 * MIB);
	torch.free(first, 3 * MIB, 0, NULL);
	CHECK(torch.alloc(2 * MIB, 0, NULL) == first);
	torch.free(first, 2 * MIB, 0, NULL);
	CHECK(!torch.alloc(1L << 50, 0, NULL));
	for (int i = 0; i < 14; i++)
		GOOD(gpumem_torch_open(".", NULL, 0, &more[i]));
	REFUSED(EMFILE, "pools", gpumem_torch_open(".", NULL, 0, &more[0]));
	EQUAL(files_named_torch(name), 15);
	for (int i = 0; i < 14; i++)
		GOOD(gpumem_torch_close(&more[i]));
	GOOD(gpumem_torch_close(&torch));
	EQUAL(files_named_torch(name), 1);
	torch.free(second, MIB, 0, NULL); /* the last allocation */
	EQUAL(files_named_torch(name), 0);
	REFUSED(EINVAL, "no such pool", gpumem_torch_close(&torch));
	CHECK(!torch.alloc(512, 0, NULL));
	torch.alloc = NULL;
	REFUSED(EINVAL, "no such pool", gpumem_torch_park(&torch));
	REFUSED(EINVAL, "no such pool", gpumem_torch_unpark(&torch));
}

static void pools_by_mount_and_name(void)
{
	struct gpumem_torch torch;
	char path[PATH_MAX];

	use_gpu();
	REFUSED(EINVAL, "name", gpumem_torch_open(".", "a/b", 0, &torch));
	REFUSED(ENXIO, "neither", gpumem_torch_open("/tmp", NULL, 0, &torch));
	REFUSED(ENXIO, "neither", gpumem_torch_open(other("."), NULL, 0, &torch));
	GOOD(gpumem_torch_open(getenv("MNT"), "prog_client_arena.named", 0, &torch));
	sprintf(path, "%s/prog_client_arena.named", getenv("GPU0"));
	OK(access(path, F_OK));
	REFUSED(EEXIST, "exists",
		gpumem_torch_open(getenv("GPU0"), strrchr(path, '/') + 1, 0, &torch));
	GOOD(gpumem_torch_close(&torch));
	FAILS(ENOENT, access(path, F_OK));
	setenv("GPUMEM_POOL", ".", 1);
	void *at = gpumem_torch_alloc(MIB, 0, NULL);
	CHECK(at && files_named_torch(path) == 1);
	gpumem_torch_free(at, MIB, 0, NULL);
}

static void pool_until_killed(int ready)
{
	struct gpumem_torch torch;

	use_gpu();
	GOOD(gpumem_torch_open(".", NULL, 0, &torch));
	CHECK(torch.alloc(3 * MIB, 0, NULL));
	OK(write(ready, "", 1));
	pause();
}

static void files_of_killed_processes_go(void)
{
	struct gpumem_torch torch;
	char name[256];
	int ready[2], status;

	need_gpu();
	OK(pipe(ready));
	pid_t dead = spawn(pool_until_killed, ready[1]), live = spawn(pool_until_killed, ready[1]);
	for (int i = 0; i < 2; i++)
		EQUAL(OK(read(ready[0], name, 1)), 1);
	EQUAL(files_named_torch(name), 2);
	OK(kill(dead, SIGKILL));
	OK(waitpid(dead, &status, 0));
	use_gpu();
	GOOD(gpumem_torch_open(".", NULL, 0, &torch));
	EQUAL(files_named_torch(name), 2);
	sprintf(name, "torch-%d-0-0", live);
	OK(access(name, F_OK));
	GOOD(gpumem_torch_close(&torch));
	OK(kill(live, SIGKILL));
	OK(waitpid(live, &status, 0));
}

/* Only names of the form that pools have are swept, and only files of the same user. */
static void other_files_stay(void)
{
	static const char *const names[] = {"torch-model.bin", "torch-1-0",  "torch-1-0-0.bin",
					    "torch--0-0",      "torch-1-0-", "torch-2.0.1",
					    "torch-1-0-0-0",   "torch-"};
	struct gpumem_torch torch;

	use_gpu();
	for (unsigned i = 0; i < sizeof(names) / sizeof(names[0]); i++)
		OK(close(OK(open(names[i], O_CREAT | O_WRONLY | O_CLOEXEC, 0600))));
	OK(close(OK(open("torch-1-0-0", O_CREAT | O_WRONLY | O_CLOEXEC, 0600))));
	OK(close(OK(open("torch-1-0-1", O_CREAT | O_WRONLY | O_CLOEXEC, 0666))));
	OK(chown("torch-1-0-1", 65534, 65534));
	GOOD(gpumem_torch_open(".", NULL, 0, &torch));
	GOOD(gpumem_torch_close(&torch));
	for (unsigned i = 0; i < sizeof(names) / sizeof(names[0]); i++)
		OK(unlink(names[i]));
	OK(unlink("torch-1-0-1"));
	FAILS(ENOENT, unlink("torch-1-0-0"));
}

/* Other users may have files of the names that a pool takes. */
static void taken_names_do_no_harm(void)
{
	struct gpumem_torch torch;
	char name[32];

	use_gpu();
	for (int i = 0; i < 1100; i++) {
		sprintf(name, "torch-%d-0-%d", getpid(), i);
		OK(close(OK(open(name, O_CREAT | O_WRONLY | O_CLOEXEC, 0600))));
		OK(setxattr(name, "user.gpumem.persist", "restart", 7, 0)); /* is not removed */
	}
	GOOD(gpumem_torch_open(".", NULL, 0, &torch));
	CHECK(torch.alloc(MIB, 0, NULL));
	GOOD(gpumem_torch_close(&torch));
}

CLIENT_PROG(TEST(allocations_are_the_file), TEST(freed_memory_is_used_again), TEST(what_is_full),
	    TEST(parked_arena), TEST(bad_opens), TEST(goes_with_its_process),
	    TEST(stays_if_it_persists), TEST(renamed_files_stay), TEST(fork_with_an_arena),
	    TEST(many_threads), TEST(functions_for_torch), TEST(pools_by_mount_and_name),
	    TEST(files_of_killed_processes_go), TEST(other_files_stay),
	    TEST(taken_names_do_no_harm))
