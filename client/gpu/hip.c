/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* Device addresses for AMD's GPUs, by HIP. Tested against a double of the library only
 * (tests/doubles/hip.c): no AMD hardware has run this code. */
#include <errno.h>
#include <pthread.h>
#include <stdio.h>

#include "client/core/error.h"
#include "client/gpu/external.h"
#include "client/gpu/hip_abi.h"
#include "common/cleanup.h"
#include "common/driver_library.h"

#define REASON_MAX 160

#define FIELD(need, name, arguments) gm_hipError_t(*name) arguments;
struct hip {
	void *library;
	HIP_FUNCTIONS(FIELD)
};

#define ROW(need, name, arguments) {#name, offsetof(struct hip, name), need},
static const struct driver_symbol hip_symbols[] = {HIP_FUNCTIONS(ROW)};
#define SYMBOLS (sizeof(hip_symbols) / sizeof(hip_symbols[0]))

/* By ROCm's releases with the functions, newest first. PyTorch's packages contain a copy of the
 * library, by one of these names. */
static const char *const library_names[] = {"libamdhip64.so.7", "libamdhip64.so.6",
					    "libamdhip64.so.5", "libamdhip64.so"};
#define NAMES (sizeof(library_names) / sizeof(library_names[0]))

static pthread_mutex_t hip_lock = PTHREAD_MUTEX_INITIALIZER;
static struct hip loaded_hip; /* written once, under hip_lock */

/* The name of the library that the program has loaded. NULL: none. */
static const char *loaded_name(void)
{
	for (unsigned i = 0; i < NAMES; i++)
		if (driver_is_loaded(library_names[i]))
			return library_names[i];
	return NULL;
}

/* HIP makes a context for a thread when the thread needs one. */
static bool hip_has_context(void)
{
	return loaded_name() != NULL;
}

/* Of several releases, the program's own is used. */
static int library_load(struct hip *hip, char *reason)
{
	const char *name = loaded_name();
	int rc = -ENODEV;

	if (name)
		return driver_load(name, hip_symbols, SYMBOLS, hip, reason, REASON_MAX,
				   &hip->library);
	for (unsigned i = 0; rc < 0 && i < NAMES; i++)
		rc = driver_load(library_names[i], hip_symbols, SYMBOLS, hip, reason, REASON_MAX,
				 &hip->library);
	return rc;
}

static int hip_get(const struct hip **hip)
{
	char reason[REASON_MAX];

	scoped_lock(&hip_lock);
	if (!loaded_hip.library) {
		struct hip new_hip = {0};
		if (library_load(&new_hip, reason) < 0)
			return client_fail(ENODEV, "no HIP runtime: %s", reason);
		loaded_hip = new_hip;
	}
	*hip = &loaded_hip;
	return 0;
}

static int hip_result(gm_hipError_t result, const char *call)
{
	switch (result) {
	case GM_HIP_SUCCESS:
		return 0;
	case GM_HIP_ERROR_NO_DEVICE:
		return client_fail(ENODEV, "%s: HIP has no GPU here", call);
	case GM_HIP_ERROR_OUT_OF_MEMORY:
		return client_fail(ENOSPC, "%s: HIP has no room for the mapping", call);
	case GM_HIP_ERROR_NOT_SUPPORTED:
		return client_fail(ENOTSUP, "%s: HIP error %d", call, result);
	default:
		return client_fail(EIO, "%s: HIP error %d", call, result);
	}
}

static bool device_is_gpu(const struct hip *hip, int device, const uint8_t file_uuid[16])
{
	char pci[EXTERNAL_PCI_MAX] = "";
	gm_hipUUID uuid;
	bool has = hip->hipDeviceGetUuid && hip->hipDeviceGetUuid(&uuid, device) == GM_HIP_SUCCESS;

	if (hip->hipDeviceGetPCIBusId(pci, sizeof(pci), device) != GM_HIP_SUCCESS)
		pci[0] = '\0';
	pci[sizeof(pci) - 1] = '\0';
	return external_is_gpu(file_uuid, has ? (const uint8_t *)uuid.bytes : NULL, pci);
}

static int hip_find(const uint8_t uuid[16], struct external_memory *memory)
{
	const struct hip *hip;
	int count = 0;

	int rc = hip_get(&hip);
	if (rc == 0)
		rc = hip_result(hip->hipGetDeviceCount(&count), "hipGetDeviceCount");
	if (rc < 0)
		return rc;
	for (int i = 0; i < count; i++) {
		if (!device_is_gpu(hip, i, uuid))
			continue;
		memory->number = i;
		return 0;
	}
	return client_fail(ENXIO,
			   "the file's GPU is none of HIP's %d devices in this process: "
			   "check HIP_VISIBLE_DEVICES",
			   count);
}

/* Access of a peer is for the program to enable, by hipDeviceEnablePeerAccess. */
static int hip_reach(const struct external_memory *memory)
{
	const struct hip *hip;
	int current = 0, can = 0;

	int rc = hip_get(&hip);
	if (rc == 0)
		rc = hip_result(hip->hipGetDevice(&current), "hipGetDevice");
	if (rc < 0 || current == memory->number)
		return rc;
	rc = hip_result(hip->hipDeviceCanAccessPeer(&can, current, memory->number),
			"hipDeviceCanAccessPeer");
	if (rc == 0 && !can)
		rc = client_fail(ENOTSUP,
				 "HIP's current device %d cannot reach the memory of the file's "
				 "GPU, device %d",
				 current, memory->number);
	return rc;
}

/* The mapped buffer has a reference to the import: hipFree and hipDestroyExternalMemory are needed.
 */
static int buffer_map(const struct hip *hip, struct external_memory *memory, uint64_t bytes)
{
	const gm_hipExternalMemoryBufferDesc whole = {.size = bytes};
	void *address = NULL;

	int rc = hip_result(hip->hipExternalMemoryGetMappedBuffer(&address, memory->handle, &whole),
			    "hipExternalMemoryGetMappedBuffer");
	if (rc < 0)
		hip->hipDestroyExternalMemory(memory->handle);
	memory->address = (uint64_t)(uintptr_t)address;
	return rc;
}

/* ROCm's runtime imports for the current device, and leaves the descriptor to the caller
 * (hipImportExternalMemory and roc::Memory::interopMapBuffer in ROCm's clr). */
static int hip_import(struct external_memory *memory, int fd, uint64_t bytes)
{
	const gm_hipExternalMemoryHandleDesc from = {
	    .type = GM_HIP_EXTERNAL_MEMORY_HANDLE_TYPE_OPAQUE_FD, .handle.fd = fd, .size = bytes};
	gm_hipExternalMemory_t imported = NULL;
	const struct hip *hip;
	int current = 0;

	int rc = hip_get(&hip);
	if (rc == 0)
		rc = hip_result(hip->hipGetDevice(&current), "hipGetDevice");
	if (rc == 0)
		rc = hip_result(hip->hipSetDevice(memory->number), "hipSetDevice");
	if (rc < 0)
		return rc;
	rc = hip_result(hip->hipImportExternalMemory(&imported, &from), "hipImportExternalMemory");
	memory->handle = imported;
	if (rc == 0)
		rc = buffer_map(hip, memory, bytes);
	hip->hipSetDevice(current);
	return rc;
}

/* For the end of the process, when HIP has freed all. */
static int hip_gave_back(gm_hipError_t result, const char *call)
{
	return result == GM_HIP_ERROR_DEINITIALIZED ? 0 : hip_result(result, call);
}

/* hipFree waits for the device. */
static int hip_release(const struct external_memory *memory)
{
	const struct hip *hip;

	int rc = hip_get(&hip);
	if (rc < 0)
		return rc;
	rc = hip_gave_back(hip->hipFree((void *)(uintptr_t)memory->address), "hipFree");
	int destroyed = hip_gave_back(hip->hipDestroyExternalMemory(memory->handle),
				      "hipDestroyExternalMemory");
	return rc < 0 ? rc : destroyed;
}

static const struct external_driver hip_driver = {.ops = &client_gpu_hip,
						  .name = "HIP",
						  .find = hip_find,
						  .reach = hip_reach,
						  .import = hip_import,
						  .release = hip_release};

static int hip_device_map(struct client_device_map *map, const struct client_layout *layout)
{
	return external_map(&hip_driver, map, layout);
}

static int hip_device_unmap(struct client_device_map *map, const struct client_layout *layout)
{
	(void)layout;
	return external_unmap(&hip_driver, map);
}

const struct client_gpu_ops client_gpu_hip = {
    .name = "hip",
    .device_map = hip_device_map,
    .device_extend = external_extend,
    .device_unmap = hip_device_unmap,
    .has_context = hip_has_context,
    .device_forget = external_forget,
    .device_number = external_number,
};
