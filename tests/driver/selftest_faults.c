/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* Tests of injected faults, and of the leak line at the end of the process. */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tests/driver/selftest.h"

static CUresult create(int device)
{
	CUmemAllocationProp prop = prop_of(device);
	CUmemGenericAllocationHandle handle;

	return cuMemCreate(&handle, 2 * MIB, &prop, 0);
}

START_TEST(a_call_fails_once)
{
	setenv("GPUMEM_STANDIN_FAULT", "cuMemCreate@2=OUT_OF_MEMORY", 1);
	use_device(0);
	ck_cuda(create(0));
	ck_cuda_is(create(0), OUT_OF_MEMORY);
	ck_cuda(create(0));
}
END_TEST

START_TEST(a_call_fails_from_then_on)
{
	setenv("GPUMEM_STANDIN_FAULT", "cuMemCreate@2=OUT_OF_MEMORY+", 1);
	use_device(0);
	ck_cuda(create(0));
	ck_cuda_is(create(0), OUT_OF_MEMORY);
	ck_cuda_is(create(0), OUT_OF_MEMORY);
}
END_TEST

START_TEST(an_uncorrectable_error_ends_its_device_only)
{
	static char host[64];

	setenv("GPUMEM_STANDIN_FAULT", "cuMemcpyHtoDAsync@2=CUDA_ERROR_ECC_UNCORRECTABLE", 1);
	use_device(0);
	struct chunk chunk = chunk_new(0, 2 * MIB);
	ck_cuda(cuMemcpyHtoDAsync_v2(chunk.address, host, 64, NULL));
	ck_cuda_is(cuMemcpyHtoDAsync_v2(chunk.address, host, 64, NULL), ECC_UNCORRECTABLE);
	ck_cuda_is(cuMemcpyDtoH_v2(host, chunk.address, 64), ECC_UNCORRECTABLE);
	ck_cuda_is(cuCtxSynchronize(), ECC_UNCORRECTABLE);
	/* Calls that need no context go on. */
	ck_cuda(create(0));
	chunk_free(&chunk);

	CUcontext other;
	ck_cuda(cuCtxSetCurrent(NULL));
	ck_cuda(cuDevicePrimaryCtxRetain(&other, 1));
	ck_cuda(cuCtxSetCurrent(other));
	chunk = chunk_new(1, 2 * MIB);
	ck_cuda(cuMemcpyHtoD_v2(chunk.address, host, 64));
}
END_TEST

/* Mappings belong to the process and survive the context. */
/* The device of the stream counts, not the one of the thread's context. A sanitizer notices what
 * such a call would leave behind. */
START_TEST(a_stream_of_a_failed_device_refuses_work)
{
	static char host[64];
	CUcontext other;
	CUstream stream;

	setenv("GPUMEM_STANDIN_FAULT", "cuMemcpyHtoDAsync@1=CUDA_ERROR_ECC_UNCORRECTABLE", 1);
	use_device(0);
	ck_cuda(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
	struct chunk chunk = chunk_new(0, 2 * MIB);
	ck_cuda_is(cuMemcpyHtoDAsync_v2(chunk.address, host, 64, stream), ECC_UNCORRECTABLE);

	ck_cuda(cuDevicePrimaryCtxRetain(&other, 1));
	ck_cuda(cuCtxSetCurrent(other));
	ck_cuda_is(cuMemcpyHtoDAsync_v2(chunk.address, host, 64, stream), ECC_UNCORRECTABLE);
	ck_cuda_is(cuStreamSynchronize(stream), ECC_UNCORRECTABLE);
	cuStreamDestroy_v2(stream);
	chunk_free(&chunk);
}
END_TEST

START_TEST(an_error_passes_with_the_primary_context)
{
	char seen[64], wanted[64] = "written before";

	setenv("GPUMEM_STANDIN_FAULT", "cuMemcpyHtoD@2=LAUNCH_FAILED~", 1);
	use_device(0);
	struct chunk chunk = chunk_new(0, 2 * MIB);
	ck_cuda(cuMemcpyHtoD_v2(chunk.address, wanted, 64));
	ck_cuda_is(cuMemcpyHtoD_v2(chunk.address, wanted, 64), LAUNCH_FAILED);
	ck_cuda_is(cuMemcpyDtoH_v2(seen, chunk.address, 64), LAUNCH_FAILED);
	ck_cuda(cuCtxSetCurrent(NULL));
	ck_cuda(cuDevicePrimaryCtxRelease_v2(0));
	use_device(0);
	ck_cuda(cuMemcpyDtoH_v2(seen, chunk.address, 64));
	ck_assert_str_eq(seen, wanted);
}
END_TEST

START_TEST(bad_memory_is_found_by_who_reads_it)
{
	char host[64] = "";

	setenv("GPUMEM_STANDIN_FAULT", "memory2=ECC_UNCORRECTABLE+~", 1);
	use_device(0);
	struct chunk good = chunk_new(0, 2 * MIB), bad = chunk_new(0, 2 * MIB);
	ck_cuda(cuMemcpyHtoD_v2(bad.address, host, 64));
	ck_cuda(cuMemcpyDtoH_v2(host, good.address, 64));
	for (unsigned round = 0; round < 2; round++) {
		ck_cuda_is(cuMemcpyDtoH_v2(host, bad.address, 64), ECC_UNCORRECTABLE);
		ck_cuda_is(cuMemcpyDtoH_v2(host, good.address, 64), ECC_UNCORRECTABLE);
		ck_cuda(cuCtxSetCurrent(NULL));
		ck_cuda(cuDevicePrimaryCtxRelease_v2(0));
		use_device(0);
		ck_cuda(cuMemcpyDtoH_v2(host, good.address, 64));
	}
}
END_TEST

/* The next call that waits for the queued work returns the error. */
START_TEST(a_device_is_lost_in_the_middle_of_work)
{
	CUstream stream;

	setenv("GPUMEM_STANDIN_FAULT", "device0@3=DEVICE_LOST", 1);
	use_device(0);
	struct chunk chunk = chunk_new(0, 2 * MIB); /* the first operation */
	ck_cuda(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
	ck_cuda(cuMemsetD8Async(chunk.address, 1, 4096, stream));
	ck_cuda(cuStreamSynchronize(stream));
	ck_cuda(cuMemsetD8Async(chunk.address, 2, 4096, stream));
	ck_cuda_is(cuStreamSynchronize(stream), UNKNOWN);
	ck_cuda_is(cuStreamQuery(stream), UNKNOWN);
	/* On a lost device every call fails, but calls that free an object still free the object.
	 */
	ck_cuda_is(create(0), UNKNOWN);
	ck_cuda_is(cuMemUnmap(chunk.address, chunk.size), UNKNOWN);
	ck_cuda_is(cuMemUnmap(chunk.address, chunk.size), INVALID_VALUE);
	ck_cuda(create(1));
}
END_TEST

START_TEST(a_file_brings_faults_to_a_running_program)
{
	char path[] = "/tmp/standin-faults-XXXXXX";
	int fd = mkstemp(path);

	ck_assert_int_ge(fd, 0);
	setenv("GPUMEM_STANDIN_FAULT_FILE", path, 1);
	use_device(0);
	ck_cuda(create(0));
	ck_assert_int_gt(dprintf(fd, "# no memory\ncuMemCreate=OUT_OF_MEMORY+\n"), 0);
	ck_cuda_is(create(0), OUT_OF_MEMORY);
	ck_assert_int_eq(ftruncate(fd, 0), 0);
	usleep(20000); /* a file's time stamp has the resolution of the clock tick */
	ck_assert_int_eq(pwrite(fd, "#\n", 2, 0), 2);
	ck_cuda(create(0));
	unlink(path);
	close(fd);
}
END_TEST

static void clean(void)
{
	use_device(0);
	struct chunk chunk = chunk_new(0, 2 * MIB);
	void *host = pinned_new(4096, 0);
	CUstream stream;

	ck_cuda(cuStreamCreate(&stream, 0));
	ck_cuda(cuMemcpyHtoDAsync_v2(chunk.address, host, 4096, stream));
	ck_cuda(cuStreamSynchronize(stream));
	ck_cuda(cuStreamDestroy_v2(stream));
	pinned_free(host, 4096);
	chunk_free(&chunk);
	ck_cuda(cuDevicePrimaryCtxRelease_v2(0));
}

static void untidy(void)
{
	CUmemAllocationProp prop = host_prop();
	CUmemGenericAllocationHandle handle;
	static char host[64];

	use_device(0);
	struct chunk chunk = chunk_new(0, 4 * MIB);
	ck_cuda(cuMemRelease(chunk.handle));
	ck_cuda(cuMemCreate(&handle, 2 * MIB, &prop, 0));
	pinned_new(4096, 0);
	ck_cuda(cuMemcpyHtoDAsync_v2(chunk.address, host, 64, NULL));
}

START_TEST(what_is_left_is_told)
{
	char line[512];

	leak_line(clean, line, sizeof(line));
	ck_assert_ptr_nonnull(strstr(line, "memory=0 handles=0 mappings=0 reservations=0 pinned=0 "
					   "streams=0 events=0 contexts=0 pageable_copies=0 "
					   "violations=0"));
	leak_line(untidy, line, sizeof(line));
	ck_assert_ptr_nonnull(strstr(line, "memory=6291456 handles=1 mappings=1 reservations=1 "
					   "pinned=1 streams=0 events=0 contexts=1 "
					   "pageable_copies=1 violations=0"));
}
END_TEST

/* The memory is unmapped before the copy runs, as by a program that frees memory too early. */
START_TEST(memory_that_goes_before_its_copy_is_a_violation)
{
	static char host[64];

	setenv("GPUMEM_STANDIN_DELAY_US", "50000", 1);
	use_device(0);
	struct chunk chunk = chunk_new(0, 2 * MIB);
	ck_cuda(cuMemcpyHtoDAsync_v2(chunk.address, host, 64, NULL));
	ck_cuda(cuMemUnmap(chunk.address, chunk.size));
	ck_cuda_is(cuStreamSynchronize(NULL), ILLEGAL_ADDRESS);
	ck_cuda_is(cuCtxSynchronize(), ILLEGAL_ADDRESS);

	CUcontext other;
	ck_cuda(cuDevicePrimaryCtxRetain(&other, 1));
	ck_cuda(cuCtxSetCurrent(other));
	ck_cuda_is(cuCtxSynchronize(), ILLEGAL_ADDRESS);
}
END_TEST

Suite *faults_suite(void)
{
	Suite *suite = suite_create("faults");
	TCase *tc = tcase_create("faults");

	tcase_set_timeout(tc, 60);
	tcase_add_test(tc, a_call_fails_once);
	tcase_add_test(tc, a_call_fails_from_then_on);
	tcase_add_test(tc, an_uncorrectable_error_ends_its_device_only);
	tcase_add_test(tc, a_stream_of_a_failed_device_refuses_work);
	tcase_add_test(tc, an_error_passes_with_the_primary_context);
	tcase_add_test(tc, bad_memory_is_found_by_who_reads_it);
	tcase_add_test(tc, a_device_is_lost_in_the_middle_of_work);
	tcase_add_test(tc, a_file_brings_faults_to_a_running_program);
	tcase_add_test(tc, what_is_left_is_told);
	tcase_add_test(tc, memory_that_goes_before_its_copy_is_a_violation);
	suite_add_tcase(suite, tc);
	return suite;
}
