/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* Host memory that devices may use, allocations of the older kind, and questions about
 * pointers. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "tests/driver/standin.h"

enum host_pinned host_pinned(uint64_t address, uint64_t size, const struct context *context)
{
	const struct table_entry *entry;
	const struct pinned *pinned;

	STANDIN_LOCKED(SHARED);
	entry = table_find(&standin.pinned, address);
	if (!entry || size > entry->base + entry->size - address)
		return table_overlaps(&standin.pinned, address, size) ? PINNED_IN_PART : NOT_PINNED;
	pinned = entry->object;
	return pinned->portable || pinned->context == context ? PINNED : NOT_PINNED;
}

static void pin(uint64_t base, uint64_t size, bool portable, bool allocated)
{
	struct pinned *pinned = calloc(1, sizeof(*pinned));

	if (!pinned)
		abort();
	*pinned = (struct pinned){base, size, context_current(), portable, allocated};
	table_add(&standin.pinned, base, size, pinned);
}

static void unpin(struct pinned *pinned)
{
	table_remove(&standin.pinned, pinned->base);
	if (pinned->allocated)
		munmap((void *)(uintptr_t)pinned->base, pinned->size);
	free(pinned);
}

void host_forget_context(const struct context *context)
{
	for (size_t i = standin.pinned.count; i-- > 0;) {
		struct pinned *pinned = standin.pinned.entries[i].object;

		if (pinned->context != context)
			continue;
		if (device_state(context->device) == CUDA_SUCCESS)
			standin_violation("a context goes with host memory still pinned in it");
		unpin(pinned);
	}
}

/* Whether the range can be pinned. Faults the range's pages in, as pinning does. */
static bool can_pin(uint64_t base, uint64_t size, unsigned flags)
{
	int advice =
	    flags & CU_MEMHOSTREGISTER_READ_ONLY ? MADV_POPULATE_READ : MADV_POPULATE_WRITE;
	uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE);
	uint64_t start = base & ~(page - 1), pages = (base + size - start + page - 1) / page;
	unsigned char *resident;
	bool mapped;

	if (!madvise((void *)(uintptr_t)start, pages * page, advice))
		return true;
	if (errno != EINVAL || !madvise((void *)(uintptr_t)start, page, MADV_POPULATE_READ) ||
	    errno != EINVAL)
		return false;
	/* The kernel is older than 5.14. */
	resident = malloc(pages);
	mapped = resident && !mincore((void *)(uintptr_t)start, pages * page, resident);
	free(resident);
	return mapped;
}

STANDIN_API CUresult cuMemHostRegister_v2(void *host, size_t size, unsigned int flags)
{
	uint64_t base = (uintptr_t)host;

	ENTER(NEEDS_CONTEXT);
	if (!host || !size || flags > 0xf || !can_pin(base, size, flags))
		return CUDA_ERROR_INVALID_VALUE;
	STANDIN_LOCKED(EXCLUSIVE);
	if (table_overlaps(&standin.reservations, base, size))
		return CUDA_ERROR_INVALID_VALUE;
	if (table_overlaps(&standin.pinned, base, size))
		return CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED;
	pin(base, size, flags & CU_MEMHOSTREGISTER_PORTABLE, false);
	return CUDA_SUCCESS;
}

/* The address space is unified: the device address equals the host address. */
STANDIN_API CUresult cuMemHostGetDevicePointer_v2(CUdeviceptr *address, void *host,
						  unsigned int flags)
{
	ENTER(NEEDS_CONTEXT);
	if (!address || !host || flags)
		return CUDA_ERROR_INVALID_VALUE;
	STANDIN_LOCKED(SHARED);
	if (!table_find(&standin.pinned, (uintptr_t)host))
		return CUDA_ERROR_INVALID_VALUE;
	*address = (uintptr_t)host;
	return CUDA_SUCCESS;
}

/* Waits for all work, as the real call does. */
STANDIN_API CUresult cuMemHostUnregister(void *host)
{
	CUresult entered = standin_enter(__func__, NEEDS_CONTEXT, ANY_DEVICE);
	struct pinned *pinned;

	if (standin_refused(entered) || entered == CUDA_ERROR_INVALID_CONTEXT)
		return entered;
	streams_wait_all();

	STANDIN_LOCKED(EXCLUSIVE);
	pinned = table_at(&standin.pinned, (uintptr_t)host);
	if (!table_find(&standin.pinned, (uintptr_t)host))
		return CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED;
	if (!pinned || pinned->allocated)
		return CUDA_ERROR_INVALID_VALUE;
	unpin(pinned);
	return entered;
}

STANDIN_API CUresult cuMemHostAlloc(void **host, size_t size, unsigned int flags)
{
	void *mapped;

	ENTER(NEEDS_CONTEXT);
	if (!host || !size || flags > 7)
		return CUDA_ERROR_INVALID_VALUE;
	size = (size + 4095) & ~4095ULL;
	mapped = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (mapped == MAP_FAILED)
		return CUDA_ERROR_OUT_OF_MEMORY;
	if (settings.fill >= 0)
		memset(mapped, settings.fill, size);
	STANDIN_LOCKED(EXCLUSIVE);
	pin((uintptr_t)mapped, size, flags & CU_MEMHOSTALLOC_PORTABLE, true);
	*host = mapped;
	return CUDA_SUCCESS;
}

STANDIN_API CUresult cuMemFreeHost(void *host)
{
	CUresult entered = standin_enter(__func__, NEEDS_CONTEXT, ANY_DEVICE);
	struct pinned *pinned;

	if (standin_refused(entered) || entered == CUDA_ERROR_INVALID_CONTEXT)
		return entered;
	STANDIN_LOCKED(EXCLUSIVE);
	pinned = table_at(&standin.pinned, (uintptr_t)host);
	if (!pinned || !pinned->allocated)
		return CUDA_ERROR_INVALID_VALUE;
	unpin(pinned);
	return entered;
}

CUresult allocation_map(struct memory *memory, CUdeviceptr *address)
{
	struct mapping *mapping = calloc(1, sizeof(*mapping));
	uint64_t base;
	CUresult result = reserve(memory->size, 0, 0, &base);

	if (result != CUDA_SUCCESS || !mapping) {
		free(mapping);
		memory_put_locked(memory);
		return CUDA_ERROR_OUT_OF_MEMORY;
	}
	mapping->base = base;
	mapping->size = memory->size;
	mapping->memory = memory;
	mapping->whole_allocation = true;
	mapping->access[context_device()] = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
	((struct reservation *)table_at(&standin.reservations, base))->whole_allocation = true;
	table_add(&standin.mappings, base, memory->size, mapping);
	*address = base;
	return CUDA_SUCCESS;
}

void allocation_unmap(struct mapping *mapping)
{
	table_remove(&standin.mappings, mapping->base);
	unreserve(mapping->base, mapping->size);
	memory_put_locked(mapping->memory);
	free(mapping);
}

STANDIN_API CUresult cuMemAlloc_v2(CUdeviceptr *address, size_t size)
{
	struct memory *memory;
	CUresult result;
	size_t asked = size;

	ENTER(NEEDS_CONTEXT);
	if (!address || !size)
		return CUDA_ERROR_INVALID_VALUE;
	size = (size + STANDIN_GRANULARITY - 1) & ~(STANDIN_GRANULARITY - 1);

	STANDIN_LOCKED(EXCLUSIVE);
	result = memory_new((int)context_device(), size, &memory);
	if (result != CUDA_SUCCESS)
		return result;
	memory->rdma = true;
	result = allocation_map(memory, address);
	if (result == CUDA_SUCCESS)
		((struct mapping *)table_at(&standin.mappings, *address))->asked = asked;
	return result;
}

STANDIN_API CUresult cuMemFree_v2(CUdeviceptr address)
{
	struct mapping *mapping;

	ENTER(NEEDS_CONTEXT);
	if (!address)
		return CUDA_SUCCESS;
	streams_wait_context(context_current());

	STANDIN_LOCKED(EXCLUSIVE);
	mapping = table_at(&standin.mappings, address);
	if (!mapping || !mapping->whole_allocation || mapping->opens)
		return CUDA_ERROR_INVALID_VALUE;
	allocation_unmap(mapping);
	return CUDA_SUCCESS;
}

static CUresult device_pointer_attribute(void *data, CUpointer_attribute attribute,
					 const struct table_entry *range,
					 const struct mapping *mapping, CUdeviceptr address)
{
	bool host = mapping && memory_is_host(mapping->memory);

	switch ((int)attribute) {
	case CU_POINTER_ATTRIBUTE_MEMORY_TYPE:
		*(unsigned *)data = host ? CU_MEMORYTYPE_HOST : CU_MEMORYTYPE_DEVICE;
		return CUDA_SUCCESS;
	case CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL:
		*(int *)data = host ? 0 : mapping ? mapping->memory->device : -1;
		return CUDA_SUCCESS;
	case CU_POINTER_ATTRIBUTE_DEVICE_POINTER:
		if (!mapping)
			return CUDA_ERROR_INVALID_VALUE;
		*(CUdeviceptr *)data = address;
		return CUDA_SUCCESS;
	case CU_POINTER_ATTRIBUTE_HOST_POINTER:
		if (!mapping || !mapping->cpu_access)
			return CUDA_ERROR_INVALID_VALUE;
		*(void **)data = (void *)(uintptr_t)address;
		return CUDA_SUCCESS;
	case CU_POINTER_ATTRIBUTE_RANGE_START_ADDR:
		*(uint64_t *)data = range->base;
		return CUDA_SUCCESS;
	case CU_POINTER_ATTRIBUTE_RANGE_SIZE:
		*(size_t *)data = range->size;
		return CUDA_SUCCESS;
	case CU_POINTER_ATTRIBUTE_MAPPED:
		*(unsigned char *)data = mapping != NULL;
		return CUDA_SUCCESS;
	case CU_POINTER_ATTRIBUTE_IS_GPU_DIRECT_RDMA_CAPABLE:
		*(unsigned char *)data = mapping && mapping->memory->rdma;
		return CUDA_SUCCESS;
	default:
		return CUDA_ERROR_NOT_SUPPORTED;
	}
}

STANDIN_API CUresult cuPointerGetAttribute(void *data, CUpointer_attribute attribute,
					   CUdeviceptr address)
{
	const struct table_entry *range, *entry;

	ENTER(NEEDS_INIT);
	if (!data)
		return CUDA_ERROR_INVALID_VALUE;
	STANDIN_LOCKED(SHARED);
	range = table_find(&standin.reservations, address);
	if (range) {
		entry = table_find(&standin.mappings, address);
		return device_pointer_attribute(data, attribute, range,
						entry ? entry->object : NULL, address);
	}
	if (!table_find(&standin.pinned, address) || attribute != CU_POINTER_ATTRIBUTE_MEMORY_TYPE)
		return CUDA_ERROR_INVALID_VALUE;
	*(unsigned *)data = CU_MEMORYTYPE_HOST;
	return CUDA_SUCCESS;
}
