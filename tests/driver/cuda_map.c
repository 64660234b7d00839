/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* Address ranges: reserved, mapped to physical memory, made accessible to devices. */
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "tests/driver/standin.h"

#define RESERVED (MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE)

/* The address of size reserved bytes: the hint if its range is free, else any; 0: none. */
static uint64_t range_find(uint64_t size, uint64_t alignment, uint64_t hint)
{
	uint64_t start, aligned;
	void *mapped;

	if (hint && hint % alignment == 0) {
		mapped = mmap((void *)(uintptr_t)hint, size, PROT_NONE,
			      RESERVED | MAP_FIXED_NOREPLACE, -1, 0);
		if (mapped != MAP_FAILED)
			return hint;
	}
	mapped = mmap(NULL, size + alignment, PROT_NONE, RESERVED, -1, 0);
	if (mapped == MAP_FAILED)
		return 0;
	start = (uintptr_t)mapped;
	aligned = (start + alignment - 1) & ~(alignment - 1);
	if (aligned > start)
		munmap(mapped, aligned - start);
	munmap((void *)(uintptr_t)(aligned + size), start + alignment - aligned);
	return aligned;
}

CUresult reserve(uint64_t size, uint64_t alignment, uint64_t hint, uint64_t *base)
{
	struct reservation *reservation = calloc(1, sizeof(*reservation));
	uint64_t aligned;

	if (alignment < STANDIN_GRANULARITY)
		alignment = STANDIN_GRANULARITY;
	aligned = reservation ? range_find(size, alignment, hint) : 0;
	if (!aligned) {
		free(reservation);
		return CUDA_ERROR_OUT_OF_MEMORY;
	}
	*reservation = (struct reservation){aligned, size, false};
	table_add(&standin.reservations, aligned, size, reservation);
	*base = aligned;
	return CUDA_SUCCESS;
}

void unreserve(uint64_t base, uint64_t size)
{
	free(table_at(&standin.reservations, base));
	table_remove(&standin.reservations, base);
	munmap((void *)(uintptr_t)base, size);
}

STANDIN_API CUresult cuMemAddressReserve(CUdeviceptr *address, size_t size, size_t alignment,
					 CUdeviceptr at, unsigned long long flags)
{
	uint64_t base;
	CUresult result;

	ENTER(NEEDS_INIT);
	if (!address || !size || size % STANDIN_GRANULARITY || (alignment & (alignment - 1)) ||
	    at % STANDIN_GRANULARITY || flags)
		return CUDA_ERROR_INVALID_VALUE;

	STANDIN_LOCKED(EXCLUSIVE);
	result = reserve(size, alignment, at, &base);
	if (result == CUDA_SUCCESS)
		*address = base;
	return result;
}

STANDIN_API CUresult cuMemAddressFree(CUdeviceptr address, size_t size)
{
	CUresult entered = standin_enter(__func__, NEEDS_INIT, ANY_DEVICE);
	struct reservation *reservation;

	if (standin_refused(entered))
		return entered;
	STANDIN_LOCKED(EXCLUSIVE);
	reservation = table_at(&standin.reservations, address);
	if (!reservation || reservation->size != size || reservation->whole_allocation ||
	    table_overlaps(&standin.mappings, address, size))
		return CUDA_ERROR_INVALID_VALUE;
	unreserve(address, size);
	return entered;
}

STANDIN_API CUresult cuMemMap(CUdeviceptr address, size_t size, size_t offset,
			      CUmemGenericAllocationHandle id, unsigned long long flags)
{
	const struct table_entry *reservation;
	struct mapping *mapping;
	struct handle *handle;

	ENTER(NEEDS_INIT);
	STANDIN_LOCKED(EXCLUSIVE);
	handle = table_at(&standin.handles, id);
	reservation = table_find(&standin.reservations, address);
	if (!handle || !reservation || !size || flags || (address | size) % STANDIN_GRANULARITY ||
	    address + size > reservation->base + reservation->size ||
	    table_overlaps(&standin.mappings, address, size))
		return CUDA_ERROR_INVALID_VALUE;
	if (offset || size != handle->memory->size)
		return CUDA_ERROR_NOT_SUPPORTED;
	if (memory_lost(handle->memory) != CUDA_SUCCESS)
		return memory_lost(handle->memory);

	mapping = calloc(1, sizeof(*mapping));
	if (!mapping)
		return CUDA_ERROR_OUT_OF_MEMORY;
	mapping->base = address;
	mapping->size = size;
	mapping->memory = handle->memory;
	mapping->handle = id;
	mapping->kind = handle->kind;
	memory_get(mapping->memory);
	table_add(&standin.mappings, address, size, mapping);
	return CUDA_SUCCESS;
}

/* Whether [address, address + size) consists of whole mappings, without a gap. */
static bool is_whole(uint64_t address, uint64_t size)
{
	uint64_t end = address + size;

	if (!size)
		return false;
	while (address < end) {
		const struct mapping *mapping = table_at(&standin.mappings, address);

		if (!mapping || mapping->whole_allocation || mapping->size > end - address)
			return false;
		address += mapping->size;
	}
	return true;
}

/* Maps the bytes of host-located memory at the mapping's address for the CPU, or makes the address
 * inaccessible again. */
static CUresult cpu_set_access(struct mapping *mapping, CUmemAccess_flags flags)
{
	int prot = flags == CU_MEM_ACCESS_FLAGS_PROT_READWRITE ? PROT_READ | PROT_WRITE : PROT_READ;
	void *at = (void *)(uintptr_t)mapping->base, *mapped;

	if (mapping->cpu_access == flags)
		return CUDA_SUCCESS;
	mapped =
	    flags == CU_MEM_ACCESS_FLAGS_PROT_NONE
		? mmap(at, mapping->size, PROT_NONE,
		       MAP_FIXED | MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0)
		: mmap(at, mapping->size, prot, MAP_FIXED | MAP_SHARED, mapping->memory->fd, 0);
	if (mapped == MAP_FAILED)
		return CUDA_ERROR_OUT_OF_MEMORY;
	mapping->cpu_access = (uint8_t)flags;
	return CUDA_SUCCESS;
}

STANDIN_API CUresult cuMemUnmap(CUdeviceptr address, size_t size)
{
	CUresult entered = standin_enter(__func__, NEEDS_INIT, ANY_DEVICE);
	uint64_t end = address + size;

	if (standin_refused(entered))
		return entered;
	STANDIN_LOCKED(EXCLUSIVE);
	if (!is_whole(address, size))
		return CUDA_ERROR_INVALID_VALUE;
	while (address < end) {
		struct mapping *mapping = table_at(&standin.mappings, address);

		if (entered == CUDA_SUCCESS)
			entered = memory_lost(mapping->memory);
		cpu_set_access(mapping, CU_MEM_ACCESS_FLAGS_PROT_NONE);
		table_remove(&standin.mappings, address);
		address += mapping->size;
		memory_put_locked(mapping->memory);
		free(mapping);
	}
	return entered;
}

static bool is_location(const CUmemLocation *location)
{
	if (location->type == CU_MEM_LOCATION_TYPE_HOST_NUMA)
		return location->id == HOST_NODE;
	return location->type == CU_MEM_LOCATION_TYPE_DEVICE && standin_device_valid(location->id);
}

/* Every device reaches host-located memory; the CPU reaches no other memory. */
static CUresult check_access(const CUmemAccessDesc *access, const struct mapping *mapping)
{
	bool host = memory_is_host(mapping->memory);

	if (!is_location(&access->location))
		return CUDA_ERROR_INVALID_VALUE;
	if (access->flags != CU_MEM_ACCESS_FLAGS_PROT_NONE &&
	    access->flags != CU_MEM_ACCESS_FLAGS_PROT_READ &&
	    access->flags != CU_MEM_ACCESS_FLAGS_PROT_READWRITE)
		return CUDA_ERROR_INVALID_VALUE;
	if (access->location.type == CU_MEM_LOCATION_TYPE_HOST_NUMA)
		return host ? CUDA_SUCCESS : CUDA_ERROR_NOT_SUPPORTED;
	if (!host && access->location.id != mapping->memory->device && !settings.peer)
		return CUDA_ERROR_INVALID_DEVICE;
	if (!host && access->location.id != mapping->memory->device && settings.peer_refused)
		return CUDA_ERROR_NOT_SUPPORTED;
	return device_lost((unsigned)access->location.id);
}

static CUresult set_access(struct mapping *mapping, const CUmemAccessDesc *access)
{
	if (access->location.type == CU_MEM_LOCATION_TYPE_HOST_NUMA)
		return cpu_set_access(mapping, access->flags);
	mapping->access[access->location.id] = (uint8_t)access->flags;
	return CUDA_SUCCESS;
}

STANDIN_API CUresult cuMemSetAccess(CUdeviceptr address, size_t size, const CUmemAccessDesc *access,
				    size_t count)
{
	CUresult result = CUDA_SUCCESS;
	struct mapping *mapping;

	ENTER(NEEDS_INIT);
	STANDIN_LOCKED(EXCLUSIVE);
	if (!access || !count || !is_whole(address, size))
		return CUDA_ERROR_INVALID_VALUE;
	for (uint64_t at = address; at < address + size; at += mapping->size) {
		mapping = table_at(&standin.mappings, at);
		for (size_t i = 0; result == CUDA_SUCCESS && i < count; i++)
			result = check_access(&access[i], mapping);
	}
	for (uint64_t at = address; at < address + size; at += mapping->size) {
		mapping = table_at(&standin.mappings, at);
		for (size_t i = 0; result == CUDA_SUCCESS && i < count; i++)
			result = set_access(mapping, &access[i]);
	}
	return result;
}

STANDIN_API CUresult cuMemGetAccess(unsigned long long *flags, const CUmemLocation *location,
				    CUdeviceptr address)
{
	const struct table_entry *entry;
	const struct mapping *mapping;

	ENTER(NEEDS_INIT);
	STANDIN_LOCKED(SHARED);
	entry = table_find(&standin.mappings, address);
	if (!flags || !location || !entry || !is_location(location))
		return CUDA_ERROR_INVALID_VALUE;
	mapping = entry->object;
	*flags = location->type == CU_MEM_LOCATION_TYPE_HOST_NUMA ? mapping->cpu_access
								  : mapping->access[location->id];
	return CUDA_SUCCESS;
}

/* Of memory that was mapped, the single mapping; of cuMemAlloc, the allocation. */
STANDIN_API CUresult cuMemGetAddressRange_v2(CUdeviceptr *base, size_t *size, CUdeviceptr address)
{
	const struct table_entry *entry;

	ENTER(NEEDS_INIT);
	STANDIN_LOCKED(SHARED);
	entry = table_find(&standin.mappings, address);
	if (!entry)
		return CUDA_ERROR_NOT_FOUND;
	uint64_t asked = ((const struct mapping *)entry->object)->asked;

	if (base)
		*base = entry->base;
	if (size)
		*size = asked ? asked : entry->size;
	return CUDA_SUCCESS;
}

STANDIN_API CUresult cuMemRetainAllocationHandle(CUmemGenericAllocationHandle *handle,
						 void *address)
{
	const struct table_entry *entry;
	struct mapping *mapping;
	struct handle *known;

	ENTER(NEEDS_INIT);
	STANDIN_LOCKED(EXCLUSIVE);
	entry = table_find(&standin.mappings, (uintptr_t)address);
	if (!handle || !entry)
		return CUDA_ERROR_INVALID_VALUE;
	mapping = entry->object;
	if (mapping->whole_allocation)
		return CUDA_ERROR_INVALID_VALUE;
	known = table_at(&standin.handles, mapping->handle);
	if (known) {
		known->references++;
		*handle = mapping->handle;
		return CUDA_SUCCESS;
	}
	memory_get(mapping->memory);
	*handle = mapping->handle = handle_new(mapping->memory, mapping->kind);
	return CUDA_SUCCESS;
}

static int dmabuf_fd(const struct mapping *mapping, uint64_t size)
{
	int fd;

	if (settings.dmabuf == DMABUF_ON)
		return fcntl(mapping->memory->fd, F_DUPFD_CLOEXEC, 0);
	if (settings.dmabuf == DMABUF_NO_MMAP)
		return open("/dev/null", O_PATH | O_CLOEXEC);
	fd = memfd_create("unrelated", MFD_CLOEXEC);
	if (fd >= 0 && ftruncate(fd, (off_t)size)) {
		close(fd);
		fd = -1;
	}
	return fd;
}

STANDIN_API CUresult cuMemGetHandleForAddressRange(void *handle, CUdeviceptr address, size_t size,
						   CUmemRangeHandleType type,
						   unsigned long long flags)
{
	const struct mapping *mapping;
	int fd;

	ENTER(NEEDS_INIT);
	if (!handle || !size || (address | size) % 4096 ||
	    type != CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD || flags > 1)
		return CUDA_ERROR_INVALID_VALUE;
	if (settings.dmabuf == DMABUF_OFF || flags)
		return CUDA_ERROR_NOT_SUPPORTED;

	STANDIN_LOCKED(SHARED);
	mapping = table_at(&standin.mappings, address);
	if (!mapping || size > mapping->size || memory_is_host(mapping->memory))
		return CUDA_ERROR_INVALID_VALUE;
	fd = dmabuf_fd(mapping, size);
	if (fd < 0)
		return CUDA_ERROR_OPERATING_SYSTEM;
	memcpy(handle, &fd, sizeof(fd));
	return CUDA_SUCCESS;
}

int standin_range_fd(uint64_t address, uint64_t size, uint64_t *offset, unsigned *gpu)
{
	const struct table_entry *entry;
	const struct mapping *mapping;

	STANDIN_LOCKED(SHARED);
	entry = table_find(&standin.mappings, address);
	if (!entry || size > entry->base + entry->size - address)
		return -1;
	mapping = entry->object;
	if (!mapping->memory->rdma) /* nor is host-located memory */
		return -1;
	*offset = address - entry->base;
	*gpu = standin_physical((unsigned)mapping->memory->device);
	return fcntl(mapping->memory->fd, F_DUPFD_CLOEXEC, 0);
}
