/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* The double of libamdhip64.so.6, as ROCm's sources are: an import is for the current device, its
 * descriptor stays the caller's, and a mapped buffer has a reference to the import. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "client/gpu/hip_abi.h"
#include "tests/doubles/memory.h"

#define INVALID_VALUE  1
#define INVALID_DEVICE 101

struct gm_hipExternalMemory_st {
	void *address;
	unsigned references;
	struct gm_hipExternalMemory_st *next; /* of those with a mapped buffer */
};

static struct gm_hipExternalMemory_st *buffers;
static __thread int current;

DOUBLE_API gm_hipError_t hipGetDeviceCount(int *count)
{
	*count = DOUBLE_GPUS;
	return double_fails("hipGetDeviceCount") ? GM_HIP_ERROR_NO_DEVICE : GM_HIP_SUCCESS;
}

DOUBLE_API gm_hipError_t hipGetDevice(int *device)
{
	*device = current;
	return GM_HIP_SUCCESS;
}

DOUBLE_API gm_hipError_t hipSetDevice(int device)
{
	if (device < 0 || device >= DOUBLE_GPUS)
		return INVALID_DEVICE;
	current = device;
	return GM_HIP_SUCCESS;
}

DOUBLE_API gm_hipError_t hipDeviceGetUuid(gm_hipUUID *uuid, int device)
{
	double_uuid(device, (uint8_t *)uuid->bytes);
	return GM_HIP_SUCCESS;
}

DOUBLE_API gm_hipError_t hipDeviceGetPCIBusId(char *pci, int room, int device)
{
	snprintf(pci, (size_t)room, "0000:%02x:00.0", 0xc0 + device);
	return GM_HIP_SUCCESS;
}

DOUBLE_API gm_hipError_t hipDeviceCanAccessPeer(int *can, int device, int peer)
{
	if (device == peer)
		double_misuse("hipDeviceCanAccessPeer of a device and itself");
	*can = !double_setting("GPUMEM_DOUBLE_ALONE");
	return GM_HIP_SUCCESS;
}

static void memory_unref(struct gm_hipExternalMemory_st *memory)
{
	if (--memory->references)
		return;
	double_free(memory->address);
	free(memory);
}

DOUBLE_API gm_hipError_t hipImportExternalMemory(gm_hipExternalMemory_t *memory,
						 const gm_hipExternalMemoryHandleDesc *from)
{
	if (from->type != GM_HIP_EXTERNAL_MEMORY_HANDLE_TYPE_OPAQUE_FD || from->size == 0 ||
	    from->flags || current != DOUBLE_OWN || double_fails("hipImportExternalMemory"))
		return INVALID_VALUE;
	void *address = double_import(from->handle.fd, from->size);
	if (!address)
		return GM_HIP_ERROR_OUT_OF_MEMORY;
	*memory = calloc(1, sizeof(**memory));
	**memory = (struct gm_hipExternalMemory_st){.address = address, .references = 1};
	return GM_HIP_SUCCESS;
}

DOUBLE_API gm_hipError_t hipExternalMemoryGetMappedBuffer(
    void **address, gm_hipExternalMemory_t memory, const gm_hipExternalMemoryBufferDesc *part)
{
	if (part->flags || part->offset || double_fails("hipExternalMemoryGetMappedBuffer"))
		return INVALID_VALUE;
	memory->references++;
	memory->next = buffers;
	buffers = memory;
	*address = memory->address;
	return GM_HIP_SUCCESS;
}

DOUBLE_API gm_hipError_t hipDestroyExternalMemory(gm_hipExternalMemory_t memory)
{
	memory_unref(memory);
	return GM_HIP_SUCCESS;
}

DOUBLE_API gm_hipError_t hipFree(void *address)
{
	for (struct gm_hipExternalMemory_st **at = &buffers; *at; at = &(*at)->next) {
		struct gm_hipExternalMemory_st *memory = *at;
		if (memory->address != address)
			continue;
		*at = memory->next;
		memory_unref(memory);
		return double_fails("hipFree") ? INVALID_VALUE : GM_HIP_SUCCESS;
	}
	return INVALID_VALUE;
}

/* The program's current device is not the library's to change. */
__attribute__((destructor)) static void hip_end(void)
{
	if (current != 0)
		fprintf(stderr, "double: device %d is left current\n", current);
}
