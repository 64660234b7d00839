/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* Compares backend/cuda/driver/abi.h with the real headers: a difference does not compile. The part
 * of a missing header is skipped, and the program prints the skip and exits 77 if no part was
 * compared.
 */
#include "backend/cuda/driver/abi.h"

#include <stdio.h>

#include "tests/unit/unit.h"

#if __has_include(<cuda.h>)
#include <cuda.h>
#elif __has_include("/usr/local/cuda/include/cuda.h")
#include "/usr/local/cuda/include/cuda.h"
#endif
#if __has_include(<nvml.h>)
#include <nvml.h>
#elif __has_include("/usr/local/cuda/include/nvml.h")
#include "/usr/local/cuda/include/nvml.h"
#endif
#if __has_include(<gdrapi.h>)
#include <gdrapi.h>
#endif

#define SAME_VALUE(name) _Static_assert((long)GM_##name == (long)name, #name " has another value");
#define SAME_TYPE(name)                                                                            \
	_Static_assert(sizeof(gm_##name) == sizeof(name), #name " has another size");              \
	_Static_assert(_Alignof(gm_##name) == _Alignof(name), #name " has another alignment");
#define SAME_FIELD(name, field)                                                                    \
	_Static_assert(offsetof(gm_##name, field) == offsetof(name, field),                        \
		       #name "." #field " is elsewhere");                                          \
	_Static_assert(sizeof(((gm_##name *)0)->field) == sizeof(((name *)0)->field),              \
		       #name "." #field " has another size");

/* The preprocessor cannot test for enumerators of newer headers, so older headers are skipped. */
#if defined(CUDA_VERSION) && CUDA_VERSION >= 13000
#define HAVE_CUDA 1

/* clang-format off */
#define CUDA_VALUES(X) \
	X(CUDA_SUCCESS) X(CUDA_ERROR_INVALID_VALUE) X(CUDA_ERROR_OUT_OF_MEMORY) \
	X(CUDA_ERROR_NOT_INITIALIZED) X(CUDA_ERROR_DEINITIALIZED) \
	X(CUDA_ERROR_DEVICE_UNAVAILABLE) X(CUDA_ERROR_NO_DEVICE) X(CUDA_ERROR_INVALID_DEVICE) \
	X(CUDA_ERROR_INVALID_CONTEXT) X(CUDA_ERROR_ECC_UNCORRECTABLE) \
	X(CUDA_ERROR_PEER_ACCESS_UNSUPPORTED) X(CUDA_ERROR_NVLINK_UNCORRECTABLE) \
	X(CUDA_ERROR_CONTAINED) X(CUDA_ERROR_INVALID_HANDLE) X(CUDA_ERROR_ILLEGAL_STATE) \
	X(CUDA_ERROR_NOT_READY) X(CUDA_ERROR_ILLEGAL_ADDRESS) X(CUDA_ERROR_LAUNCH_TIMEOUT) \
	X(CUDA_ERROR_CONTEXT_IS_DESTROYED) X(CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED) \
	X(CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED) X(CUDA_ERROR_HARDWARE_STACK_ERROR) \
	X(CUDA_ERROR_ILLEGAL_INSTRUCTION) X(CUDA_ERROR_MISALIGNED_ADDRESS) \
	X(CUDA_ERROR_INVALID_ADDRESS_SPACE) X(CUDA_ERROR_INVALID_PC) X(CUDA_ERROR_LAUNCH_FAILED) \
	X(CUDA_ERROR_NOT_PERMITTED) X(CUDA_ERROR_NOT_SUPPORTED) X(CUDA_ERROR_SYSTEM_NOT_READY) \
	X(CUDA_ERROR_EXTERNAL_DEVICE) X(CUDA_ERROR_UNKNOWN) \
	X(CU_DEVICE_ATTRIBUTE_COMPUTE_MODE) X(CU_COMPUTEMODE_DEFAULT) X(CU_COMPUTEMODE_PROHIBITED) \
	X(CU_COMPUTEMODE_EXCLUSIVE_PROCESS) \
	X(CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED) \
	X(CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED) \
	X(CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WITH_CUDA_VMM_SUPPORTED) \
	X(CU_DEVICE_ATTRIBUTE_DMA_BUF_SUPPORTED) X(CU_MEM_ALLOCATION_TYPE_PINNED) \
	X(CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR) X(CU_MEM_LOCATION_TYPE_DEVICE) \
	X(CU_MEM_ACCESS_FLAGS_PROT_READWRITE) X(CU_MEM_ALLOC_GRANULARITY_MINIMUM) \
	X(CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD) X(CU_CTX_SCHED_BLOCKING_SYNC) \
	X(CU_STREAM_NON_BLOCKING) X(CU_EVENT_DISABLE_TIMING) X(CU_MEMHOSTALLOC_PORTABLE) \
	X(CU_MEMHOSTREGISTER_PORTABLE) \
	X(CU_MEM_ACCESS_FLAGS_PROT_READ) X(CU_MEMHOSTREGISTER_DEVICEMAP) \
	X(CU_MEMHOSTREGISTER_READ_ONLY) \
	X(CU_FLUSH_GPU_DIRECT_RDMA_WRITES_TARGET_CURRENT_CTX) \
	X(CU_FLUSH_GPU_DIRECT_RDMA_WRITES_TO_ALL_DEVICES) \
	X(CU_PROCESS_STATE_RUNNING) X(CU_PROCESS_STATE_LOCKED) \
	X(CU_PROCESS_STATE_CHECKPOINTED) X(CU_PROCESS_STATE_FAILED) \
	X(CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL) X(CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS)
/* clang-format on */
CUDA_VALUES(SAME_VALUE)

SAME_TYPE(CUresult)
SAME_TYPE(CUdevice)
SAME_TYPE(CUdeviceptr)
SAME_TYPE(CUcontext)
SAME_TYPE(CUstream)
SAME_TYPE(CUevent)
SAME_TYPE(CUuuid)
SAME_TYPE(CUipcMemHandle)
SAME_FIELD(CUuuid, bytes)
SAME_TYPE(CUdevice_attribute)
SAME_TYPE(CUmemGenericAllocationHandle)
SAME_TYPE(CUmemAllocationType)
SAME_TYPE(CUmemAllocationHandleType)
SAME_TYPE(CUmemAllocationGranularity_flags)
SAME_TYPE(CUmemRangeHandleType)
SAME_TYPE(CUflushGPUDirectRDMAWritesTarget)
SAME_TYPE(CUstreamCaptureStatus)
SAME_TYPE(CUflushGPUDirectRDMAWritesScope)
SAME_TYPE(CUmemLocation)
SAME_FIELD(CUmemLocation, type)
SAME_FIELD(CUmemLocation, id)
SAME_TYPE(CUmemAllocationProp)
SAME_FIELD(CUmemAllocationProp, type)
SAME_FIELD(CUmemAllocationProp, requestedHandleTypes)
SAME_FIELD(CUmemAllocationProp, location)
SAME_FIELD(CUmemAllocationProp, win32HandleMetaData)
SAME_FIELD(CUmemAllocationProp, allocFlags)
SAME_FIELD(CUmemAllocationProp, allocFlags.compressionType)
SAME_FIELD(CUmemAllocationProp, allocFlags.gpuDirectRDMACapable)
SAME_FIELD(CUmemAllocationProp, allocFlags.usage)
SAME_FIELD(CUmemAllocationProp, allocFlags.reserved)
SAME_TYPE(CUmemAccessDesc)
SAME_FIELD(CUmemAccessDesc, location)
SAME_FIELD(CUmemAccessDesc, flags)
SAME_TYPE(CUprocessState)
SAME_TYPE(CUcheckpointLockArgs)
SAME_FIELD(CUcheckpointLockArgs, timeoutMs)
SAME_FIELD(CUcheckpointLockArgs, reserved0)
SAME_FIELD(CUcheckpointLockArgs, reserved1)

/* From here on the project's names mean the header's types, so that the prototypes of
 * CUDA_FUNCTIONS can be compared with the header's exactly. */
#define gm_CUresult			    CUresult
#define gm_CUdevice			    CUdevice
#define gm_CUdeviceptr			    CUdeviceptr
#define gm_CUcontext			    CUcontext
#define gm_CUstream			    CUstream
#define gm_CUevent			    CUevent
#define gm_CUuuid			    CUuuid
#define gm_CUdevice_attribute		    CUdevice_attribute
#define gm_CUmemGenericAllocationHandle	    CUmemGenericAllocationHandle
#define gm_CUmemAllocationHandleType	    CUmemAllocationHandleType
#define gm_CUmemAllocationGranularity_flags CUmemAllocationGranularity_flags
#define gm_CUmemAllocationProp		    CUmemAllocationProp
#define gm_CUmemAccessDesc		    CUmemAccessDesc
#define gm_CUmemRangeHandleType		    CUmemRangeHandleType
#define gm_CUflushGPUDirectRDMAWritesTarget CUflushGPUDirectRDMAWritesTarget
#define gm_CUstreamCaptureStatus	    CUstreamCaptureStatus
#define gm_CUflushGPUDirectRDMAWritesScope  CUflushGPUDirectRDMAWritesScope
#define gm_CUprocessState		    CUprocessState
#define gm_CUpointer_attribute		    CUpointer_attribute
#define gm_CUipcMemHandle		    CUipcMemHandle
#define gm_CUcheckpointLockArgs		    CUcheckpointLockArgs
#define gm_CUcheckpointCheckpointArgs	    CUcheckpointCheckpointArgs
#define gm_CUcheckpointRestoreArgs	    CUcheckpointRestoreArgs
#define gm_CUcheckpointUnlockArgs	    CUcheckpointUnlockArgs

#define SAME_CUDA_FUNCTION(need, field, symbol, arguments)                                         \
	_Static_assert(__builtin_types_compatible_p(__typeof__(&field), CUresult(*) arguments),    \
		       #symbol " has another prototype");
CUDA_FUNCTIONS(SAME_CUDA_FUNCTION)
CUDA_CLIENT_FUNCTIONS(SAME_CUDA_FUNCTION)

/* The macro renames of a header apply to the argument before the argument becomes a string. */
#define EXPORTED_(name) #name
#define EXPORTED(name)	EXPORTED_(name)

struct symbol {
	const char *ours, *theirs;
};

static void expect_symbols(const struct symbol *symbols, size_t n)
{
	for (size_t i = 0; i < n; i++)
		ck_assert_str_eq(symbols[i].ours, symbols[i].theirs);
}

#define CUDA_SYMBOL(need, field, symbol, arguments) {#symbol, EXPORTED(field)},
static const struct symbol cuda_symbols[] = {CUDA_FUNCTIONS(CUDA_SYMBOL)
						 CUDA_CLIENT_FUNCTIONS(CUDA_SYMBOL)};

START_TEST(cuda_symbol_names)
{
	expect_symbols(cuda_symbols, sizeof(cuda_symbols) / sizeof(cuda_symbols[0]));
}
END_TEST
#endif

#ifdef NVML_API_VERSION
#define HAVE_NVML 1
SAME_VALUE(NVML_SUCCESS)
SAME_TYPE(nvmlReturn_t)
SAME_TYPE(nvmlDevice_t)
SAME_TYPE(nvmlMemory_t)
SAME_FIELD(nvmlMemory_t, total)
SAME_FIELD(nvmlMemory_t, free)
SAME_FIELD(nvmlMemory_t, used)
SAME_TYPE(nvmlMemory_v2_t)
SAME_FIELD(nvmlMemory_v2_t, version)
SAME_FIELD(nvmlMemory_v2_t, total)
SAME_FIELD(nvmlMemory_v2_t, reserved)
SAME_FIELD(nvmlMemory_v2_t, free)
SAME_FIELD(nvmlMemory_v2_t, used)
_Static_assert(GM_nvmlMemory_v2 == nvmlMemory_v2, "nvmlMemory_v2 has another value");
SAME_TYPE(nvmlBAR1Memory_t)
SAME_FIELD(nvmlBAR1Memory_t, bar1Total)
SAME_FIELD(nvmlBAR1Memory_t, bar1Free)
SAME_FIELD(nvmlBAR1Memory_t, bar1Used)

#define gm_nvmlReturn_t	    nvmlReturn_t
#define gm_nvmlDevice_t	    nvmlDevice_t
#define gm_nvmlMemory_t	    nvmlMemory_t
#define gm_nvmlMemory_v2_t  nvmlMemory_v2_t
#define gm_nvmlBAR1Memory_t nvmlBAR1Memory_t
#define SAME_NVML_FUNCTION(need, field, symbol, arguments)                                         \
	_Static_assert(                                                                            \
	    __builtin_types_compatible_p(__typeof__(&symbol), nvmlReturn_t(*) arguments),          \
	    #symbol " has another prototype");
NVML_FUNCTIONS(SAME_NVML_FUNCTION)
#endif

#ifdef GDR_API_VERSION
#define HAVE_GDR 1
SAME_TYPE(gdr_t)
SAME_TYPE(gdr_mh_t)
SAME_TYPE(gdr_info_v2_t)
SAME_FIELD(gdr_info_v2_t, va)
SAME_FIELD(gdr_info_v2_t, mapped_size)

#define gm_gdr_t	 gdr_t
#define gm_gdr_mh_t	 gdr_mh_t
#define gm_gdr_info_v2_t gdr_info_v2_t
/* An optional function may be missing in an older header too. */
#define SAME_GDR_REQUIRED(symbol, type, arguments)                                                 \
	_Static_assert(__builtin_types_compatible_p(__typeof__(&symbol), type(*) arguments),       \
		       #symbol " has another prototype");
#define SAME_GDR_OPTIONAL(symbol, type, arguments)
#define SAME_GDR_FUNCTION(need, field, symbol, type, arguments)                                    \
	SAME_GDR_##need(symbol, type, arguments)
GDR_FUNCTIONS(SAME_GDR_FUNCTION)
#endif

int main(void)
{
#ifndef HAVE_NVML
	printf("cuda_abi: skipped the comparison with nvml.h: there is none\n");
#endif
#ifndef HAVE_GDR
	printf("cuda_abi: skipped the comparison with gdrapi.h: there is none\n");
#endif
#ifdef HAVE_CUDA
	printf("cuda_abi: %zu functions are those of cuda.h %d.%d\n",
	       sizeof(cuda_symbols) / sizeof(cuda_symbols[0]), CUDA_VERSION / 1000,
	       CUDA_VERSION % 1000 / 10);
	TCase *tcase;
	Suite *suite = unit_suite("cuda_abi", &tcase, 60);
	tcase_add_test(tcase, cuda_symbol_names);
	return unit_main(suite);
#else
	printf("cuda_abi: skipped the comparison with cuda.h: there is none of CUDA 13 or later\n");
	return 77;
#endif
}
