/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* check: asan-standin */
/* backends: standin cuda
 * timeout: 300
 * Device addresses of libgpumem in programs with a CUDA context: copies by the GPU see the file's
 * bytes, cat sees the changes made by the GPU, and no resources are left behind. */
#include "tests/mount/client_gpu.h"

#include <sys/xattr.h>

static void seen_both_ways(void)
{
	size_t bytes = 5 * MIB + 123;
	int fd = patterned_file("file", 1, bytes);
	unsigned char mark[1000];

	use_gpu();
	gpumem *file = lease("file", O_RDWR);
	gm_CUdeviceptr at = device_pointer(file, bytes);

	expect_device(at, 1, 0, bytes);
	pattern_fill(mark, sizeof(mark), 2, 3 * MIB - 7);
	MUST(cuMemcpyHtoD(at + 3 * MIB - 7, mark, sizeof(mark)));
	pattern_check(fd, 2, 3 * MIB - 7, sizeof(mark));
	MUST(cuMemsetD8(at + 4 * MIB, 0, MIB));
	MUST(cuCtxSynchronize());
	zero_check(fd, 4 * MIB, MIB);
	pattern_write(fd, 3, 4 * MIB, MIB);
	expect_device(at, 3, 4 * MIB, 5 * MIB);
	unsigned char *host = host_pointer(file, bytes);
	host[77] = 99;
	GOOD(gpumem_flush(file));
	MUST(cuMemcpyDtoH(mark, at + 77, 1));
	EQUAL(mark[0], 99);
	GOOD(gpumem_close(file));
	pattern_check(fd, 1, 78, MIB);
}

static void many_chunks(void)
{
	int fd = new_file("file");

	use_gpu();
	for (int i = 0; i < 6; i++)
		pattern_write(fd, 4, i * 4 * MIB, 4 * MIB);
	gpumem *file = lease("file", O_RDWR);
	gm_CUdeviceptr at = device_pointer(file, 24 * MIB);

	expect_device(at, 4, 0, 24 * MIB);
	pattern_write(fd, 4, 24 * MIB, 8 * MIB);
	GOOD(gpumem_extend(file));
	EQUAL(device_pointer(file, 32 * MIB), at);
	expect_device(at, 4, 0, 32 * MIB);
	GOOD(gpumem_close(file));
}

/* Imports a piece by the driver's own call, at its place in the range. */
static void piece_import(const struct gpumem_piece *piece, gm_CUdeviceptr range)
{
	const gm_CUmemAccessDesc access = {.location = {.type = GM_CU_MEM_LOCATION_TYPE_DEVICE},
					   .flags = GM_CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
	gm_CUdeviceptr at = range + piece->offset;
	gm_CUmemGenericAllocationHandle handle;

	CHECK(piece->handles == GPUMEM_HANDLE_CUDA || piece->handles == GPUMEM_HANDLE_OPAQUE);
	MUST(cuMemImportFromShareableHandle(&handle, (void *)(intptr_t)piece->fd,
					    GM_CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR));
	OK(close(piece->fd));
	MUST(cuMemMap(at, piece->memory_bytes, piece->memory_offset, handle, 0));
	MUST(cuMemRelease(handle));
	MUST(cuMemSetAccess(at, piece->memory_bytes, &access, 1));
}

static void pieces_are_imported(void)
{
	struct gpumem_piece pieces[16];
	unsigned char mark[1000];
	size_t n = 16;
	gm_CUdeviceptr at;

	use_gpu();
	int fd = new_file("file");
	for (int i = 0; i < 3; i++)
		pattern_write(fd, 15, i * 4 * MIB, 4 * MIB);
	gpumem *file = lease("file", O_RDWR);
	size_t bytes = info_of(file).mappable;
	GOOD(gpumem_export(file, 0, pieces, &n));
	EQUAL(n, info_of(file).n_chunks);
	MUST(cuMemAddressReserve(&at, bytes, 0, 0, 0));
	for (size_t i = 0; i < n; i++)
		piece_import(&pieces[i], at);
	expect_device(at, 15, 0, 12 * MIB);
	pattern_fill(mark, sizeof(mark), 16, 8 * MIB - 500);
	MUST(cuMemcpyHtoD(at + 8 * MIB - 500, mark, sizeof(mark)));
	MUST(cuCtxSynchronize()); /* a copy of few bytes may be under way when the call returns */
	pattern_check(fd, 16, 8 * MIB - 500, sizeof(mark));
	for (size_t i = 0; i < n; i++)
		MUST(cuMemUnmap(at + pieces[i].offset, pieces[i].memory_bytes));
	MUST(cuMemAddressFree(at, bytes));
	GOOD(gpumem_close(file));
}

static void tiny_files(void)
{
	use_gpu();
	for (size_t bytes = 1; bytes < 100000; bytes = bytes * 9 + 1) {
		char name[32];

		sprintf(name, "file%zu", bytes);
		patterned_file(name, bytes, bytes);
		gpumem *file = lease(name, O_RDWR);
		expect_device(device_pointer(file, bytes), bytes, 0, bytes);
		GOOD(gpumem_close(file));
	}
}

static void from_the_other_gpu(void)
{
	int count, fd = patterned_file(other("file"), 5, 5 * MIB);
	unsigned char mark[64];

	use_gpu();
	MUST(cuDeviceGetCount(&count));
	gpumem *file = lease(other("file"), O_RDWR);
	EQUAL(info_of(file).device, 1);
	gm_CUdeviceptr at = device_pointer(file, 5 * MIB);

	expect_device(at, 5, 0, 5 * MIB);
	pattern_fill(mark, sizeof(mark), 6, 4 * MIB);
	MUST(cuMemcpyHtoD(at + 4 * MIB, mark, sizeof(mark)));
	MUST(cuCtxSynchronize());
	pattern_check(fd, 6, 4 * MIB, sizeof(mark));
	GOOD(gpumem_close(file));
}

static void readers_get_a_copy(void)
{
	int fd = patterned_file("file", 7, 3 * MIB);

	use_gpu();
	gpumem *file = lease("file", O_RDONLY);
	gm_CUdeviceptr at = device_pointer(file, 3 * MIB);

	EQUAL(info_of(file).flags, GPUMEM_INFO_PRIVATE);
	MUST(cuMemsetD8(at, 0, 3 * MIB));
	MUST(cuCtxSynchronize());
	pattern_check(fd, 7, 0, 3 * MIB);
	GOOD(gpumem_close(file));
}

static void trusted_readers(void)
{
	int fd = patterned_file("file", 8, 3 * MIB);

	use_gpu();
	OK(fsetxattr(fd, "user.gpumem.share", "trusted", 7, 0));
	gpumem *file = lease("file", O_RDONLY);
	gm_CUdeviceptr at = device_pointer(file, 3 * MIB);

	EQUAL(info_of(file).flags, GPUMEM_INFO_READ_ONLY);
	pattern_write(fd, 9, MIB, MIB);
	expect_device(at, 9, MIB, 2 * MIB);
	pattern_check(fd, 8, 0, MIB);
	GOOD(gpumem_close(file));
}

static void host_files_for_the_gpu(void)
{
	char path[PATH_MAX];
	unsigned long long at;
	size_t bytes;

	sprintf(path, "%s/client_registered", getenv("HOSTDIR"));
	int fd = patterned_file(path, 10, 3 * MIB + 5);
	use_gpu();
	gpumem *file = lease(path, O_RDWR), *reader = lease(path, O_RDONLY);
	GOOD(gpumem_map_device(file, &at, &bytes));
	EQUAL(bytes, 3 * MIB + 5);
	EQUAL(info_of(file).mapped, 3 * MIB + 5);
	pattern_write(fd, 10, 0, 6 * MIB);
	GOOD(gpumem_extend(file));
	EQUAL(info_of(file).mapped, 6 * MIB);
	if (!strcmp(getenv("BACKEND"), "cuda")) {
		/* The driver's copies cannot cross the border of two registrations. */
		expect_device(at, 10, 0, 3 * MIB + 4096);
		expect_device(at, 10, 3 * MIB + 4096, 6 * MIB);
	}
	GOOD(gpumem_map_device(reader, &at, &bytes));
	GOOD(gpumem_close(reader));
	GOOD(gpumem_close(file));
	OK(unlink(path));
}

static void without_a_context(void)
{
	unsigned long long at;

	patterned_file("file", 11, MIB);
	gpumem *file = lease("file", O_RDWR);
	REFUSED(EINVAL, "no current CUDA context", gpumem_map_device(file, &at, NULL));
	use_gpu();
	MUST(cuCtxSetCurrent(NULL));
	REFUSED(EINVAL, "no current CUDA context", gpumem_map_device(file, &at, NULL));
	GOOD(gpumem_close(file));
}

static gpumem *inherited;

static void device_in_a_child(int unused)
{
	unsigned long long at;

	(void)unused;
	EQUAL(info_of(inherited).mapped, 0);
	REFUSED(EINVAL, "fork", gpumem_map_device(inherited, &at, NULL));
	GOOD(gpumem_unmap_device(inherited));
	GOOD(gpumem_close(inherited));
}

static void fork_while_mapped(void)
{
	patterned_file("file", 12, 3 * MIB);
	use_gpu();
	inherited = lease("file", O_RDWR);
	gm_CUdeviceptr at = device_pointer(inherited, 3 * MIB);
	unsigned char *host = host_pointer(inherited, 3 * MIB);

	spawn(device_in_a_child, 0);
	join_all(1);
	expect_device(at, 12, 0, 3 * MIB);
	expect_pattern(host, 12, 0, 100000);
	GOOD(gpumem_close(inherited));
}

static void hold_until_killed(int ready)
{
	use_gpu();
	gpumem *file = lease("file", O_RDWR);

	expect_device(device_pointer(file, 3 * MIB), 13, 0, 3 * MIB);
	OK(write(ready, "", 1));
	pause();
}

static void sharers_killed(void)
{
	int fd = patterned_file("file", 13, 3 * MIB);

	kill_sharers(fd, 6, hold_until_killed);
	pattern_check(fd, 13, 0, 3 * MIB);
	CHECK(shrinks(fd, 0));
}

static void open_and_close(int cycle)
{
	gpumem *file = lease("file", O_RDWR);
	gm_CUdeviceptr at = device_pointer(file, 2 * MIB);

	if (cycle % 16 == 0)
		expect_device(at, 14, cycle, cycle + 1000);
	if (cycle % 64 == 0)
		host_pointer(file, 2 * MIB);
	GOOD(gpumem_close(file));
}

static void cycle_on_the_gpu(int unused)
{
	(void)unused;
	use_gpu();
	cycle_through(open_and_close);
	MUST(cuDevicePrimaryCtxRelease(0));
	fflush(stdout);
	exit(0); /* not _exit: the stand-in prints leaks at exit */
}

static void many_cycles_leave_nothing(void)
{
	OK(close(patterned_file("file", 14, 2 * MIB)));
	spawn(cycle_on_the_gpu, 0);
	join_all(1);
	int fd = OK(open("file", O_RDWR));
	CHECK(shrinks(fd, 0));
}

CLIENT_PROG(TEST(seen_both_ways), TEST(many_chunks), TEST(pieces_are_imported), TEST(tiny_files),
	    TEST(from_the_other_gpu), TEST(readers_get_a_copy), TEST(trusted_readers),
	    TEST(host_files_for_the_gpu), TEST(without_a_context), TEST(fork_while_mapped),
	    TEST(sharers_killed), TEST(many_cycles_leave_nothing))
