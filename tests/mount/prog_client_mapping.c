/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* check: asan-host asan-standin */
/* backends: host standin cuda
 * Tests of mappings, taken from libraries that map GPU memory, but with files: use after the end,
 * odd offsets, two mappings, and every BAR provider by name. Sub-tests that the machine cannot run
 * are skipped. */
#include "tests/mount/client_gpu.h"

#include <setjmp.h>
#include <signal.h>

#define BYTES (2 * MIB + 4096)

/* --- after the end ------------------------------------------------------------------------- */

static sigjmp_buf before_fault;

static void on_fault(int number)
{
	(void)number;
	siglongjmp(before_fault, 1);
}

static bool faults(const volatile unsigned char *at)
{
	const struct sigaction action = {.sa_handler = on_fault};

	OK(sigaction(SIGSEGV, &action, NULL));
	OK(sigaction(SIGBUS, &action, NULL));
	if (sigsetjmp(before_fault, 1))
		return true;
	(void)*at;
	return false;
}

static void the_address_faults_after_close(void)
{
	patterned_file("file", 1, BYTES);
	gpumem *file = lease("file", O_RDWR);
	const unsigned char *at = cpu_pointer(file, BYTES);

	CHECK(!faults(at) && !faults(at + BYTES - 1));
	GOOD(gpumem_unmap_host(file));
	CHECK(faults(at) && faults(at + BYTES - 1));
	at = cpu_pointer(file, BYTES);
	expect_ends(at, 1, BYTES);
	GOOD(gpumem_close(file));
	CHECK(faults(at) && faults(at + BYTES - 1));
}

static void the_device_address_ends_with_close(void)
{
	unsigned char seen[64];

	use_gpu();
	patterned_file("file", 2, BYTES);
	gpumem *file = lease("file", O_RDWR);
	gm_CUdeviceptr at = device_pointer(file, BYTES);

	expect_device(at, 2, 0, sizeof(seen));
	GOOD(gpumem_close(file));
	CHECK(cu.cuMemcpyDtoH(seen, at, sizeof(seen)) != GM_CUDA_SUCCESS);
	/* The failure does not affect later calls. */
	file = lease("file", O_RDWR);
	expect_device(device_pointer(file, BYTES), 2, 0, BYTES);
	GOOD(gpumem_close(file));
}

static void the_device_address_outlives_unlink(void)
{
	use_gpu();
	int fd = patterned_file("file", 3, BYTES);
	gpumem *file = lease("file", O_RDWR);
	gm_CUdeviceptr at = device_pointer(file, BYTES);

	OK(close(fd));
	OK(unlink("file"));
	fd = patterned_file("another", 4, 4 * BYTES);
	expect_device(at, 3, 0, BYTES);
	MUST(cuMemsetD8(at, 0, BYTES));
	MUST(cuCtxSynchronize());
	GOOD(gpumem_close(file));
	pattern_check(fd, 4, 0, 4 * BYTES);
}

/* --- places --------------------------------------------------------------------------------- */

static void two_mappings_are_one_memory(void)
{
	unsigned char byte;

	use_gpu();
	patterned_file("file", 5, BYTES);
	gpumem *one = lease("file", O_RDWR), *two = lease("file", O_RDWR);
	gm_CUdeviceptr a = device_pointer(one, BYTES), b = device_pointer(two, BYTES);
	unsigned char *host = cpu_pointer(two, BYTES);

	CHECK(a != b);
	MUST(cuMemsetD8(a + 77, 99, 1));
	MUST(cuCtxSynchronize());
	MUST(cuMemcpyDtoH(&byte, b + 77, 1));
	EQUAL(byte, 99);
	EQUAL(host[77], 99);
	GOOD(gpumem_close(one));
	host[78] = 100;
	GOOD(gpumem_flush(two));
	MUST(cuMemcpyDtoH(&byte, b + 78, 1));
	EQUAL(byte, 100);
	GOOD(gpumem_close(two));
}

static void unaligned_stores(void)
{
	int fd = patterned_file("file", 6, BYTES);
	gpumem *file = lease("file", O_RDWR);
	unsigned char *at = cpu_pointer(file, BYTES), text[301];

	for (size_t length = 1; length < sizeof(text); length = length * 3 / 2 + 1) {
		size_t from = 2 * MIB - 100 + length % 7;

		pattern_fill(text, length, length, from);
		memcpy(at + from, text, length);
		GOOD(gpumem_flush(file));
		pattern_check(fd, length, from, length);
		expect_pattern(at, length, from, from + length);
		pattern_check(fd, 6, from - 1000, 1000 - 7);
	}
	GOOD(gpumem_close(file));
	pattern_check(fd, 6, 2 * MIB + 300, 3000);
}

static void unaligned_copies_by_the_gpu(void)
{
	unsigned char text[301];

	use_gpu();
	int fd = patterned_file("file", 7, BYTES);
	gpumem *file = lease("file", O_RDWR);
	gm_CUdeviceptr at = device_pointer(file, BYTES);

	for (size_t length = 1; length < sizeof(text); length = length * 3 / 2 + 1) {
		size_t from = 2 * MIB - 100 + length % 7;

		pattern_fill(text, length, length, from);
		MUST(cuMemcpyHtoD(at + from, text, length));
		MUST(cuCtxSynchronize()); /* returns when the kernel's text may be freed */
		pattern_check(fd, length, from, length);
		expect_device(at, length, from, from + length);
	}
	GOOD(gpumem_close(file));
	pattern_check(fd, 7, 0, 2 * MIB - 100);
	pattern_check(fd, 7, 2 * MIB + 300, 3000);
}

static void tiny_mappings(void)
{
	static const size_t sizes[] = {1, 3, 64, 4095, 4097};
	unsigned char byte;

	use_gpu();
	for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
		char name[32];

		sprintf(name, "file%zu", sizes[i]);
		int beside = patterned_file("beside", 8, sizes[i]);
		patterned_file(name, 9, sizes[i]);
		gpumem *file = lease(name, O_RDWR);
		gm_CUdeviceptr at = device_pointer(file, sizes[i]);
		unsigned char *host = cpu_pointer(file, sizes[i]);

		expect_device(at, 9, 0, sizes[i]);
		host[sizes[i] - 1] = 77;
		GOOD(gpumem_flush(file));
		MUST(cuMemcpyDtoH(&byte, at + sizes[i] - 1, 1));
		EQUAL(byte, 77);
		GOOD(gpumem_close(file));
		pattern_check(beside, 8, 0, sizes[i]);
		OK(close(beside));
		OK(unlink("beside"));
	}
}

/* --- each BAR provider ---------------------------------------------------------------------- */

static void through(const char *provider)
{
	need_gpu();
	/* Enable these BAR providers in the stand-in driver. */
	setenv("GPUMEM_STANDIN_DMABUF", "1", 0);
	setenv("GPUMEM_STANDIN_GDR", "1", 0);
	setenv("GPUMEM_BAR", provider, 1);
	int fd = patterned_file("file", 16, BYTES);
	gpumem *file = lease("file", O_RDWR);
	unsigned char *at = cpu_pointer(file, BYTES), text[1000];

	CHECK(!strcmp(info_of(file).provider, provider));
	expect_ends(at, 16, BYTES);
	pattern_fill(text, sizeof(text), 17, 12345);
	memcpy(at + 12345, text, sizeof(text));
	GOOD(gpumem_flush(file));
	pattern_check(fd, 17, 12345, sizeof(text));
	pattern_check(fd, 16, 20000, BYTES - 20000);
	pattern_write(fd, 18, MIB, 1000);
	expect_pattern(at, 18, MIB, MIB + 1000);
	GOOD(gpumem_close(file));
	CHECK(faults(at));
}

static void through_dmabuf(void)
{
	through("dmabuf");
}

static void through_gdrcopy(void)
{
	through("gdrcopy");
}

static void through_vulkan(void)
{
	through("vulkan");
}

CLIENT_PROG(TEST(the_address_faults_after_close), TEST(the_device_address_ends_with_close),
	    TEST(the_device_address_outlives_unlink), TEST(two_mappings_are_one_memory),
	    TEST(unaligned_stores), TEST(unaligned_copies_by_the_gpu), TEST(tiny_mappings),
	    TEST(through_dmabuf), TEST(through_gdrcopy), TEST(through_vulkan))
