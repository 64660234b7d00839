/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <unistd.h>

#include "client/core/error.h"
#include "client/gpu/cuda.h"
#include "client/gpu/program.h"
#include "common/protocol.h"
#include "common/vector.h"

/* The driver takes 650 us for the first export of an allocation on an H200, and 25 us for each
 * further one. */
static int piece_export(const struct client_cuda *cuda, uint64_t address, int *fd)
{
	gm_CUmemGenericAllocationHandle handle = 0;

	if (cuda->cuMemRetainAllocationHandle(&handle, (void *)(uintptr_t)address) !=
	    GM_CUDA_SUCCESS)
		return client_fail(ENOTSUP,
				   "CUDA exports only memory of cuMemCreate, as torch has with "
				   "expandable segments; cudaMalloc's stays in the process");
	gm_CUresult result = cuda->cu.cuMemExportToShareableHandle(
	    fd, handle, GM_CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0);

	cuda->cu.cuMemRelease(handle);
	if (result == GM_CUDA_ERROR_INVALID_VALUE || result == GM_CUDA_ERROR_NOT_SUPPORTED)
		return client_fail(ENOTSUP, "the memory was made without "
					    "CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR");
	if (result != GM_CUDA_SUCCESS)
		return client_cuda_result(cuda, result, "cuMemExportToShareableHandle");
	fcntl(*fd, F_SETFD, FD_CLOEXEC);
	return 0;
}

static int piece_add(struct client_pieces *pieces, int fd, size_t bytes)
{
	int *fds = vector_grow(pieces->fds, pieces->n, sizeof(*fds));
	size_t *sizes = fds ? vector_grow(pieces->sizes, pieces->n, sizeof(*sizes)) : NULL;

	if (fds)
		pieces->fds = fds;
	if (sizes)
		pieces->sizes = sizes;
	if (!sizes || pieces->n == GPUMEM_PIECES_MAX) {
		close(fd);
		return sizes ? client_fail(EINVAL, "the memory has more than %d allocations",
					   GPUMEM_PIECES_MAX)
			     : client_fail(ENOMEM, "no memory");
	}
	fds[pieces->n] = fd;
	sizes[pieces->n++] = bytes;
	return 0;
}

/* Exports the allocation at the address; *end: its end. */
static int piece_take(const struct client_cuda *cuda, uint64_t address, uint64_t *end,
		      struct client_pieces *pieces)
{
	gm_CUdeviceptr base = 0;
	size_t bytes = 0;
	int fd = -1, rc;

	if (cuda->cuMemGetAddressRange(&base, &bytes, address) != GM_CUDA_SUCCESS || !bytes)
		return client_fail(EINVAL, "no memory of a GPU is at address 0x%llx",
				   (unsigned long long)address);
	if (pieces->n && base != address)
		return client_fail(EINVAL, "the memory has a gap before address 0x%llx",
				   (unsigned long long)base);
	rc = piece_export(cuda, address, &fd);
	if (rc < 0)
		return rc;
	if (!pieces->n)
		pieces->skip = address - base;
	*end = base + bytes;
	return piece_add(pieces, fd, bytes);
}

int client_pieces_export(uint64_t address, uint64_t bytes, struct client_pieces *pieces)
{
	const struct client_cuda *cuda;
	uint64_t end = address + bytes;
	int rc = client_cuda_get(&cuda);

	if (rc == 0 && end < address)
		rc = client_fail(EINVAL, "the range ends beyond all addresses");
	while (rc == 0 && address < end)
		rc = piece_take(cuda, address, &address, pieces);
	return rc;
}

void client_pieces_close(struct client_pieces *pieces)
{
	for (uint32_t i = 0; i < pieces->n; i++)
		close(pieces->fds[i]);
	free(pieces->fds);
	free(pieces->sizes);
	*pieces = (struct client_pieces){0};
}

/* CU_STREAM_WRITE_VALUE_DEFAULT, with a barrier for all memory, and CU_STREAM_WAIT_VALUE_GEQ. */
#define FLAGS_DEFAULT 0

/* A function of a driver that may lack it, with the function's name. */
static int word_operate(const struct client_cuda *cuda, const char *name,
			gm_CUresult (*operate)(gm_CUstream, gm_CUdeviceptr, uint64_t, unsigned int),
			void *stream, uint64_t address, uint64_t value)
{
	gm_CUresult result =
	    operate ? operate(stream, address, value, FLAGS_DEFAULT) : GM_CUDA_ERROR_NOT_SUPPORTED;

	if (result == GM_CUDA_ERROR_NOT_SUPPORTED)
		return client_fail(ENOTSUP, "this GPU or its driver has no stream operations on "
					    "words of 64 bits");
	return client_cuda_result(cuda, result, name);
}

int client_stream_write(void *stream, uint64_t address, uint64_t value)
{
	const struct client_cuda *cuda;
	int rc = client_cuda_get(&cuda);

	return rc < 0 ? rc
		      : word_operate(cuda, "cuStreamWriteValue64", cuda->cuStreamWriteValue64,
				     stream, address, value);
}

int client_stream_wait(void *stream, uint64_t address, uint64_t value)
{
	const struct client_cuda *cuda;
	int rc = client_cuda_get(&cuda);

	return rc < 0 ? rc
		      : word_operate(cuda, "cuStreamWaitValue64", cuda->cuStreamWaitValue64, stream,
				     address, value);
}
