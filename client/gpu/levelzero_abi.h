/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* The part of Level Zero that levelzero.c uses, for builds without the headers. Types and values
 * are those of level_zero/ze_api.h, version 1.17 of the interface, with gm_ before the names;
 * tests/doubles/abi.c compares them with the header. */
#ifndef CLIENT_GPU_LEVELZERO_ABI_H
#define CLIENT_GPU_LEVELZERO_ABI_H

#include <stddef.h>
#include <stdint.h>

/* ze_result_t */
typedef int gm_ze_result_t;
#define GM_ZE_SUCCESS			    0
#define GM_ZE_ERROR_OUT_OF_DEVICE_MEMORY    0x70000003
#define GM_ZE_ERROR_DEPENDENCY_UNAVAILABLE  0x70020000
#define GM_ZE_ERROR_UNINITIALIZED	    0x78000001
#define GM_ZE_ERROR_UNSUPPORTED_FEATURE	    0x78000003
#define GM_ZE_ERROR_UNSUPPORTED_ENUMERATION 0x7800000d

/* ze_structure_type_t */
#define GM_ZE_STRUCTURE_DEVICE_PROPERTIES	  0x3
#define GM_ZE_STRUCTURE_CONTEXT_DESC		  0xd
#define GM_ZE_STRUCTURE_DEVICE_MEM_ALLOC_DESC	  0x15
#define GM_ZE_STRUCTURE_EXTERNAL_MEMORY_IMPORT_FD 0x19
#define GM_ZE_STRUCTURE_PCI_EXT_PROPERTIES	  0x10008
#define GM_ZE_STRUCTURE_MEMORY_FREE_EXT_DESC	  0x1000a

#define GM_ZE_INIT_GPU_ONLY		1 /* ze_init_flag_t */
#define GM_ZE_DEVICE_TYPE_GPU		1 /* ze_device_type_t */
#define GM_ZE_EXTERNAL_MEMORY_OPAQUE_FD 1 /* ze_external_memory_type_flag_t */
#define GM_ZE_EXTERNAL_MEMORY_DMA_BUF	2
#define GM_ZE_MEMORY_FREE_BLOCKING	1 /* ze_driver_memory_free_policy_ext_flag_t */

typedef struct gm_ze_driver *gm_ze_driver_t;
typedef struct gm_ze_device *gm_ze_device_t;
typedef struct gm_ze_context *gm_ze_context_t;

typedef struct {
	int stype;
	void *pNext;
	int type;
	uint32_t vendorId, deviceId, flags, subdeviceId, coreClockRate;
	uint64_t maxMemAllocSize;
	uint32_t maxHardwareContexts, maxCommandQueuePriority, numThreadsPerEU, physicalEUSimdWidth,
	    numEUsPerSubslice, numSubslicesPerSlice, numSlices;
	uint64_t timerResolution;
	uint32_t timestampValidBits, kernelTimestampValidBits;
	uint8_t uuid[16];
	char name[256];
} gm_ze_device_properties_t;

typedef struct {
	int stype;
	void *pNext;
	struct {
		uint32_t domain, bus, device, function;
	} address;
	struct {
		int32_t genVersion, width;
		int64_t maxBandwidth;
	} maxSpeed;
} gm_ze_pci_ext_properties_t;

typedef struct {
	int stype;
	const void *pNext;
	uint32_t flags;
} gm_ze_context_desc_t;

typedef struct {
	int stype;
	const void *pNext;
	uint32_t flags;
	uint32_t ordinal;
} gm_ze_device_mem_alloc_desc_t;

typedef struct {
	int stype;
	const void *pNext;
	uint32_t flags;
	int fd;
} gm_ze_external_memory_import_fd_t;

typedef struct {
	int stype;
	const void *pNext;
	uint32_t freePolicy;
} gm_ze_memory_free_ext_desc_t;

/* clang-format off */
#define LEVELZERO_FUNCTIONS(X) \
	X(REQUIRED, gm_ze_result_t, zeInit, (uint32_t)) \
	X(REQUIRED, gm_ze_result_t, zeDriverGet, (uint32_t *, gm_ze_driver_t *)) \
	X(REQUIRED, gm_ze_result_t, zeDeviceGet, (gm_ze_driver_t, uint32_t *, gm_ze_device_t *)) \
	X(REQUIRED, gm_ze_result_t, zeDeviceGetProperties, \
	  (gm_ze_device_t, gm_ze_device_properties_t *)) \
	X(OPTIONAL, gm_ze_result_t, zeDevicePciGetPropertiesExt, \
	  (gm_ze_device_t, gm_ze_pci_ext_properties_t *)) \
	X(OPTIONAL, gm_ze_context_t, zeDriverGetDefaultContext, (gm_ze_driver_t)) \
	X(REQUIRED, gm_ze_result_t, zeContextCreate, \
	  (gm_ze_driver_t, const gm_ze_context_desc_t *, gm_ze_context_t *)) \
	X(REQUIRED, gm_ze_result_t, zeMemAllocDevice, \
	  (gm_ze_context_t, const gm_ze_device_mem_alloc_desc_t *, size_t, size_t, gm_ze_device_t, \
	   void **)) \
	X(OPTIONAL, gm_ze_result_t, zeMemFreeExt, \
	  (gm_ze_context_t, const gm_ze_memory_free_ext_desc_t *, void *)) \
	X(REQUIRED, gm_ze_result_t, zeMemFree, (gm_ze_context_t, void *))
/* clang-format on */

#endif
