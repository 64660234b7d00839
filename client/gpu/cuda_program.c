/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "client/core/answer.h"
#include "client/core/error.h"
#include "client/gpu/cuda/cuda.h"
#include "client/gpu/program.h"
#include "common/protocol.h"
#include "common/system/ipc_memory.h"
#include "common/vector.h"

/* The driver takes 650 us for the first export of an allocation on an H200, and 25 us for each
 * further one. */
static int handle_export(const struct client_cuda *cuda, gm_CUmemGenericAllocationHandle handle,
			 int *fd)
{
	gm_CUresult result = cuda->cu.cuMemExportToShareableHandle(
	    fd, handle, GM_CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0);

	if (result == GM_CUDA_ERROR_INVALID_VALUE || result == GM_CUDA_ERROR_NOT_SUPPORTED)
		return client_fail(ENOTSUP, "the memory was made without "
					    "CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR");
	if (result != GM_CUDA_SUCCESS)
		return client_cuda_result(cuda, result, "cuMemExportToShareableHandle");
	fcntl(*fd, F_SETFD, FD_CLOEXEC);
	return 0;
}

static int ipc_export(const struct client_cuda *cuda, gm_CUdeviceptr base, uint64_t bytes, int *fd)
{
	struct ipc_memory memory = {.bytes = bytes};
	gm_CUipcMemHandle handle;

	if (cuda->cu.cuIpcGetMemHandle(&handle, base) != GM_CUDA_SUCCESS)
		return client_fail(ENOTSUP, "CUDA shares memory of cuMemCreate and cudaMalloc, and "
					    "none of cudaMallocAsync or cudaMallocManaged");
	memcpy(memory.handle, &handle, sizeof(memory.handle));
	*fd = ipc_memory_seal(&memory);
	return *fd < 0 ? client_fail(-*fd, "no descriptor for the memory's handle") : 0;
}

static int piece_export(const struct client_cuda *cuda, gm_CUdeviceptr base, uint64_t bytes,
			struct client_pieces *pieces, int *fd)
{
	gm_CUmemGenericAllocationHandle handle = 0;

	if (!pieces->of_malloc && cuda->cuMemRetainAllocationHandle(
				      &handle, (void *)(uintptr_t)base) == GM_CUDA_SUCCESS) {
		int rc = handle_export(cuda, handle, fd);

		cuda->cu.cuMemRelease(handle);
		return rc;
	}
	if (pieces->n)
		return client_fail(ENOTSUP, "the range is of several allocations of cudaMalloc: "
					    "share each as a file of its own");
	pieces->of_malloc = true;
	return ipc_export(cuda, base, bytes, fd);
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

	if (cuda->cu.cuMemGetAddressRange(&base, &bytes, address) != GM_CUDA_SUCCESS || !bytes)
		return client_fail(EINVAL, "no memory of a GPU is at address 0x%llx",
				   (unsigned long long)address);
	if (pieces->n && base != address)
		return client_fail(EINVAL, "the memory has a gap before address 0x%llx",
				   (unsigned long long)base);
	rc = piece_export(cuda, base, bytes, pieces, &fd);
	if (rc < 0)
		return rc;
	if (!pieces->n)
		pieces->skip = address - base;
	*end = base + bytes;
	return piece_add(pieces, fd,
			 pieces->of_malloc ? (bytes + CLIENT_CHUNK_ALIGN - 1) / CLIENT_CHUNK_ALIGN *
						 CLIENT_CHUNK_ALIGN
					   : bytes);
}

static int pieces_find_gpu(const struct client_cuda *cuda, uint64_t address,
			   struct client_pieces *pieces)
{
	gm_CUdevice device = 0;
	gm_CUuuid uuid = {0};
	int ordinal = 0, rc = client_cuda_current(cuda, &device);

	if (rc < 0)
		return rc;
	if (cuda->cu.cuPointerGetAttribute(&ordinal, GM_CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL,
					   address) != GM_CUDA_SUCCESS ||
	    cuda->cu.cuDeviceGet(&device, ordinal) != GM_CUDA_SUCCESS)
		return client_fail(EINVAL, "no memory of a GPU is at address 0x%llx",
				   (unsigned long long)address);
	rc = client_cuda_result(cuda, cuda->cu.cuDeviceGetUuid(&uuid, device), "cuDeviceGetUuid");
	memcpy(pieces->uuid, uuid.bytes, sizeof(pieces->uuid));
	return rc;
}

int client_pieces_export(uint64_t address, uint64_t bytes, struct client_pieces *pieces)
{
	const struct client_cuda *cuda;
	uint64_t end = address + bytes;
	int rc = client_cuda_get(&cuda);

	if (rc == 0 && end < address)
		rc = client_fail(EINVAL, "the range ends beyond all addresses");
	if (rc == 0)
		rc = pieces_find_gpu(cuda, address, pieces);
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
