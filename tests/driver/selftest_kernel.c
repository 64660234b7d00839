/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* Tests of the only simulated kernel: the contexts and arguments of a launch, and the memory that
 * the kernel touches. */
#include <stdlib.h>
#include <string.h>

#include "tests/driver/selftest.h"

#define BLOCK 65536
#define FILL  0xA5A5A5A5A5A5A5A5ULL /* the fill byte of new memory */

static const char module_text[] =
    ".visible .entry tree_blocks(\n\t.param .u64 from,\n\t.param .u64 sums,\n\t.param .u64 blocks)";

static CUfunction kernel(void)
{
	CUfunction function;
	CUmodule module;

	ck_cuda(cuModuleLoadData(&module, module_text));
	ck_cuda_is(cuModuleGetFunction(&function, module, "pong"), NOT_FOUND);
	ck_cuda(cuModuleGetFunction(&function, module, "tree_blocks"));
	return function;
}

static CUresult launch(unsigned groups, unsigned threads, CUdeviceptr from, CUdeviceptr sums,
		       uint64_t blocks)
{
	void *parameters[] = {&from, &sums, &blocks};

	return cuLaunchKernel(kernel(), groups, 1, 1, threads, 1, 1, 0, NULL, parameters, NULL);
}

START_TEST(other_modules_are_refused)
{
	CUmodule module;

	use_device(0);
	ck_cuda_is(cuModuleLoadData(&module, ".visible .entry pong(.param .u64 flag)"),
		   NOT_SUPPORTED);
	ck_cuda_is(cuModuleLoadData(&module, ".visible .entry tree_blocks(.param .u64 sums, "
					     ".param .u64 from, .param .u64 blocks)"),
		   NOT_SUPPORTED);
	ck_cuda(cuModuleLoadData(&module, module_text));
	ck_cuda(cuModuleUnload(module));
	ck_cuda_is(cuModuleUnload(NULL), INVALID_HANDLE);
}
END_TEST

START_TEST(kernels_can_be_turned_off)
{
	CUmodule module;

	setenv("GPUMEM_STANDIN_KERNELS", "0", 1);
	use_device(0);
	ck_cuda_is(cuModuleLoadData(&module, module_text), NOT_SUPPORTED);
}
END_TEST

START_TEST(launches_that_cannot_be)
{
	use_device(0);
	struct chunk chunk = chunk_new(0, 2 * MIB);

	ck_cuda_is(launch(0, 32, chunk.address, chunk.address, 1), INVALID_VALUE);
	ck_cuda_is(launch(1, 0, chunk.address, chunk.address, 1), INVALID_VALUE);
	ck_cuda_is(launch(1, 33, chunk.address, chunk.address, 1), INVALID_VALUE);
	ck_cuda_is(launch(1, 288, chunk.address, chunk.address, 1), INVALID_VALUE);
	ck_cuda_is(cuLaunchKernel(NULL, 1, 1, 1, 32, 1, 1, 0, NULL, NULL, NULL), INVALID_HANDLE);
	chunk_free(&chunk);
}
END_TEST

/* The kernel writes a sum per block, or a sum per warp if there are fewer warps than blocks. */
START_TEST(it_writes_its_sums)
{
	uint64_t sums[4], fewer[4];

	use_device(0);
	struct chunk chunk = chunk_new(0, 2 * MIB), to = chunk_new(0, 2 * MIB);
	ck_cuda(cuMemsetD8_v2(chunk.address + BLOCK, 1, BLOCK));
	ck_cuda(launch(1, 256, chunk.address, to.address, 3));
	ck_cuda(cuMemcpyDtoH_v2(sums, to.address, sizeof(sums)));
	ck_assert_uint_eq(sums[0], sums[2]);
	ck_assert_uint_ne(sums[0], sums[1]);
	ck_assert_uint_ne(sums[0], FILL);
	ck_assert_uint_eq(sums[3], FILL);
	ck_cuda(launch(1, 64, chunk.address + BLOCK, to.address + MIB, 4));
	ck_cuda(cuMemcpyDtoH_v2(fewer, to.address + MIB, sizeof(fewer)));
	ck_assert_uint_eq(fewer[0], sums[1]);
	ck_assert_uint_eq(fewer[1], sums[2]);
	ck_assert_uint_eq(fewer[2], FILL);
	chunk_free(&chunk);
	chunk_free(&to);
}
END_TEST

START_TEST(it_lies_in_one_place)
{
	uint64_t sums[4];

	setenv("GPUMEM_STANDIN_KERNELS", "lie", 1);
	use_device(0);
	struct chunk chunk = chunk_new(0, 2 * MIB), to = chunk_new(0, 2 * MIB);
	ck_cuda(launch(1, 256, chunk.address, to.address, 4));
	ck_cuda(cuMemcpyDtoH_v2(sums, to.address, sizeof(sums)));
	ck_assert_uint_eq(sums[0], sums[1]);
	ck_assert_uint_ne(sums[0], sums[2]);
	ck_assert_uint_eq(sums[0], sums[3]);
	chunk_free(&chunk);
	chunk_free(&to);
}
END_TEST

/* Memory that is not mapped, or not accessible to the device, is found when the kernel runs. */
START_TEST(it_may_not_read_anything)
{
	use_device(0);
	struct chunk chunk = chunk_new(0, 2 * MIB), to = chunk_new(0, 2 * MIB);

	ck_cuda(launch(1, 256, chunk.address + 2 * MIB - BLOCK, to.address, 2));
	ck_cuda_is(cuCtxSynchronize(), ILLEGAL_ADDRESS);
}
END_TEST

Suite *kernel_suite(void)
{
	Suite *suite = suite_create("kernel");
	TCase *tests = tcase_create("kernel");

	tcase_add_test(tests, other_modules_are_refused);
	tcase_add_test(tests, kernels_can_be_turned_off);
	tcase_add_test(tests, launches_that_cannot_be);
	tcase_add_test(tests, it_writes_its_sums);
	tcase_add_test(tests, it_lies_in_one_place);
	tcase_add_test(tests, it_may_not_read_anything);
	suite_add_tcase(suite, tests);
	return suite;
}
