/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* Shared by the tests of libgpumem that need a GPU. Tests that the machine cannot run are skipped
 * with the reason. */
#ifndef TESTS_MOUNT_CLIENT_GPU_H
#define TESTS_MOUNT_CLIENT_GPU_H

#include <dlfcn.h>

#include "backend/cuda/driver/abi.h"
#include "tests/mount/client.h"

/* clang-format off */
#define FUNCTIONS(X) \
	X(cuInit, cuInit, (unsigned)) \
	X(cuDeviceGetCount, cuDeviceGetCount, (int *)) \
	X(cuDevicePrimaryCtxRetain, cuDevicePrimaryCtxRetain, (gm_CUcontext *, gm_CUdevice)) \
	X(cuDevicePrimaryCtxRelease, cuDevicePrimaryCtxRelease_v2, (gm_CUdevice)) \
	X(cuCtxSetCurrent, cuCtxSetCurrent, (gm_CUcontext)) \
	X(cuCtxSynchronize, cuCtxSynchronize, (void)) \
	X(cuMemcpyDtoH, cuMemcpyDtoH_v2, (void *, gm_CUdeviceptr, size_t)) \
	X(cuMemcpyHtoD, cuMemcpyHtoD_v2, (gm_CUdeviceptr, const void *, size_t)) \
	X(cuMemsetD8, cuMemsetD8_v2, (gm_CUdeviceptr, unsigned char, size_t)) \
	X(cuStreamCreate, cuStreamCreate, (gm_CUstream *, unsigned)) \
	X(cuStreamDestroy, cuStreamDestroy_v2, (gm_CUstream)) \
	X(cuStreamQuery, cuStreamQuery, (gm_CUstream)) \
	X(cuStreamSynchronize, cuStreamSynchronize, (gm_CUstream)) \
	X(cuMemAddressReserve, cuMemAddressReserve, \
	  (gm_CUdeviceptr *, size_t, size_t, gm_CUdeviceptr, unsigned long long)) \
	X(cuMemAddressFree, cuMemAddressFree, (gm_CUdeviceptr, size_t)) \
	X(cuMemImportFromShareableHandle, cuMemImportFromShareableHandle, \
	  (gm_CUmemGenericAllocationHandle *, void *, gm_CUmemAllocationHandleType)) \
	X(cuMemMap, cuMemMap, \
	  (gm_CUdeviceptr, size_t, size_t, gm_CUmemGenericAllocationHandle, unsigned long long)) \
	X(cuMemUnmap, cuMemUnmap, (gm_CUdeviceptr, size_t)) \
	X(cuMemRelease, cuMemRelease, (gm_CUmemGenericAllocationHandle)) \
	X(cuMemSetAccess, cuMemSetAccess, \
	  (gm_CUdeviceptr, size_t, const gm_CUmemAccessDesc *, size_t))
/* clang-format on */

#define FIELD(field, symbol, arguments) gm_CUresult(*field) arguments;
static struct {
	FUNCTIONS(FIELD)
} cu;
static gm_CUcontext context;

#define MUST(call) EQUAL(cu.call, 0)

static inline void need_gpu(void)
{
	if (!on_gpu())
		SKIP("no GPU's memory here");
}

static inline void load_cuda(void)
{
	need_gpu();
	void *library = dlopen("libcuda.so.1", RTLD_NOW);

	if (!library)
		FAIL("%s", dlerror());
#define FIND(field, symbol, arguments) *(void **)&cu.field = dlsym(library, #symbol);
	FUNCTIONS(FIND)
}

/* A context of this process. A GPU in exclusive-process mode gives this process no context, because
 * the daemon has it. */
static inline void use_gpu_number(int device)
{
	load_cuda();
	MUST(cuInit(0));
	gm_CUresult result = cu.cuDevicePrimaryCtxRetain(&context, device);
	if (result == GM_CUDA_ERROR_DEVICE_UNAVAILABLE)
		SKIP("the GPU's compute mode allows no second process a context");
	EQUAL(result, 0);
	MUST(cuCtxSetCurrent(context));
}

static inline void use_gpu(void)
{
	use_gpu_number(0);
}

/* The CPU pointer of the file; skips if the GPU's memory has no CPU pointer. */
static inline unsigned char *cpu_pointer(gpumem *file, size_t wanted)
{
	void *address;
	size_t bytes;

	if (gpumem_map_host(file, &address, &bytes) < 0) {
		if (!on_gpu() || errno != ENOTSUP)
			FAIL("gpumem_map_host: %s", gpumem_error());
		SKIP(gpumem_error());
	}
	EQUAL(bytes, wanted);
	return address;
}

/* Runs the work in a child, for tests whose parent must not use CUDA before a fork. Skips if the
 * child cannot do the work. */
static inline void need_in_children(void (*work)(void))
{
	int status;
	pid_t pid = OK(fork());

	if (pid == 0) {
		work();
		fflush(stdout);
		_exit(prog_failures ? 1 : 0);
	}
	OK(waitpid(pid, &status, 0));
	if (WIFEXITED(status) && WEXITSTATUS(status) == EXIT_SKIP)
		_exit(EXIT_SKIP); /* the child printed the reason */
	EQUAL(status, 0);
}

static inline gm_CUdeviceptr device_pointer(gpumem *file, size_t wanted)
{
	unsigned long long address;
	size_t bytes;

	GOOD(gpumem_map_device(file, &address, &bytes));
	EQUAL(bytes, wanted);
	return address;
}

static inline void expect_device(gm_CUdeviceptr at, uint64_t seed, size_t from, size_t to)
{
	unsigned char *seen = malloc(to - from);

	MUST(cuMemcpyDtoH(seen, at + from, to - from));
	expect_pattern(seen - from, seed, from, to);
	free(seen);
}

/* Compares only the ends of the range, because each load through a BAR takes a microsecond. */
static inline void expect_ends(const unsigned char *at, uint64_t seed, size_t bytes)
{
	expect_pattern(at, seed, 0, 500);
	expect_pattern(at, seed, bytes - 500, bytes);
}

#endif
