/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* Memory of cuMemAlloc in other processes. A handle names a descriptor of the process that made it,
 * so no handle is opened after that process, and open memory stays. After a free the descriptor's
 * number may be that of another allocation, which the handle opens if the sizes are equal, as the
 * real driver does. */
#include "tests/driver/standin.h"

#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

struct ipc_name {
	pid_t pid;
	int fd;
	uint64_t inode, size, asked;
};

STANDIN_API CUresult cuIpcGetMemHandle(CUipcMemHandle *handle, CUdeviceptr address)
{
	const struct table_entry *entry;
	const struct mapping *mapping;

	ENTER(NEEDS_CONTEXT);
	STANDIN_LOCKED(SHARED);
	entry = table_find(&standin.mappings, address);
	mapping = entry ? entry->object : NULL;
	if (!handle || !mapping || !mapping->whole_allocation || mapping->opens)
		return CUDA_ERROR_INVALID_VALUE;
	struct ipc_name name = {getpid(), mapping->memory->fd, mapping->memory->inode,
				mapping->size, mapping->asked};

	*handle = (CUipcMemHandle){0};
	memcpy(handle->reserved, &name, sizeof(name));
	return CUDA_SUCCESS;
}

static int ipc_open(const struct ipc_name *name)
{
	char path[64];
	struct stat state;

	snprintf(path, sizeof(path), "/proc/%d/fd/%d", (int)name->pid, name->fd);
	int fd = open(path, O_RDWR | O_CLOEXEC);

	if (fd >= 0 && fstat(fd, &state) == 0 && (uint64_t)state.st_size == name->size)
		return fd;
	if (fd >= 0)
		close(fd);
	return -1;
}

static CUresult memory_open(const struct ipc_name *name, CUdeviceptr *address)
{
	struct memory *memory = NULL;
	struct mapping *mapping;
	int fd = ipc_open(name);

	if (fd < 0) /* freed, or with its process */
		return kill(name->pid, 0) == 0 ? CUDA_ERROR_INVALID_VALUE
					       : CUDA_ERROR_INVALID_HANDLE;
	CUresult result = memory_adopt(fd, &memory);

	close(fd);
	if (result != CUDA_SUCCESS)
		return CUDA_ERROR_INVALID_HANDLE;
	result = allocation_map(memory, address);
	if (result != CUDA_SUCCESS)
		return result;
	mapping = table_at(&standin.mappings, *address);
	mapping->opens = 1;
	mapping->opener = context_current();
	mapping->asked = name->asked;
	memory->opened = *address;
	return CUDA_SUCCESS;
}

STANDIN_API CUresult cuIpcOpenMemHandle_v2(CUdeviceptr *address, CUipcMemHandle handle,
					   unsigned int flags)
{
	struct ipc_name name;
	struct memory *memory;

	ENTER(NEEDS_CONTEXT);
	memcpy(&name, handle.reserved, sizeof(name));
	if (!address || flags != CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS || name.pid <= 0)
		return CUDA_ERROR_INVALID_VALUE;
	if (name.pid == getpid())
		return CUDA_ERROR_INVALID_CONTEXT;
	STANDIN_LOCKED(EXCLUSIVE);
	memory = table_at(&standin.memories, name.inode);
	if (!memory || !memory->opened)
		return memory_open(&name, address);
	((struct mapping *)table_at(&standin.mappings, memory->opened))->opens++;
	*address = memory->opened;
	return CUDA_SUCCESS;
}

STANDIN_API CUresult cuIpcCloseMemHandle(CUdeviceptr address)
{
	struct mapping *mapping;

	ENTER(NEEDS_CONTEXT);
	streams_wait_context(context_current());
	STANDIN_LOCKED(EXCLUSIVE);
	mapping = table_at(&standin.mappings, address);
	if (!mapping || !mapping->opens)
		return CUDA_ERROR_INVALID_VALUE;
	if (--mapping->opens)
		return CUDA_SUCCESS;
	mapping->memory->opened = 0;
	allocation_unmap(mapping);
	return CUDA_SUCCESS;
}

void ipc_forget_context(const struct context *context)
{
	for (size_t i = standin.mappings.count; i-- > 0;) {
		struct mapping *mapping = standin.mappings.entries[i].object;

		if (!mapping->opens || mapping->opener != context)
			continue;
		mapping->memory->opened = 0;
		allocation_unmap(mapping);
	}
}
