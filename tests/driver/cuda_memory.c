/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* Physical memory on memfds, and the handles to the memory. The stand-in sees the bytes through a
 * private mapping; the CPU can never access the device addresses that the program gets, as with the
 * real driver, except for host-located memory. */
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tests/driver/standin.h"

/* A mode bit of the memfd, set for memory that was created gpuDirectRDMACapable. Importers in other
 * processes read the bit, which has no other use on a file. */
#define RDMA_MODE S_ISVTX

void memory_get(struct memory *memory)
{
	atomic_fetch_add_explicit(&memory->references, 1, memory_order_relaxed);
}

CUresult memory_lost(const struct memory *memory)
{
	return memory_is_host(memory) ? CUDA_SUCCESS : device_lost((unsigned)memory->device);
}

/* The counter of the used bytes of a device or of host-located memory. */
static uint64_t *used_bytes(int device)
{
	return device == HOST_LOCATED ? &standin.host_used : &standin.devices[device].used;
}

static void memory_detach(struct memory *memory)
{
	munmap(memory->bytes, memory->size);
	if (memory->fd < 0)
		return;
	table_remove(&standin.memories, memory->inode);
	close(memory->fd);
	memory->fd = -1;
}

static void memory_free(struct memory *memory)
{
	*used_bytes(memory->device) -= memory->size;
	memory_detach(memory);
	free(memory);
}

void memory_put_locked(struct memory *memory)
{
	if (atomic_fetch_sub_explicit(&memory->references, 1, memory_order_acq_rel) == 1)
		memory_free(memory);
}

/* Only the last reference takes the lock: an ordinary copy must not order threads. */
void memory_put(struct memory *memory)
{
	unsigned references = atomic_load_explicit(&memory->references, memory_order_relaxed);

	while (references > 1)
		if (atomic_compare_exchange_weak_explicit(&memory->references, &references,
							  references - 1, memory_order_release,
							  memory_order_relaxed))
			return;
	STANDIN_LOCKED(EXCLUSIVE);
	memory_put_locked(memory);
}

/* Lets the memory have the bytes of fd, and takes over fd, also on failure. */
static bool memory_attach(struct memory *memory, int fd)
{
	struct stat state;
	void *bytes =
	    mmap(NULL, memory->size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, (off_t)memory->start);

	if (bytes == MAP_FAILED || fstat(fd, &state)) {
		if (bytes != MAP_FAILED)
			munmap(bytes, memory->size);
		close(fd);
		return false;
	}
	memory->fd = fd;
	memory->inode = state.st_ino;
	memory->rdma |= (state.st_mode & RDMA_MODE) != 0;
	memory->bytes = bytes;
	table_add(&standin.memories, memory->inode, 1, memory);
	return true;
}

/* What a descriptor refers to. */
struct exported {
	int device;
	uint64_t start, size; /* of the bytes in the file */
};

/* Takes over fd, also on failure. */
static CUresult memory_map(int fd, const struct exported *exported, struct memory **memory)
{
	struct memory *made = calloc(1, sizeof(*made));

	if (!made)
		abort();
	atomic_init(&made->references, 1);
	made->start = exported->start;
	made->size = exported->size;
	made->device = exported->device;
	if (!memory_attach(made, fd)) {
		free(made);
		return CUDA_ERROR_OUT_OF_MEMORY;
	}
	*used_bytes(exported->device) += exported->size;
	*memory = made;
	return CUDA_SUCCESS;
}

static uint64_t available(int device)
{
	if (device != HOST_LOCATED)
		return device_available((unsigned)device);
	return standin.host_used < settings.host_memory ? settings.host_memory - standin.host_used
							: 0;
}

static CUresult memfd_new(int device, uint64_t size, int *fd)
{
	char name[32] = STANDIN_HOST_MEMFD_NAME;

	if (device != HOST_LOCATED)
		snprintf(name, sizeof(name), STANDIN_MEMFD_NAME "%u",
			 standin_physical((unsigned)device));
	*fd = memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING);
	if (*fd < 0)
		return CUDA_ERROR_OPERATING_SYSTEM;
	/* The seals keep a process that has a descriptor of the GPU's memory from cutting the
	 * memory off. */
	if (ftruncate(*fd, (off_t)size) ||
	    fcntl(*fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL)) {
		close(*fd);
		return CUDA_ERROR_OUT_OF_MEMORY;
	}
	return CUDA_SUCCESS;
}

CUresult memory_new(int device, uint64_t size, struct memory **memory)
{
	const struct exported made = {.device = device, .size = size};
	CUresult result;
	int fd;

	if (size > available(device))
		return CUDA_ERROR_OUT_OF_MEMORY;
	result = memfd_new(device, size, &fd);
	if (result == CUDA_SUCCESS)
		result = memory_map(fd, &made, memory);
	/* The fill byte stands for the bytes of a previous user: the driver does not zero memory.
	 */
	if (result == CUDA_SUCCESS && settings.fill >= 0)
		memset((*memory)->bytes, settings.fill, size);
	return result;
}

void memory_move_out(struct memory *memory)
{
	void *bytes = mmap(NULL, memory->size, PROT_READ | PROT_WRITE,
			   MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

	if (bytes == MAP_FAILED)
		abort();
	memcpy(bytes, memory->bytes, memory->size);
	memory_detach(memory);
	memory->bytes = bytes;
}

void memory_move_in(struct memory *memory)
{
	uint8_t *bytes = memory->bytes;
	int fd;

	if (memfd_new(memory->device, memory->size, &fd) != CUDA_SUCCESS ||
	    (memory->rdma && fchmod(fd, RDMA_MODE | 0777)) || !memory_attach(memory, fd))
		abort();
	memcpy(memory->bytes, bytes, memory->size);
	munmap(bytes, memory->size);
}

/* Reopens a memfd whose name begins with prefix, and sets rest to the rest of the name. */
static int reopen(int fd, const char *prefix, char rest[NAME_MAX])
{
	char path[40], name[NAME_MAX] = "";

	snprintf(path, sizeof(path), "/proc/thread-self/fd/%d", fd);
	if (fd < 0 || readlink(path, name, sizeof(name) - 1) < 0 ||
	    strncmp(name, prefix, strlen(prefix)) != 0)
		return -1;
	strcpy(rest, name + strlen(prefix));
	return open(path, O_RDWR | O_CLOEXEC);
}

/* The device is in the memfd's name, because the exporter may be another process that has ended. */
int standin_reopen(int shared, unsigned *gpu, uint64_t *size)
{
	char rest[NAME_MAX];
	struct stat state;
	int fd;

	if (fstat(shared, &state))
		return -1;
	fd = reopen(shared, "/memfd:" STANDIN_MEMFD_NAME, rest);
	if (fd < 0)
		return -1;
	*gpu = (unsigned)strtoul(rest, NULL, 10);
	*size = (uint64_t)state.st_size;
	return fd;
}

/* Memory of lavapipe as the driver of discrete.c, which has the UUID of GPU 0: a header with the
 * file's size and the place of the bytes, then the bytes. */
static int lavapipe_reopen(int shared, struct exported *exported)
{
	uint64_t header[2];
	char rest[NAME_MAX];
	int fd = reopen(shared, "/memfd:llvmpipe memory fd", rest);

	if (fd < 0)
		return -1;
	if (pread(fd, header, sizeof(header), 0) != sizeof(header)) {
		close(fd);
		return -1;
	}
	exported->device = 0;
	exported->start = header[1];
	exported->size = (header[0] - header[1]) / STANDIN_GRANULARITY * STANDIN_GRANULARITY;
	return fd;
}

/* Reopens an exported fd of a device that the process has, or of host-located memory. */
static int reopen_any(int shared, struct exported *exported)
{
	struct stat state;
	char rest[NAME_MAX];
	unsigned gpu = 0;
	int fd = standin_reopen(shared, &gpu, &exported->size);

	if (fd < 0)
		fd = lavapipe_reopen(shared, exported);
	if (fd < 0) {
		fd = reopen(shared, "/memfd:" STANDIN_HOST_MEMFD_NAME, rest);
		exported->device = HOST_LOCATED;
		exported->size = fstat(shared, &state) == 0 ? (uint64_t)state.st_size : 0;
		return fd;
	}
	exported->device = standin_ordinal(gpu);
	if (exported->device >= 0)
		return fd;
	close(fd);
	return -1;
}

CUresult memory_adopt(int shared, struct memory **memory)
{
	struct exported exported = {0};
	struct stat state;

	if (fstat(shared, &state))
		return CUDA_ERROR_UNKNOWN; /* as the real driver returns */
	int fd = reopen_any(shared, &exported);

	if (fd < 0)
		return CUDA_ERROR_UNKNOWN;
	*memory = table_at(&standin.memories, state.st_ino);
	if (*memory) {
		close(fd);
		memory_get(*memory);
		return CUDA_SUCCESS;
	}
	return memory_map(fd, &exported, memory);
}

uint64_t handle_new(struct memory *memory, enum handle_kind kind)
{
	struct handle *handle = calloc(1, sizeof(*handle));
	uint64_t id = standin_new_handle();

	if (!handle)
		abort();
	*handle = (struct handle){memory, 1, kind};
	table_add(&standin.handles, id, 1, handle);
	return id;
}

static CUresult check_location(const CUmemAllocationProp *prop)
{
	switch (prop->location.type) {
	case CU_MEM_LOCATION_TYPE_DEVICE:
		return standin_device_valid(prop->location.id) ? CUDA_SUCCESS
							       : CUDA_ERROR_INVALID_DEVICE;
	case CU_MEM_LOCATION_TYPE_HOST_NUMA:
		if (!settings.host_memory)
			return CUDA_ERROR_NOT_SUPPORTED;
		return prop->location.id == HOST_NODE && !prop->allocFlags.gpuDirectRDMACapable
			   ? CUDA_SUCCESS
			   : CUDA_ERROR_INVALID_VALUE;
	default:
		return CUDA_ERROR_NOT_SUPPORTED;
	}
}

static CUresult check_prop(const CUmemAllocationProp *prop)
{
	CUresult result;

	if (!prop || prop->type != CU_MEM_ALLOCATION_TYPE_PINNED)
		return CUDA_ERROR_INVALID_VALUE;
	result = check_location(prop);
	if (result != CUDA_SUCCESS)
		return result;
	if (prop->requestedHandleTypes & CU_MEM_HANDLE_TYPE_FABRIC)
		return CUDA_ERROR_NOT_PERMITTED;
	if (prop->requestedHandleTypes & ~CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR)
		return CUDA_ERROR_INVALID_VALUE;
	return CUDA_SUCCESS;
}

STANDIN_API CUresult cuMemGetAllocationGranularity(size_t *granularity,
						   const CUmemAllocationProp *prop,
						   CUmemAllocationGranularity_flags option)
{
	CUresult result;

	ENTER(NEEDS_INIT);
	result = check_prop(prop);
	if (result == CUDA_ERROR_NOT_PERMITTED)
		result = CUDA_SUCCESS;
	if (result != CUDA_SUCCESS)
		return result;
	if (!granularity || (unsigned)option > 1)
		return CUDA_ERROR_INVALID_VALUE;
	*granularity = STANDIN_GRANULARITY;
	return CUDA_SUCCESS;
}

STANDIN_API CUresult cuMemCreate(CUmemGenericAllocationHandle *handle, size_t size,
				 const CUmemAllocationProp *prop, unsigned long long flags)
{
	bool on_device = prop && prop->location.type == CU_MEM_LOCATION_TYPE_DEVICE;
	int device = on_device ? prop->location.id : HOST_LOCATED;
	struct memory *memory;
	CUresult result;

	ENTER_ON(NEEDS_INIT, on_device ? device : ANY_DEVICE);
	if (!handle || !size || size % STANDIN_GRANULARITY || flags)
		return CUDA_ERROR_INVALID_VALUE;
	result = check_prop(prop);
	if (result != CUDA_SUCCESS)
		return result;
	result = on_device ? fault_device((unsigned)device) : CUDA_SUCCESS;
	if (result != CUDA_SUCCESS)
		return result;

	STANDIN_LOCKED(EXCLUSIVE);
	result = memory_new(device, size, &memory);
	if (result != CUDA_SUCCESS)
		return result;
	memory->number = ++standin.created;
	memory->rdma = prop->allocFlags.gpuDirectRDMACapable;
	if (memory->rdma && fchmod(memory->fd, RDMA_MODE | 0777)) {
		memory_put_locked(memory);
		return CUDA_ERROR_OPERATING_SYSTEM;
	}
	*handle = handle_new(memory, prop->requestedHandleTypes == CU_MEM_HANDLE_TYPE_NONE
					 ? HANDLE_PRIVATE
					 : HANDLE_EXPORTABLE);
	return CUDA_SUCCESS;
}

/* Releases the handle on a failed device too, so that memory still allocated at the end is a leak.
 */
STANDIN_API CUresult cuMemRelease(CUmemGenericAllocationHandle id)
{
	CUresult entered = standin_enter(__func__, NEEDS_INIT, ANY_DEVICE);
	struct handle *handle;

	if (standin_refused(entered))
		return entered;
	STANDIN_LOCKED(EXCLUSIVE);
	handle = table_at(&standin.handles, id);
	if (!handle)
		return CUDA_ERROR_INVALID_VALUE;
	if (entered == CUDA_SUCCESS)
		entered = memory_lost(handle->memory);
	if (--handle->references == 0) {
		memory_put_locked(handle->memory);
		table_remove(&standin.handles, id);
		free(handle);
	}
	return entered;
}

/* Exports an O_PATH descriptor: mmap, read and write fail on the descriptor as on the driver's, and
 * importers reopen the descriptor. */
STANDIN_API CUresult cuMemExportToShareableHandle(void *shareable, CUmemGenericAllocationHandle id,
						  CUmemAllocationHandleType type,
						  unsigned long long flags)
{
	struct handle *handle;
	char path[40];
	int fd;

	ENTER(NEEDS_INIT);
	STANDIN_LOCKED(SHARED);
	handle = table_at(&standin.handles, id);
	if (!shareable || !handle || flags || handle->kind != HANDLE_EXPORTABLE ||
	    type != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR)
		return CUDA_ERROR_INVALID_VALUE;
	if (memory_lost(handle->memory) != CUDA_SUCCESS)
		return memory_lost(handle->memory);
	snprintf(path, sizeof(path), "/proc/thread-self/fd/%d", handle->memory->fd);
	fd = open(path, O_PATH | O_CLOEXEC);
	if (fd < 0)
		return CUDA_ERROR_OPERATING_SYSTEM;
	memcpy(shareable, &fd, sizeof(fd));
	return CUDA_SUCCESS;
}

/* An imported handle has no handle types to export. */
STANDIN_API CUresult cuMemGetAllocationPropertiesFromHandle(CUmemAllocationProp *prop,
							    CUmemGenericAllocationHandle id)
{
	const struct handle *handle;

	ENTER(NEEDS_INIT);
	STANDIN_LOCKED(SHARED);
	handle = table_at(&standin.handles, id);
	if (!prop || !handle)
		return CUDA_ERROR_INVALID_VALUE;
	*prop = (CUmemAllocationProp){.type = CU_MEM_ALLOCATION_TYPE_PINNED};
	if (handle->kind == HANDLE_EXPORTABLE)
		prop->requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
	prop->location.type = memory_is_host(handle->memory) ? CU_MEM_LOCATION_TYPE_HOST_NUMA
							     : CU_MEM_LOCATION_TYPE_DEVICE;
	prop->location.id = memory_is_host(handle->memory) ? HOST_NODE : handle->memory->device;
	return CUDA_SUCCESS;
}

STANDIN_API CUresult cuMemImportFromShareableHandle(CUmemGenericAllocationHandle *handle,
						    void *shareable, CUmemAllocationHandleType type)
{
	struct memory *memory;
	CUresult result;

	ENTER(NEEDS_INIT);
	if (!handle || type != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR)
		return CUDA_ERROR_INVALID_VALUE;

	STANDIN_LOCKED(EXCLUSIVE);
	result = memory_adopt((int)(intptr_t)shareable, &memory);
	if (result != CUDA_SUCCESS)
		return result;
	*handle = handle_new(memory, HANDLE_IMPORTED);
	return memory_lost(memory);
}
