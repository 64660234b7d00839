/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* Compares client/gpu/hip_abi.h and client/gpu/levelzero_abi.h with the vendors' headers, where
 * these are installed (packages libamdhip64-dev and libze-dev): make doubles-abi. */
#include "client/gpu/hip_abi.h"
#include "client/gpu/levelzero_abi.h"

#define SAME_SIZE(ours, theirs)	 _Static_assert(sizeof(ours) == sizeof(theirs), #theirs)
#define SAME_VALUE(ours, theirs) _Static_assert((unsigned)(ours) == (unsigned)(theirs), #theirs)
#define SAME_PLACE(ours, theirs, member)                                                           \
	_Static_assert(offsetof(ours, member) == offsetof(theirs, member) &&                       \
			   sizeof(((ours *)0)->member) == sizeof(((theirs *)0)->member),           \
		       #theirs "." #member)

#if __has_include(<hip/hip_runtime_api.h>)
#define __HIP_PLATFORM_AMD__ 1
#include <hip/hip_runtime_api.h>

SAME_VALUE(GM_HIP_SUCCESS, hipSuccess);
SAME_VALUE(GM_HIP_ERROR_OUT_OF_MEMORY, hipErrorOutOfMemory);
SAME_VALUE(GM_HIP_ERROR_DEINITIALIZED, hipErrorDeinitialized);
SAME_VALUE(GM_HIP_ERROR_NO_DEVICE, hipErrorNoDevice);
SAME_VALUE(GM_HIP_ERROR_NOT_SUPPORTED, hipErrorNotSupported);
SAME_VALUE(GM_HIP_EXTERNAL_MEMORY_HANDLE_TYPE_OPAQUE_FD, hipExternalMemoryHandleTypeOpaqueFd);
SAME_SIZE(gm_hipError_t, hipError_t);
SAME_SIZE(gm_hipUUID, hipUUID);
SAME_PLACE(gm_hipExternalMemoryHandleDesc, hipExternalMemoryHandleDesc, type);
SAME_PLACE(gm_hipExternalMemoryHandleDesc, hipExternalMemoryHandleDesc, handle.fd);
SAME_PLACE(gm_hipExternalMemoryHandleDesc, hipExternalMemoryHandleDesc, size);
SAME_PLACE(gm_hipExternalMemoryHandleDesc, hipExternalMemoryHandleDesc, flags);
SAME_PLACE(gm_hipExternalMemoryBufferDesc, hipExternalMemoryBufferDesc, offset);
SAME_PLACE(gm_hipExternalMemoryBufferDesc, hipExternalMemoryBufferDesc, size);
SAME_PLACE(gm_hipExternalMemoryBufferDesc, hipExternalMemoryBufferDesc, flags);
/* ROCm 6 has appended reserved words. */
_Static_assert(sizeof(gm_hipExternalMemoryHandleDesc) >= sizeof(hipExternalMemoryHandleDesc) &&
		   sizeof(gm_hipExternalMemoryBufferDesc) >= sizeof(hipExternalMemoryBufferDesc),
	       "HIP reads no more than ours");
#endif

#if __has_include(<level_zero/ze_api.h>)
#include <level_zero/ze_api.h>

SAME_VALUE(GM_ZE_SUCCESS, ZE_RESULT_SUCCESS);
SAME_VALUE(GM_ZE_ERROR_OUT_OF_DEVICE_MEMORY, ZE_RESULT_ERROR_OUT_OF_DEVICE_MEMORY);
SAME_VALUE(GM_ZE_ERROR_DEPENDENCY_UNAVAILABLE, ZE_RESULT_ERROR_DEPENDENCY_UNAVAILABLE);
SAME_VALUE(GM_ZE_ERROR_UNINITIALIZED, ZE_RESULT_ERROR_UNINITIALIZED);
SAME_VALUE(GM_ZE_ERROR_UNSUPPORTED_FEATURE, ZE_RESULT_ERROR_UNSUPPORTED_FEATURE);
SAME_VALUE(GM_ZE_ERROR_UNSUPPORTED_ENUMERATION, ZE_RESULT_ERROR_UNSUPPORTED_ENUMERATION);
SAME_VALUE(GM_ZE_STRUCTURE_DEVICE_PROPERTIES, ZE_STRUCTURE_TYPE_DEVICE_PROPERTIES);
SAME_VALUE(GM_ZE_STRUCTURE_CONTEXT_DESC, ZE_STRUCTURE_TYPE_CONTEXT_DESC);
SAME_VALUE(GM_ZE_STRUCTURE_DEVICE_MEM_ALLOC_DESC, ZE_STRUCTURE_TYPE_DEVICE_MEM_ALLOC_DESC);
SAME_VALUE(GM_ZE_STRUCTURE_EXTERNAL_MEMORY_IMPORT_FD, ZE_STRUCTURE_TYPE_EXTERNAL_MEMORY_IMPORT_FD);
SAME_VALUE(GM_ZE_STRUCTURE_PCI_EXT_PROPERTIES, ZE_STRUCTURE_TYPE_PCI_EXT_PROPERTIES);
SAME_VALUE(GM_ZE_STRUCTURE_MEMORY_FREE_EXT_DESC, ZE_STRUCTURE_TYPE_MEMORY_FREE_EXT_DESC);
SAME_VALUE(GM_ZE_INIT_GPU_ONLY, ZE_INIT_FLAG_GPU_ONLY);
SAME_VALUE(GM_ZE_DEVICE_TYPE_GPU, ZE_DEVICE_TYPE_GPU);
SAME_VALUE(GM_ZE_EXTERNAL_MEMORY_OPAQUE_FD, ZE_EXTERNAL_MEMORY_TYPE_FLAG_OPAQUE_FD);
SAME_VALUE(GM_ZE_EXTERNAL_MEMORY_DMA_BUF, ZE_EXTERNAL_MEMORY_TYPE_FLAG_DMA_BUF);
SAME_VALUE(GM_ZE_MEMORY_FREE_BLOCKING, ZE_DRIVER_MEMORY_FREE_POLICY_EXT_FLAG_BLOCKING_FREE);
SAME_SIZE(gm_ze_result_t, ze_result_t);
SAME_SIZE(gm_ze_device_properties_t, ze_device_properties_t);
SAME_PLACE(gm_ze_device_properties_t, ze_device_properties_t, type);
SAME_PLACE(gm_ze_device_properties_t, ze_device_properties_t, uuid);
SAME_SIZE(gm_ze_pci_ext_properties_t, ze_pci_ext_properties_t);
SAME_PLACE(gm_ze_pci_ext_properties_t, ze_pci_ext_properties_t, address);
SAME_SIZE(gm_ze_context_desc_t, ze_context_desc_t);
SAME_SIZE(gm_ze_device_mem_alloc_desc_t, ze_device_mem_alloc_desc_t);
SAME_PLACE(gm_ze_device_mem_alloc_desc_t, ze_device_mem_alloc_desc_t, ordinal);
SAME_SIZE(gm_ze_external_memory_import_fd_t, ze_external_memory_import_fd_t);
SAME_PLACE(gm_ze_external_memory_import_fd_t, ze_external_memory_import_fd_t, flags);
SAME_PLACE(gm_ze_external_memory_import_fd_t, ze_external_memory_import_fd_t, fd);
SAME_SIZE(gm_ze_memory_free_ext_desc_t, ze_memory_free_ext_desc_t);
SAME_PLACE(gm_ze_memory_free_ext_desc_t, ze_memory_free_ext_desc_t, freePolicy);
#endif
