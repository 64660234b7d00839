/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* One kernel over a file's blocks, in the primary context of the GPU. */
#include <errno.h>
#include <stddef.h>
#include <stdlib.h>

#include "client/core/error.h"
#include "client/gpu/cuda/cuda.h"
#include "client/gpu/cuda/kernel.h"

typedef struct gm_CUmod_st *gm_CUmodule;
typedef struct gm_CUfunc_st *gm_CUfunction;

/* clang-format off */
#define KERNEL_FUNCTIONS(X) \
	X(cuModuleLoadData, cuModuleLoadData, (gm_CUmodule *, const void *)) \
	X(cuModuleGetFunction, cuModuleGetFunction, (gm_CUfunction *, gm_CUmodule, const char *)) \
	X(cuModuleUnload, cuModuleUnload, (gm_CUmodule)) \
	X(cuLaunchKernel, cuLaunchKernel, \
	  (gm_CUfunction, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, \
	   gm_CUstream, void **, void **)) \
	X(cuMemAlloc, cuMemAlloc_v2, (gm_CUdeviceptr *, size_t)) \
	X(cuMemFree, cuMemFree_v2, (gm_CUdeviceptr)) \
	X(cuMemcpyDtoH, cuMemcpyDtoH_v2, (void *, gm_CUdeviceptr, size_t))
/* clang-format on */

#define KERNEL_FIELD(field, symbol, arguments) gm_CUresult(*field) arguments;
struct kernel_functions {
	KERNEL_FUNCTIONS(KERNEL_FIELD)
};

/* cuda_kernel_close frees every field that is set. */
struct kernel {
	const struct client_cuda *cuda;
	struct kernel_functions functions;
	unsigned threads, threads_per_block;
	uint64_t blocks;
	gm_CUdevice device;
	gm_CUcontext context;
	gm_CUmodule module;
	gm_CUfunction function;
	gm_CUdeviceptr results;
};

static int kernel_load_driver(struct kernel *kernel)
{
#define KERNEL_ROW(field, symbol, arguments)                                                       \
	{#symbol, offsetof(struct kernel_functions, field), REQUIRED},
	static const struct driver_symbol symbols[] = {KERNEL_FUNCTIONS(KERNEL_ROW)};
	char reason[160];
	void *library;

	int rc = client_cuda_get(&kernel->cuda);
	if (rc < 0)
		return rc;
	if (driver_load("libcuda.so.1", symbols, sizeof(symbols) / sizeof(symbols[0]),
			&kernel->functions, reason, sizeof(reason), &library) < 0)
		return client_fail(ENODEV, "%s", reason);
	return client_cuda_result(kernel->cuda, kernel->cuda->cu.cuInit(0), "cuInit");
}

static int kernel_set_context(struct kernel *kernel, const uint8_t uuid[16])
{
	const struct cuda_driver *cu = &kernel->cuda->cu;
	gm_CUcontext context = NULL;

	int rc = client_cuda_find(kernel->cuda, uuid, &kernel->device);
	if (rc == 0)
		rc = client_cuda_context_result(
		    kernel->cuda, kernel->device,
		    cu->cuDevicePrimaryCtxRetain(&context, kernel->device));
	if (rc < 0)
		return rc;
	kernel->context = context;
	return client_cuda_result(kernel->cuda, cu->cuCtxSetCurrent(context), "cuCtxSetCurrent");
}

static int kernel_load(struct kernel *kernel, const char *image, const char *name)
{
	const struct kernel_functions *functions = &kernel->functions;

	int rc = client_cuda_result(
	    kernel->cuda, functions->cuModuleLoadData(&kernel->module, image), "cuModuleLoadData");
	if (rc == 0)
		rc = client_cuda_result(
		    kernel->cuda,
		    functions->cuModuleGetFunction(&kernel->function, kernel->module, name),
		    "cuModuleGetFunction");
	if (rc == 0)
		rc = client_cuda_result(
		    kernel->cuda,
		    functions->cuMemAlloc(&kernel->results, kernel->blocks * sizeof(uint64_t)),
		    "cuMemAlloc");
	return rc;
}

int cuda_kernel_open(const struct client_gpu_kernel *kernel, const uint8_t uuid[16],
		     uint64_t blocks, void **state)
{
	struct kernel *new_kernel = calloc(1, sizeof(*new_kernel));

	if (!new_kernel)
		return client_fail(ENOMEM, "no memory");
	new_kernel->threads = kernel->threads;
	new_kernel->threads_per_block = kernel->threads_per_block;
	new_kernel->blocks = blocks;
	int rc = kernel_load_driver(new_kernel);
	if (rc == 0)
		rc = kernel_set_context(new_kernel, uuid);
	if (rc == 0)
		rc = kernel_load(new_kernel, kernel->image, kernel->name);
	if (rc < 0)
		cuda_kernel_close(new_kernel);
	else
		*state = new_kernel;
	return rc;
}

int cuda_kernel_run(void *state, uint64_t address, uint64_t *results)
{
	struct kernel *kernel = state;
	const struct kernel_functions *functions = &kernel->functions;
	uint64_t blocks_per_group = kernel->threads / kernel->threads_per_block;
	uint64_t groups = (kernel->blocks + blocks_per_group - 1) / blocks_per_group;
	void *arguments[] = {&address, &kernel->results, &kernel->blocks};

	if (groups > INT32_MAX)
		return client_fail(EFBIG, "the file has more blocks than one launch can take");
	int rc = client_cuda_result(kernel->cuda,
				    functions->cuLaunchKernel(kernel->function, (unsigned)groups, 1,
							      1, kernel->threads, 1, 1, 0, NULL,
							      arguments, NULL),
				    "cuLaunchKernel");
	/* The copy is in the kernel's stream, and so waits for the kernel. */
	if (rc == 0)
		rc = client_cuda_result(kernel->cuda,
					functions->cuMemcpyDtoH(results, kernel->results,
								kernel->blocks * sizeof(*results)),
					"cuMemcpyDtoH");
	return rc;
}

void cuda_kernel_close(void *state)
{
	struct kernel *kernel = state;

	if (kernel->results)
		kernel->functions.cuMemFree(kernel->results);
	if (kernel->module)
		kernel->functions.cuModuleUnload(kernel->module);
	if (kernel->context)
		kernel->cuda->cu.cuDevicePrimaryCtxRelease(kernel->device);
	free(kernel);
}
