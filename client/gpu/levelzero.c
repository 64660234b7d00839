/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* Device addresses for Intel's GPUs, by Level Zero. Tested against a double of the library only
 * (tests/doubles/levelzero.c): no Intel hardware has run this code. */
#include <errno.h>
#include <pthread.h>
#include <stdio.h>

#include "client/core/error.h"
#include "client/gpu/external.h"
#include "client/gpu/levelzero_abi.h"
#include "common/cleanup.h"
#include "common/driver_library.h"

#define LIBRARY	    "libze_loader.so.1"
#define REASON_MAX  160
#define DRIVERS_MAX 8
#define DEVICES_MAX 64

#define FIELD(need, result, name, arguments) result(*name) arguments;
struct levelzero {
	void *library;
	LEVELZERO_FUNCTIONS(FIELD)
	uint32_t n_drivers;
	gm_ze_driver_t drivers[DRIVERS_MAX];
	gm_ze_context_t contexts[DRIVERS_MAX]; /* NULL: not made yet */
};

#define ROW(need, result, name, arguments) {#name, offsetof(struct levelzero, name), need},
static const struct driver_symbol ze_symbols[] = {LEVELZERO_FUNCTIONS(ROW)};

static pthread_mutex_t levelzero_lock = PTHREAD_MUTEX_INITIALIZER;
static struct levelzero loaded_ze; /* under levelzero_lock; constant later, but for contexts */

static int levelzero_result(gm_ze_result_t result, const char *call)
{
	switch (result) {
	case GM_ZE_SUCCESS:
		return 0;
	case GM_ZE_ERROR_UNINITIALIZED:
	case GM_ZE_ERROR_DEPENDENCY_UNAVAILABLE:
		return client_fail(ENODEV, "%s: Level Zero has no driver here", call);
	case GM_ZE_ERROR_UNSUPPORTED_FEATURE:
	case GM_ZE_ERROR_UNSUPPORTED_ENUMERATION:
		return client_fail(ENOTSUP, "%s: Level Zero error %#x", call, (unsigned)result);
	case GM_ZE_ERROR_OUT_OF_DEVICE_MEMORY:
		return client_fail(ENOSPC, "%s: the GPU has no room", call);
	default:
		return client_fail(EIO, "%s: Level Zero error %#x", call, (unsigned)result);
	}
}

/* Level Zero has no current context. */
static bool levelzero_has_context(void)
{
	return driver_is_loaded(LIBRARY);
}

static int library_open(struct levelzero *ze)
{
	char reason[REASON_MAX];

	if (driver_load(LIBRARY, ze_symbols, sizeof(ze_symbols) / sizeof(ze_symbols[0]), ze, reason,
			sizeof(reason), &ze->library) < 0)
		return client_fail(ENODEV, "no Level Zero: %s", reason);
	ze->n_drivers = DRIVERS_MAX;
	int rc = levelzero_result(ze->zeInit(GM_ZE_INIT_GPU_ONLY), "zeInit");
	if (rc == 0)
		rc = levelzero_result(ze->zeDriverGet(&ze->n_drivers, ze->drivers), "zeDriverGet");
	if (rc == 0 && ze->n_drivers > DRIVERS_MAX)
		ze->n_drivers = DRIVERS_MAX;
	return rc;
}

static int levelzero_get(struct levelzero **ze)
{
	scoped_lock(&levelzero_lock);
	if (!loaded_ze.library) {
		struct levelzero new_ze = {0};
		int rc = library_open(&new_ze);
		if (rc < 0)
			return rc;
		loaded_ze = new_ze;
	}
	*ze = &loaded_ze;
	return 0;
}

static void pci_print(const struct levelzero *ze, gm_ze_device_t device, char pci[EXTERNAL_PCI_MAX])
{
	gm_ze_pci_ext_properties_t found = {.stype = GM_ZE_STRUCTURE_PCI_EXT_PROPERTIES};

	pci[0] = '\0';
	if (ze->zeDevicePciGetPropertiesExt &&
	    ze->zeDevicePciGetPropertiesExt(device, &found) == GM_ZE_SUCCESS)
		snprintf(pci, EXTERNAL_PCI_MAX, "%04x:%02x:%02x.%x", found.address.domain,
			 found.address.bus, found.address.device, found.address.function);
}

/* Counts the GPUs before the file's GPU. True: found, as memory->device. */
static bool driver_search(const struct levelzero *ze, gm_ze_driver_t driver,
			  const uint8_t file_uuid[16], struct external_memory *memory)
{
	gm_ze_device_t devices[DEVICES_MAX];
	char pci[EXTERNAL_PCI_MAX];
	uint32_t n = DEVICES_MAX;

	if (ze->zeDeviceGet(driver, &n, devices) != GM_ZE_SUCCESS)
		return false;
	for (uint32_t i = 0; i < n && i < DEVICES_MAX; i++) {
		gm_ze_device_properties_t found = {.stype = GM_ZE_STRUCTURE_DEVICE_PROPERTIES};

		if (ze->zeDeviceGetProperties(devices[i], &found) != GM_ZE_SUCCESS ||
		    found.type != GM_ZE_DEVICE_TYPE_GPU)
			continue;
		pci_print(ze, devices[i], pci);
		if (external_is_gpu(file_uuid, found.uuid, pci)) {
			memory->device = devices[i];
			return true;
		}
		memory->number++;
	}
	return false;
}

/* Memory is of a context: the driver's default context, which programs can use too, or a context
 * of the library for all files. */
static int context_get(struct levelzero *ze, uint32_t driver, void **context)
{
	const gm_ze_context_desc_t plain = {.stype = GM_ZE_STRUCTURE_CONTEXT_DESC};
	int rc = 0;

	scoped_lock(&levelzero_lock);
	if (!ze->contexts[driver] && ze->zeDriverGetDefaultContext)
		ze->contexts[driver] = ze->zeDriverGetDefaultContext(ze->drivers[driver]);
	if (!ze->contexts[driver])
		rc = levelzero_result(
		    ze->zeContextCreate(ze->drivers[driver], &plain, &ze->contexts[driver]),
		    "zeContextCreate");
	*context = ze->contexts[driver];
	return rc;
}

static int levelzero_find(const uint8_t uuid[16], struct external_memory *memory)
{
	struct levelzero *ze;

	int rc = levelzero_get(&ze);
	if (rc < 0)
		return rc;
	for (uint32_t i = 0; i < ze->n_drivers; i++)
		if (driver_search(ze, ze->drivers[i], uuid, memory))
			return context_get(ze, i, &memory->context);
	if (memory->number == 0)
		return client_fail(ENODEV, "Level Zero has no GPU here");
	return client_fail(ENXIO,
			   "the file's GPU is none of Level Zero's %d GPUs in this process: "
			   "check ZE_AFFINITY_MASK",
			   memory->number);
}

/* Intel's driver takes a dma-buf by that name in every version, and leaves the descriptor to the
 * caller (ContextImp::allocDeviceMem and DriverHandleImp::importFdHandle in compute-runtime). */
static int levelzero_import(struct external_memory *memory, int fd, uint64_t bytes)
{
	const gm_ze_external_memory_import_fd_t from = {
	    .stype = GM_ZE_STRUCTURE_EXTERNAL_MEMORY_IMPORT_FD,
	    .flags = external_is_dmabuf(fd) ? GM_ZE_EXTERNAL_MEMORY_DMA_BUF
					    : GM_ZE_EXTERNAL_MEMORY_OPAQUE_FD,
	    .fd = fd};
	const gm_ze_device_mem_alloc_desc_t info = {.stype = GM_ZE_STRUCTURE_DEVICE_MEM_ALLOC_DESC,
						    .pNext = &from};
	struct levelzero *ze;
	void *address = NULL;

	int rc = levelzero_get(&ze);
	if (rc == 0)
		rc = levelzero_result(ze->zeMemAllocDevice(memory->context, &info, bytes, 0,
							   memory->device, &address),
				      "zeMemAllocDevice with a descriptor");
	memory->address = (uint64_t)(uintptr_t)address;
	return rc;
}

/* zeMemFree does not wait. At the end of the process Level Zero has freed all. */
static int levelzero_release(const struct external_memory *memory)
{
	const gm_ze_memory_free_ext_desc_t wait = {.stype = GM_ZE_STRUCTURE_MEMORY_FREE_EXT_DESC,
						   .freePolicy = GM_ZE_MEMORY_FREE_BLOCKING};
	void *address = (void *)(uintptr_t)memory->address;
	gm_ze_result_t result = GM_ZE_ERROR_UNSUPPORTED_FEATURE;
	struct levelzero *ze;

	int rc = levelzero_get(&ze);
	if (rc < 0)
		return rc;
	if (ze->zeMemFreeExt)
		result = ze->zeMemFreeExt(memory->context, &wait, address);
	if (result == GM_ZE_ERROR_UNSUPPORTED_FEATURE)
		result = ze->zeMemFree(memory->context, address);
	return result == GM_ZE_ERROR_UNINITIALIZED ? 0 : levelzero_result(result, "zeMemFree");
}

static const struct external_driver levelzero_driver = {.ops = &client_gpu_levelzero,
							.name = "Level Zero",
							.find = levelzero_find,
							.import = levelzero_import,
							.release = levelzero_release};

static int levelzero_device_map(struct client_device_map *map, const struct client_layout *layout)
{
	return external_map(&levelzero_driver, map, layout);
}

static int levelzero_device_unmap(struct client_device_map *map, const struct client_layout *layout)
{
	(void)layout;
	return external_unmap(&levelzero_driver, map);
}

const struct client_gpu_ops client_gpu_levelzero = {
    .name = "levelzero",
    .device_map = levelzero_device_map,
    .device_extend = external_extend,
    .device_unmap = levelzero_device_unmap,
    .has_context = levelzero_has_context,
    .device_forget = external_forget,
    .device_number = external_number,
};
