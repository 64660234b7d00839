/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* The blocks of a file by the GPU that it is on: its memory is mapped as any process may map it,
 * and nothing of it crosses the bus but the sums. */
#include <errno.h>
#include <stddef.h>

#include "client/cli/core/cli.h"
#include "client/cli/verify/tree.h"
#include "client/core/error.h"
#include "client/gpu/cuda.h"
#include "client/lib/gpumem.h"

#define THREADS 256u /* of a group; the kernel takes no more */
#define WARP	32u

typedef struct gm_CUmod_st *gm_CUmodule;
typedef struct gm_CUfunc_st *gm_CUfunction;

/* clang-format off */
#define FUNCTIONS(X) \
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

#define FIELD(field, symbol, arguments) gm_CUresult(*field) arguments;
struct kernels {
	FUNCTIONS(FIELD)
};

/* What there is of it is given back by gpu_close. */
struct gpu {
	const struct client_cuda *cuda;
	struct kernels kernels;
	gm_CUdevice device;
	gm_CUcontext context;
	gm_CUmodule module;
	gm_CUfunction function;
	gm_CUdeviceptr sums;
	gpumem *file;
	gm_CUdeviceptr bytes;
};

static void gpu_close(struct gpu *gpu)
{
	if (gpu->file)
		gpumem_close(gpu->file);
	if (gpu->sums)
		gpu->kernels.cuMemFree(gpu->sums);
	if (gpu->module)
		gpu->kernels.cuModuleUnload(gpu->module);
	if (gpu->context)
		gpu->cuda->cu.cuDevicePrimaryCtxRelease(gpu->device);
}

static int open_file(struct gpu *gpu, int fd, uint64_t bytes, struct gpumem_info *info)
{
	gpu->file = gpumem_open_fd(fd);
	if (!gpu->file || gpumem_get_info(gpu->file, info) < 0)
		return -errno;
	if (info->kind != GPUMEM_FILE_DEVICE)
		return TREE_NO_GPU;
	return info->size < bytes ? client_fail(ENODATA, "the file has become shorter") : 0;
}

static int load_cuda(struct gpu *gpu)
{
#define ROW(field, symbol, arguments) {#symbol, offsetof(struct kernels, field), REQUIRED},
	static const struct driver_symbol symbols[] = {FUNCTIONS(ROW)};
	char why[160];
	void *library;
	int error = client_cuda_get(&gpu->cuda);

	if (error)
		return error;
	if (driver_load("libcuda.so.1", symbols, sizeof(symbols) / sizeof(symbols[0]),
			&gpu->kernels, why, sizeof(why), &library) < 0)
		return client_fail(ENODEV, "%s", why);
	return client_cuda_result(gpu->cuda, gpu->cuda->cu.cuInit(0), "cuInit");
}

static int use_context(struct gpu *gpu, const uint8_t uuid[16])
{
	const struct cuda_driver *cu = &gpu->cuda->cu;
	gm_CUcontext context;
	int error = client_cuda_find(gpu->cuda, uuid, &gpu->device);

	if (!error)
		error = client_cuda_result(gpu->cuda,
					   cu->cuDevicePrimaryCtxRetain(&context, gpu->device),
					   "cuDevicePrimaryCtxRetain");
	if (error)
		return error;
	gpu->context = context;
	return client_cuda_result(gpu->cuda, cu->cuCtxSetCurrent(context), "cuCtxSetCurrent");
}

static int load_kernel(struct gpu *gpu, uint64_t blocks)
{
	const struct kernels *kernels = &gpu->kernels;
	int error = client_cuda_result(gpu->cuda, kernels->cuModuleLoadData(&gpu->module, tree_ptx),
				       "cuModuleLoadData");

	if (!error)
		error = client_cuda_result(
		    gpu->cuda,
		    kernels->cuModuleGetFunction(&gpu->function, gpu->module, "tree_blocks"),
		    "cuModuleGetFunction");
	if (!error)
		error = client_cuda_result(
		    gpu->cuda, kernels->cuMemAlloc(&gpu->sums, blocks * sizeof(uint64_t)),
		    "cuMemAlloc");
	return error;
}

static int map_file(struct gpu *gpu)
{
	unsigned long long address;

	if (gpumem_map_device(gpu->file, &address, NULL) < 0)
		return -errno;
	gpu->bytes = address;
	return 0;
}

static int launch(struct gpu *gpu, uint64_t blocks, uint64_t *sums)
{
	const struct kernels *kernels = &gpu->kernels;
	uint64_t groups = (blocks + THREADS / WARP - 1) / (THREADS / WARP);
	void *arguments[] = {&gpu->bytes, &gpu->sums, &blocks};

	if (groups > INT32_MAX)
		return client_fail(EFBIG, "more blocks than one launch has");
	int error =
	    client_cuda_result(gpu->cuda,
			       kernels->cuLaunchKernel(gpu->function, (unsigned)groups, 1, 1,
						       THREADS, 1, 1, 0, NULL, arguments, NULL),
			       "cuLaunchKernel");
	if (!error) /* in the kernel's stream: it comes after it */
		error = client_cuda_result(
		    gpu->cuda, kernels->cuMemcpyDtoH(sums, gpu->sums, blocks * sizeof(*sums)),
		    "cuMemcpyDtoH");
	return error;
}

int tree_gpu(int fd, uint64_t blocks, uint64_t *sums, double *seconds)
{
	struct gpumem_info info = {.bytes = sizeof(info)};
	struct gpu gpu = {0};
	int error = open_file(&gpu, fd, blocks * TREE_BLOCK, &info);

	if (!error)
		error = load_cuda(&gpu);
	if (!error)
		error = use_context(&gpu, info.uuid);
	if (!error)
		error = load_kernel(&gpu, blocks);
	if (!error)
		error = map_file(&gpu);
	double start = cli_seconds();

	if (!error)
		error = launch(&gpu, blocks, sums);
	*seconds = cli_seconds() - start;
	gpu_close(&gpu);
	return error;
}
