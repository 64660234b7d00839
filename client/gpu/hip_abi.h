/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* The part of HIP that hip.c uses, for builds without ROCm. Types and values are those of
 * hip/hip_runtime_api.h of ROCm 5.2 to 6.3, with gm_ before HIP's names;
 * tests/doubles/abi.c compares them with the header. */
#ifndef CLIENT_GPU_HIP_ABI_H
#define CLIENT_GPU_HIP_ABI_H

#include <stddef.h>

/* hipError_t */
typedef int gm_hipError_t;
#define GM_HIP_SUCCESS		   0
#define GM_HIP_ERROR_OUT_OF_MEMORY 2
#define GM_HIP_ERROR_DEINITIALIZED 4
#define GM_HIP_ERROR_NO_DEVICE	   100
#define GM_HIP_ERROR_NOT_SUPPORTED 801

/* hipExternalMemoryHandleType */
#define GM_HIP_EXTERNAL_MEMORY_HANDLE_TYPE_OPAQUE_FD 1

typedef struct {
	char bytes[16];
} gm_hipUUID;

typedef struct gm_hipExternalMemory_st *gm_hipExternalMemory_t;

typedef struct {
	int type;
	union {
		int fd;
		struct {
			void *handle;
			const void *name;
		} win32;
		const void *nvSciBufObject;
	} handle;
	unsigned long long size;
	unsigned int flags;
	unsigned int reserved[16];
} gm_hipExternalMemoryHandleDesc;

typedef struct {
	unsigned long long offset;
	unsigned long long size;
	unsigned int flags;
	unsigned int reserved[16];
} gm_hipExternalMemoryBufferDesc;

/* clang-format off */
#define HIP_FUNCTIONS(X) \
	X(REQUIRED, hipGetDeviceCount, (int *)) \
	X(REQUIRED, hipGetDevice, (int *)) \
	X(REQUIRED, hipSetDevice, (int)) \
	X(OPTIONAL, hipDeviceGetUuid, (gm_hipUUID *, int)) \
	X(REQUIRED, hipDeviceGetPCIBusId, (char *, int, int)) \
	X(REQUIRED, hipDeviceCanAccessPeer, (int *, int, int)) \
	X(REQUIRED, hipImportExternalMemory, \
	  (gm_hipExternalMemory_t *, const gm_hipExternalMemoryHandleDesc *)) \
	X(REQUIRED, hipExternalMemoryGetMappedBuffer, \
	  (void **, gm_hipExternalMemory_t, const gm_hipExternalMemoryBufferDesc *)) \
	X(REQUIRED, hipDestroyExternalMemory, (gm_hipExternalMemory_t)) \
	X(REQUIRED, hipFree, (void *))
/* clang-format on */

#endif
