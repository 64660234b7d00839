/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
#include "backend/cuda/ipc.h"

#include <errno.h>
#include <string.h>

#include "backend/cuda/provider.h"
#include "common/system/ipc_memory.h"

int cuda_import_result(struct cuda_device *device, gm_CUresult result, const char *call)
{
	switch (result) {
	case GM_CUDA_ERROR_INVALID_VALUE:
	case GM_CUDA_ERROR_INVALID_HANDLE:
	case GM_CUDA_ERROR_UNKNOWN:
		return -EINVAL;
	default:
		return cuda_result(device, result, call);
	}
}

/* What the driver says of the memory at the address: the other program may lie. */
static int memory_check(struct cuda_device *device, gm_CUdeviceptr address, uint64_t *bytes)
{
	const struct cuda_driver *cu = &device->cuda->cu;
	gm_CUdeviceptr base = 0;
	size_t size = 0;
	int ordinal = -1;
	int rc = cuda_import_result(device, cu->cuMemGetAddressRange(&base, &size, address),
				    "cuMemGetAddressRange");

	if (rc == 0)
		rc = cuda_import_result(
		    device,
		    cu->cuPointerGetAttribute(&ordinal, GM_CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL,
					      address),
		    "cuPointerGetAttribute");
	if (rc == 0 && ordinal != device->handle)
		rc = -EINVAL;
	*bytes = base + size - address;
	return rc;
}

int cuda_ipc_open(struct cuda_device *device, int fd, uint64_t chunk_bytes, gm_CUdeviceptr *address,
		  uint64_t *bytes)
{
	struct ipc_memory memory;
	gm_CUipcMemHandle handle;

	if (!ipc_memory_read(fd, &memory))
		return -ENOENT;
	_Static_assert(sizeof(handle) == sizeof(memory.handle), "the size of a handle");
	memcpy(&handle, memory.handle, sizeof(handle));
	int rc = cuda_import_result(device,
				    device->cuda->cu.cuIpcOpenMemHandle(
					address, handle, GM_CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS),
				    "cuIpcOpenMemHandle");
	if (rc < 0)
		return rc;
	rc = memory_check(device, *address, bytes);
	/* A chunk is of whole units. */
	if (rc == 0 && (*bytes > chunk_bytes ? *bytes : chunk_bytes - *bytes) >= CHUNK_ALIGN)
		rc = -EINVAL;
	if (rc < 0)
		cuda_ipc_close(device, *address);
	return rc;
}

void cuda_ipc_close(struct cuda_device *device, gm_CUdeviceptr address)
{
	device->cuda->cu.cuIpcCloseMemHandle(address);
}
