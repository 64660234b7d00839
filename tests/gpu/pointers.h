/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* Code shared by pointers.c and sharers.c: programs that use libgpumem with a CUDA context of their
 * own. The programs print lines with a name and a value. On a machine that lacks a needed feature a
 * program ends with POINTERS_ABSENT, and the last line of standard error names the feature. */
#ifndef TESTS_GPU_POINTERS_H
#define TESTS_GPU_POINTERS_H

#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "backend/cuda/driver/driver.h"
#include "client/lib/gpumem.h"
#include "common/number.h"
#include "tests/bench/measure.h"

#define POINTERS_ABSENT 77

typedef struct gm_CUmod_st *gm_CUmodule;
typedef struct gm_CUfunc_st *gm_CUfunction;

/* clang-format off */
#define POINTERS_FUNCTIONS(X) \
	X(REQUIRED, cuMemcpyDtoH, cuMemcpyDtoH_v2, (void *, gm_CUdeviceptr, size_t)) \
	X(OPTIONAL, cuMemAlloc, cuMemAlloc_v2, (gm_CUdeviceptr *, size_t)) \
	X(OPTIONAL, cuMemFree, cuMemFree_v2, (gm_CUdeviceptr)) \
	X(OPTIONAL, cuMemcpyHtoD, cuMemcpyHtoD_v2, (gm_CUdeviceptr, const void *, size_t)) \
	X(OPTIONAL, cuModuleLoadData, cuModuleLoadData, (gm_CUmodule *, const void *)) \
	X(OPTIONAL, cuModuleGetFunction, cuModuleGetFunction, \
	  (gm_CUfunction *, gm_CUmodule, const char *)) \
	X(OPTIONAL, cuModuleUnload, cuModuleUnload, (gm_CUmodule)) \
	X(OPTIONAL, cuLaunchKernel, cuLaunchKernel, \
	  (gm_CUfunction, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, \
	   gm_CUstream, void **, void **))
/* clang-format on */

#define POINTERS_FIELD(need, field, symbol, arguments) gm_CUresult(*field) arguments;
struct gpu {
	struct cuda_driver cu;
	CUDA_CLIENT_FUNCTIONS(POINTERS_FIELD)
	POINTERS_FUNCTIONS(POINTERS_FIELD)
	gm_CUdevice device;
};

/* Ends the program with a message. */
#define FAIL(format, ...)                                                                          \
	do {                                                                                       \
		fprintf(stderr, format "\n", ##__VA_ARGS__);                                       \
		exit(1);                                                                           \
	} while (0)

#define MUST(call)                                                                                 \
	do {                                                                                       \
		gm_CUresult result_ = (call);                                                      \
		if (result_ != GM_CUDA_SUCCESS)                                                    \
			FAIL("%s: CUDA error %d", #call, (int)result_);                            \
	} while (0)

/* A call of libgpumem that must succeed. */
#define GOOD(call)                                                                                 \
	do {                                                                                       \
		if ((call) != 0)                                                                   \
			FAIL("%s: %s", #call, gpumem_error());                                     \
	} while (0)

static inline uint64_t number(const char *text, uint64_t most)
{
	uint64_t value;

	if (parse_u64(text, 0, most, &value) < 0)
		FAIL("%s is no number up to %llu", text, (unsigned long long)most);
	return value;
}

static inline gpumem *lease(const char *path)
{
	gpumem *file = gpumem_open(path, O_RDWR);

	if (!file)
		FAIL("gpumem_open: %s", gpumem_error());
	return file;
}

static inline struct gpumem_info info_of(gpumem *file)
{
	struct gpumem_info info = {.bytes = sizeof(info)};

	GOOD(gpumem_get_info(file, &info));
	return info;
}

static inline gm_CUdeviceptr device_pointer(gpumem *file)
{
	unsigned long long address;

	GOOD(gpumem_map_device(file, &address, NULL));
	return address;
}

/* --- the GPU of a file ---------------------------------------------------------------------- */

/* Loads libcuda and finds the device with this UUID; creates no context. */
static inline void gpu_open(struct gpu *gpu, const uint8_t uuid[16])
{
#define POINTERS_ROW(need, field, symbol, arguments) {#symbol, offsetof(struct gpu, field), need},
	static const struct driver_symbol symbols[] = {CUDA_CLIENT_FUNCTIONS(POINTERS_ROW)
							   POINTERS_FUNCTIONS(POINTERS_ROW)};
	char why[160];
	void *library;
	int count;

	if (driver_load_cuda(&gpu->cu, why, sizeof(why)) < 0 ||
	    driver_load("libcuda.so.1", symbols, sizeof(symbols) / sizeof(symbols[0]), gpu, why,
			sizeof(why), &library) < 0)
		FAIL("%s", why);
	MUST(gpu->cu.cuInit(0));
	MUST(gpu->cu.cuDeviceGetCount(&count));
	for (int i = 0; i < count; i++) {
		gm_CUuuid of;

		MUST(gpu->cu.cuDeviceGet(&gpu->device, i));
		MUST(gpu->cu.cuDeviceGetUuid(&of, gpu->device));
		if (memcmp(of.bytes, uuid, sizeof(of.bytes)) == 0)
			return;
	}
	FAIL("CUDA has no device with the file's UUID");
}

/* Like gpu_open, and makes the primary context current. */
static inline void gpu_use(struct gpu *gpu, const uint8_t uuid[16])
{
	gm_CUcontext context;

	gpu_open(gpu, uuid);
	MUST(gpu->cu.cuDevicePrimaryCtxRetain(&context, gpu->device));
	MUST(gpu->cu.cuCtxSetCurrent(context));
}

/* --- a pattern that depends on the position, and how many of its words a reader sees ---------- */

#define PATTERN_STEP 0x9e3779b1U

static inline void pattern_fill(uint32_t *words, uint64_t from, uint64_t n, uint32_t seed)
{
	for (uint64_t i = 0; i < n; i++)
		words[i] = (uint32_t)(from + i) * PATTERN_STEP + seed;
}

static inline uint64_t pattern_count(const uint32_t *words, uint64_t from, uint64_t n,
				     uint32_t seed)
{
	uint64_t right = 0;

	for (uint64_t i = 0; i < n; i++)
		right += words[i] == (uint32_t)(from + i) * PATTERN_STEP + seed;
	return right;
}

/* Counts the right words that a copy by the GPU delivers. */
static inline uint64_t count_by_copy(struct gpu *gpu, gm_CUdeviceptr at, uint64_t n, uint32_t seed)
{
	uint32_t *words = malloc(n * sizeof(*words));

	if (!words)
		FAIL("no memory");
	MUST(gpu->cuMemcpyDtoH(words, at, n * sizeof(*words)));
	uint64_t right = pattern_count(words, 0, n, seed);

	free(words);
	return right;
}

static const char count_kernel[] = ".version 6.3\n.target sm_75\n.address_size 64\n"
				   ".visible .entry count(.param .u64 at, .param .u64 n,\n"
				   "                      .param .u32 seed, .param .u64 right)\n"
				   "{\n"
				   ".reg .pred %p<3>;\n.reg .b32 %r<8>;\n.reg .b64 %d<6>;\n"
				   "ld.param.u64 %d1, [at];\n"
				   "ld.param.u64 %d2, [n];\n"
				   "ld.param.u32 %r5, [seed];\n"
				   "ld.param.u64 %d5, [right];\n"
				   "mov.u32 %r1, %ctaid.x;\n"
				   "mov.u32 %r2, %ntid.x;\n"
				   "mov.u32 %r3, %tid.x;\n"
				   "cvt.u64.u32 %d4, %r3;\n"
				   "mad.wide.u32 %d3, %r1, %r2, %d4;\n"
				   "setp.ge.u64 %p1, %d3, %d2;\n"
				   "@%p1 bra done;\n"
				   "cvt.u32.u64 %r6, %d3;\n"
				   "mov.u32 %r7, 0x9e3779b1;\n"
				   "mad.lo.u32 %r6, %r6, %r7, %r5;\n"
				   "cvta.to.global.u64 %d1, %d1;\n"
				   "shl.b64 %d3, %d3, 2;\n"
				   "add.s64 %d1, %d1, %d3;\n"
				   "ld.global.u32 %r4, [%d1];\n"
				   "setp.ne.u32 %p2, %r4, %r6;\n"
				   "@%p2 bra done;\n"
				   "cvta.to.global.u64 %d5, %d5;\n"
				   "red.global.add.u32 [%d5], 1;\n"
				   "done:\nret;\n"
				   "}\n";

/* Counts the right words that a kernel sees. false: this libcuda runs no kernels. */
static inline bool count_by_kernel(struct gpu *gpu, gm_CUdeviceptr at, uint64_t n, uint32_t seed,
				   uint64_t *right)
{
	enum { THREADS = 256 };
	gm_CUfunction function;
	gm_CUdeviceptr counter;
	gm_CUmodule module;
	uint32_t count = 0;
	void *arguments[] = {&at, &n, &seed, &counter};

	if (!gpu->cuModuleLoadData || !gpu->cuModuleGetFunction || !gpu->cuLaunchKernel ||
	    !gpu->cuModuleUnload || !gpu->cuMemAlloc || !gpu->cuMemFree || !gpu->cuMemcpyHtoD)
		return false;
	gm_CUresult loaded = gpu->cuModuleLoadData(&module, count_kernel);

	if (loaded == GM_CUDA_ERROR_NOT_SUPPORTED)
		return false;
	MUST(loaded);
	MUST(gpu->cuModuleGetFunction(&function, module, "count"));
	MUST(gpu->cuMemAlloc(&counter, sizeof(count)));
	MUST(gpu->cuMemcpyHtoD(counter, &count, sizeof(count)));
	MUST(gpu->cuLaunchKernel(function, (unsigned)((n + THREADS - 1) / THREADS), 1, 1, THREADS,
				 1, 1, 0, NULL, arguments, NULL));
	MUST(gpu->cuMemcpyDtoH(&count, counter, sizeof(count)));
	MUST(gpu->cuMemFree(counter));
	MUST(gpu->cuModuleUnload(module));
	*right = count;
	return true;
}

/* Prints the counts of the copy and of the kernel as lines. */
static inline void print_counts(struct gpu *gpu, gm_CUdeviceptr at, uint64_t n, uint32_t seed)
{
	uint64_t right;

	printf("words %llu\n", (unsigned long long)n);
	printf("copy %llu\n", (unsigned long long)count_by_copy(gpu, at, n, seed));
	if (count_by_kernel(gpu, at, n, seed, &right))
		printf("kernel %llu\n", (unsigned long long)right);
}

/* The UUID of a folder's GPU. */
static inline void uuid_find(const char *folder, uint8_t uuid[16])
{
	char path[4096];

	snprintf(path, sizeof(path), "%s/uuid", folder);
	gpumem *file = gpumem_create(path, 4096, 0, 0600, 0);

	if (!file)
		FAIL("gpumem_create: %s", gpumem_error());
	struct gpumem_info info = info_of(file);

	memcpy(uuid, info.uuid, sizeof(info.uuid));
	GOOD(gpumem_close(file));
	unlink(path);
}

#endif
