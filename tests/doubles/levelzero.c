/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* The double of libze_loader.so.1: one driver with a processor that is no GPU before its GPUs. */
#include <string.h>

#include "client/gpu/levelzero_abi.h"
#include "tests/doubles/memory.h"

#define INVALID_ARGUMENT 0x78000004
#define TYPE_NPU	 5

struct gm_ze_driver {
	int unused;
};
struct gm_ze_context {
	int unused;
};
struct gm_ze_device {
	int gpu; /* -1: no GPU */
};

static struct gm_ze_driver only;
static struct gm_ze_context default_context, made_context;
static struct gm_ze_device devices[] = {{-1}, {0}, {1}};
#define DEVICES (sizeof(devices) / sizeof(devices[0]))

static void expect(int stype, int wanted)
{
	if (stype != wanted)
		double_misuse("the type of a structure is wrong");
}

DOUBLE_API gm_ze_result_t zeInit(uint32_t flags)
{
	(void)flags;
	return double_fails("zeInit") ? GM_ZE_ERROR_UNINITIALIZED : GM_ZE_SUCCESS;
}

DOUBLE_API gm_ze_result_t zeDriverGet(uint32_t *count, gm_ze_driver_t *drivers)
{
	if (*count)
		drivers[0] = &only;
	*count = 1;
	return GM_ZE_SUCCESS;
}

DOUBLE_API gm_ze_result_t zeDeviceGet(gm_ze_driver_t driver, uint32_t *count, gm_ze_device_t *found)
{
	(void)driver;
	for (uint32_t i = 0; i < *count && i < DEVICES; i++)
		found[i] = &devices[i];
	*count = DEVICES;
	return GM_ZE_SUCCESS;
}

DOUBLE_API gm_ze_result_t zeDeviceGetProperties(gm_ze_device_t device,
						gm_ze_device_properties_t *properties)
{
	expect(properties->stype, GM_ZE_STRUCTURE_DEVICE_PROPERTIES);
	properties->type = device->gpu < 0 ? TYPE_NPU : GM_ZE_DEVICE_TYPE_GPU;
	double_uuid(device->gpu < 0 ? DOUBLE_OWN : device->gpu, properties->uuid);
	return GM_ZE_SUCCESS;
}

DOUBLE_API gm_ze_result_t zeDevicePciGetPropertiesExt(gm_ze_device_t device,
						      gm_ze_pci_ext_properties_t *properties)
{
	expect(properties->stype, GM_ZE_STRUCTURE_PCI_EXT_PROPERTIES);
	properties->address.bus = 0xc0 + (uint32_t)device->gpu;
	return GM_ZE_SUCCESS;
}

DOUBLE_API gm_ze_context_t zeDriverGetDefaultContext(gm_ze_driver_t driver)
{
	(void)driver;
	return double_setting("GPUMEM_DOUBLE_ALONE") ? NULL : &default_context;
}

DOUBLE_API gm_ze_result_t zeContextCreate(gm_ze_driver_t driver, const gm_ze_context_desc_t *info,
					  gm_ze_context_t *context)
{
	(void)driver;
	expect(info->stype, GM_ZE_STRUCTURE_CONTEXT_DESC);
	*context = &made_context;
	return GM_ZE_SUCCESS;
}

static void context_check(gm_ze_context_t context)
{
	if (context != (double_setting("GPUMEM_DOUBLE_ALONE") ? &made_context : &default_context))
		double_misuse("another context than the program's");
}

DOUBLE_API gm_ze_result_t zeMemAllocDevice(gm_ze_context_t context,
					   const gm_ze_device_mem_alloc_desc_t *info, size_t bytes,
					   size_t alignment, gm_ze_device_t device, void **address)
{
	const gm_ze_external_memory_import_fd_t *from = info->pNext;

	context_check(context);
	expect(info->stype, GM_ZE_STRUCTURE_DEVICE_MEM_ALLOC_DESC);
	expect(from->stype, GM_ZE_STRUCTURE_EXTERNAL_MEMORY_IMPORT_FD);
	if (double_fails("zeMemAllocDevice") || device->gpu != DOUBLE_OWN || alignment ||
	    from->flags != GM_ZE_EXTERNAL_MEMORY_OPAQUE_FD)
		return INVALID_ARGUMENT;
	*address = double_import(from->fd, bytes);
	return *address ? GM_ZE_SUCCESS : INVALID_ARGUMENT;
}

/* A driver without the extension, with GPUMEM_DOUBLE_ALONE. */
DOUBLE_API gm_ze_result_t zeMemFreeExt(gm_ze_context_t context,
				       const gm_ze_memory_free_ext_desc_t *how, void *address)
{
	context_check(context);
	expect(how->stype, GM_ZE_STRUCTURE_MEMORY_FREE_EXT_DESC);
	if (how->freePolicy != GM_ZE_MEMORY_FREE_BLOCKING)
		double_misuse("memory is freed without a wait");
	if (double_setting("GPUMEM_DOUBLE_ALONE"))
		return GM_ZE_ERROR_UNSUPPORTED_FEATURE;
	double_free(address);
	return GM_ZE_SUCCESS;
}

DOUBLE_API gm_ze_result_t zeMemFree(gm_ze_context_t context, void *address)
{
	context_check(context);
	if (!double_setting("GPUMEM_DOUBLE_ALONE"))
		double_misuse("memory is freed without a wait");
	double_free(address);
	return GM_ZE_SUCCESS;
}
