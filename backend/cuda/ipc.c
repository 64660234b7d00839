/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
#include "backend/cuda/ipc.h"

#include <errno.h>
#include <string.h>

#include "backend/cuda/provider.h"
#include "common/ipc_memory.h"

/* Not by cuda_result, for which most of these results mean a broken device. */
static int ipc_result(gm_CUresult result)
{
	return result == GM_CUDA_SUCCESS	       ? 0
	       : result == GM_CUDA_ERROR_OUT_OF_MEMORY ? -ENOSPC
						       : -EINVAL;
}

/* What the driver says of the memory at the address: the other program may lie. */
static int memory_check(const struct cuda_device *device, gm_CUdeviceptr address, uint64_t *bytes)
{
	const struct cuda_driver *cu = &device->cuda->cu;
	gm_CUdeviceptr base = 0;
	size_t size = 0;
	int ordinal = -1;
	int rc = ipc_result(cu->cuMemGetAddressRange(&base, &size, address));

	if (rc == 0)
		rc = ipc_result(cu->cuPointerGetAttribute(
		    &ordinal, GM_CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, address));
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
	int rc = ipc_result(device->cuda->cu.cuIpcOpenMemHandle(
	    address, handle, GM_CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS));
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
