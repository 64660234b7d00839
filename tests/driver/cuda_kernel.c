/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* Kernels. The stand-in simulates a single kernel by name, so that the code around a launch can be
 * tested. The work is queued like a copy, and the memory that the kernel reads and writes is
 * checked as for a copy. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#define XXH_INLINE_ALL
#include <xxhash.h>

#include "tests/driver/standin.h"

#define MODULE	 0x6d6f64
#define FUNCTION 0x66756e
#define WARP	 32

/* tree_blocks(from, sums, blocks), as described in client/cli/verify/tree.h. */
#define KERNEL	"tree_blocks"
#define BLOCK	65536
#define STRINGS 32
#define PIECE	16
#define STRING	(BLOCK / STRINGS)

static uint64_t block_sum(const uint8_t *block)
{
	uint8_t string[STRING];
	uint64_t sums[STRINGS];

	for (unsigned i = 0; i < STRINGS; i++) {
		for (unsigned n = 0; n < STRING / PIECE; n++)
			memcpy(string + (size_t)n * PIECE,
			       block + ((size_t)n * STRINGS + i) * PIECE, PIECE);
		sums[i] = XXH64(string, STRING, 0);
	}
	return XXH64(sums, sizeof(sums), 0);
}

static bool is_device(uint64_t address)
{
	STANDIN_LOCKED(SHARED);
	return table_find(&standin.reservations, address);
}

/* Copies between device memory, with the checks of a copy, and memory of the stand-in. */
static CUresult copy(const struct op *kernel, const struct context *context, uint64_t to,
		     uint64_t from, uint64_t size)
{
	struct op op = {
	    .kind = OP_COPY, .to = to, .from = from, .size = size, .device = kernel->device};

	return copy_execute(&op, context);
}

/* The fields from, to and size of op are the kernel's parameters from, sums and blocks. */
CUresult kernel_execute(const struct op *op, const struct context *context)
{
	uint8_t *block = malloc(BLOCK);
	CUresult result = block ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;

	for (uint64_t i = 0; result == CUDA_SUCCESS && i < op->size && i < op->warps; i++) {
		uint64_t sum;

		if (!is_device(op->from + (i + 1) * BLOCK - 1) ||
		    !is_device(op->to + i * sizeof(sum))) {
			standin_violation("a kernel uses memory that is no device's");
			result = CUDA_ERROR_ILLEGAL_ADDRESS;
			break;
		}
		result = copy(op, context, (uintptr_t)block, op->from + i * BLOCK, BLOCK);
		if (result != CUDA_SUCCESS)
			break;
		sum = block_sum(block);
		if (settings.kernels_lie)
			sum ^= i == op->size / 2;
		result = copy(op, context, op->to + i * sizeof(sum), (uintptr_t)&sum, sizeof(sum));
	}
	free(block);
	return result;
}

/* The text of a module must have the kernel with the expected parameters in the expected order. */
static bool is_known(const char *text)
{
	const char *entry = strstr(text, ".visible .entry " KERNEL "(");
	const char *end = entry ? strchr(entry, ')') : NULL, *at = entry;
	static const char *const parameters[] = {".u64 from", ".u64 sums", ".u64 blocks"};

	for (unsigned i = 0; at && i < 3; i++) {
		at = strstr(at, parameters[i]);
		if (at > end)
			return false;
	}
	return at;
}

STANDIN_API CUresult cuModuleLoadData(CUmodule *module, const void *image)
{
	ENTER(NEEDS_CONTEXT);
	if (!module || !image)
		return CUDA_ERROR_INVALID_VALUE;
	if (settings.no_kernels || !is_known(image))
		return CUDA_ERROR_NOT_SUPPORTED;
	*module = (CUmodule)MODULE;
	return CUDA_SUCCESS;
}

STANDIN_API CUresult cuModuleUnload(CUmodule module)
{
	ENTER(NEEDS_CONTEXT);
	return module == (CUmodule)MODULE ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
}

STANDIN_API CUresult cuModuleGetFunction(CUfunction *function, CUmodule module, const char *name)
{
	ENTER(NEEDS_CONTEXT);
	if (!function || !name)
		return CUDA_ERROR_INVALID_VALUE;
	if (module != (CUmodule)MODULE)
		return CUDA_ERROR_INVALID_HANDLE;
	if (strcmp(name, KERNEL) != 0)
		return CUDA_ERROR_NOT_FOUND;
	*function = (CUfunction)FUNCTION;
	return CUDA_SUCCESS;
}

STANDIN_API CUresult cuLaunchKernel(CUfunction function, unsigned int grid_x, unsigned int grid_y,
				    unsigned int grid_z, unsigned int x, unsigned int y,
				    unsigned int z, unsigned int shared, CUstream on,
				    void **parameters, void **extra)
{
	struct stream *stream;
	CUresult result;

	ENTER(NEEDS_CONTEXT);
	if (function != (CUfunction)FUNCTION)
		return CUDA_ERROR_INVALID_HANDLE;
	if (!parameters || extra || shared || !grid_x || grid_y != 1 || grid_z != 1 || !x ||
	    x > 256 || x % WARP || y != 1 || z != 1)
		return CUDA_ERROR_INVALID_VALUE;
	result = stream_get(on, &stream);
	if (result != CUDA_SUCCESS)
		return result;
	struct op op = {.kind = OP_KERNEL, .device = context_device()};

	/* The parameters are copied now; the caller may reuse the parameters' memory after the
	 * call. */
	memcpy(&op.from, parameters[0], sizeof(op.from));
	memcpy(&op.to, parameters[1], sizeof(op.to));
	memcpy(&op.size, parameters[2], sizeof(op.size));
	op.warps = (uint64_t)grid_x * (x / WARP);
	result = stream_submit(stream, &op);
	stream_put(stream);
	return result;
}
