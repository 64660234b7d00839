/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* The used parts of the ABIs of the CUDA driver, NVML and gdrapi, declared here so that gpumemfs
 * builds without the vendors' headers. Names have the prefix gm_ or GM_;
 * tests/unit/cuda/test_cuda_abi.c compares every name with the real headers if present.
 *
 * The function lists have the names of exported symbols. cuda.h renames many functions to
 * versioned names (to the linker cuMemHostRegister is cuMemHostRegister_v2), and dlsym needs the
 * versioned name. X(need, field, symbol, arguments); need is REQUIRED or OPTIONAL. */
#ifndef BACKEND_CUDA_DRIVER_ABI_H
#define BACKEND_CUDA_DRIVER_ABI_H

#include <stddef.h>
#include <stdint.h>

typedef int gm_CUdevice;
typedef unsigned long long gm_CUdeviceptr;
typedef unsigned long long gm_CUmemGenericAllocationHandle;
typedef struct gm_CUctx_st *gm_CUcontext;
typedef struct gm_CUstream_st *gm_CUstream;
typedef struct gm_CUevent_st *gm_CUevent;

typedef struct {
	char bytes[16];
} gm_CUuuid;

typedef enum {
	GM_CUDA_SUCCESS = 0,
	GM_CUDA_ERROR_INVALID_VALUE = 1,
	GM_CUDA_ERROR_OUT_OF_MEMORY = 2,
	GM_CUDA_ERROR_NOT_INITIALIZED = 3,
	GM_CUDA_ERROR_DEINITIALIZED = 4,
	GM_CUDA_ERROR_DEVICE_UNAVAILABLE = 46,
	GM_CUDA_ERROR_NO_DEVICE = 100,
	GM_CUDA_ERROR_INVALID_DEVICE = 101,
	GM_CUDA_ERROR_INVALID_CONTEXT = 201,
	GM_CUDA_ERROR_ECC_UNCORRECTABLE = 214,
	GM_CUDA_ERROR_PEER_ACCESS_UNSUPPORTED = 217,
	GM_CUDA_ERROR_NVLINK_UNCORRECTABLE = 220,
	GM_CUDA_ERROR_CONTAINED = 226,
	GM_CUDA_ERROR_INVALID_HANDLE = 400,
	GM_CUDA_ERROR_ILLEGAL_STATE = 401,
	GM_CUDA_ERROR_NOT_READY = 600,
	GM_CUDA_ERROR_ILLEGAL_ADDRESS = 700,
	GM_CUDA_ERROR_LAUNCH_TIMEOUT = 702,
	GM_CUDA_ERROR_CONTEXT_IS_DESTROYED = 709,
	GM_CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED = 712,
	GM_CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED = 713,
	GM_CUDA_ERROR_HARDWARE_STACK_ERROR = 714,
	GM_CUDA_ERROR_ILLEGAL_INSTRUCTION = 715,
	GM_CUDA_ERROR_MISALIGNED_ADDRESS = 716,
	GM_CUDA_ERROR_INVALID_ADDRESS_SPACE = 717,
	GM_CUDA_ERROR_INVALID_PC = 718,
	GM_CUDA_ERROR_LAUNCH_FAILED = 719,
	GM_CUDA_ERROR_NOT_PERMITTED = 800,
	GM_CUDA_ERROR_NOT_SUPPORTED = 801,
	GM_CUDA_ERROR_SYSTEM_NOT_READY = 802,
	GM_CUDA_ERROR_EXTERNAL_DEVICE = 911,
	GM_CUDA_ERROR_UNKNOWN = 999,
} gm_CUresult;

typedef enum {
	GM_CU_DEVICE_ATTRIBUTE_COMPUTE_MODE = 20,
	GM_CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED = 102,
	GM_CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED = 103,
	GM_CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WITH_CUDA_VMM_SUPPORTED = 110,
	GM_CU_DEVICE_ATTRIBUTE_DMA_BUF_SUPPORTED = 124,
	GM_CU_DEVICE_ATTRIBUTE_HOST_NUMA_ID = 134,
	GM_CU_DEVICE_ATTRIBUTE_HOST_NUMA_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED = 141,
} gm_CUdevice_attribute;

typedef enum {
	GM_CU_COMPUTEMODE_DEFAULT = 0,
	GM_CU_COMPUTEMODE_PROHIBITED = 2,
	GM_CU_COMPUTEMODE_EXCLUSIVE_PROCESS = 3,
} gm_CUcomputemode;

typedef enum {
	GM_CU_MEM_ALLOCATION_TYPE_PINNED = 1,
} gm_CUmemAllocationType;

typedef enum {
	GM_CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR = 1,
} gm_CUmemAllocationHandleType;

typedef enum {
	GM_CU_MEM_LOCATION_TYPE_DEVICE = 1,
	GM_CU_MEM_LOCATION_TYPE_HOST_NUMA = 3,
} gm_CUmemLocationType;

typedef enum {
	GM_CU_MEM_ACCESS_FLAGS_PROT_READ = 1,
	GM_CU_MEM_ACCESS_FLAGS_PROT_READWRITE = 3,
} gm_CUmemAccess_flags;

typedef enum {
	GM_CU_MEM_ALLOC_GRANULARITY_MINIMUM = 0,
} gm_CUmemAllocationGranularity_flags;

typedef enum {
	GM_CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD = 1,
} gm_CUmemRangeHandleType;

enum {
	GM_CU_CTX_SCHED_BLOCKING_SYNC = 4,
	GM_CU_STREAM_NON_BLOCKING = 1,
	GM_CU_EVENT_DISABLE_TIMING = 2,
	GM_CU_MEMHOSTALLOC_PORTABLE = 1,
	GM_CU_MEMHOSTREGISTER_PORTABLE = 1,
	GM_CU_MEMHOSTREGISTER_DEVICEMAP = 2,
	GM_CU_MEMHOSTREGISTER_READ_ONLY = 8,
};

typedef enum { GM_CU_STREAM_CAPTURE_STATUS_NONE = 0 } gm_CUstreamCaptureStatus;

typedef enum {
	GM_CU_FLUSH_GPU_DIRECT_RDMA_WRITES_TARGET_CURRENT_CTX = 0,
} gm_CUflushGPUDirectRDMAWritesTarget;

typedef enum {
	GM_CU_FLUSH_GPU_DIRECT_RDMA_WRITES_TO_ALL_DEVICES = 200,
} gm_CUflushGPUDirectRDMAWritesScope;

typedef struct {
	gm_CUmemLocationType type;
	int id;
} gm_CUmemLocation;

typedef struct {
	gm_CUmemAllocationType type;
	gm_CUmemAllocationHandleType requestedHandleTypes;
	gm_CUmemLocation location;
	void *win32HandleMetaData;
	struct {
		unsigned char compressionType;
		unsigned char gpuDirectRDMACapable;
		unsigned short usage;
		unsigned char reserved[4];
	} allocFlags;
} gm_CUmemAllocationProp;

typedef struct {
	gm_CUmemLocation location;
	gm_CUmemAccess_flags flags;
} gm_CUmemAccessDesc;

typedef enum {
	GM_CU_PROCESS_STATE_RUNNING = 0,
	GM_CU_PROCESS_STATE_LOCKED,
	GM_CU_PROCESS_STATE_CHECKPOINTED,
	GM_CU_PROCESS_STATE_FAILED,
} gm_CUprocessState;

typedef struct {
	unsigned int timeoutMs;
	unsigned int reserved0;
	uint64_t reserved1[7];
} gm_CUcheckpointLockArgs;

/* Never made: NULL stands for the defaults. */
typedef struct gm_CUcheckpointCheckpointArgs_st gm_CUcheckpointCheckpointArgs;
typedef struct gm_CUcheckpointRestoreArgs_st gm_CUcheckpointRestoreArgs;
typedef struct gm_CUcheckpointUnlockArgs_st gm_CUcheckpointUnlockArgs;

typedef enum { GM_CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL = 9 } gm_CUpointer_attribute;

enum { GM_CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS = 1 };

typedef struct {
	char reserved[64];
} gm_CUipcMemHandle;

/* All return gm_CUresult. */
/* clang-format off */
#define CUDA_FUNCTIONS(X) \
	X(REQUIRED, cuInit, cuInit, (unsigned int flags)) \
	X(REQUIRED, cuDriverGetVersion, cuDriverGetVersion, (int *version)) \
	X(REQUIRED, cuGetErrorName, cuGetErrorName, (gm_CUresult error, const char **name)) \
	X(REQUIRED, cuDeviceGetCount, cuDeviceGetCount, (int *count)) \
	X(REQUIRED, cuDeviceGet, cuDeviceGet, (gm_CUdevice *device, int ordinal)) \
	X(REQUIRED, cuDeviceGetName, cuDeviceGetName, (char *name, int length, gm_CUdevice device)) \
	X(REQUIRED, cuDeviceGetUuid, cuDeviceGetUuid_v2, (gm_CUuuid *uuid, gm_CUdevice device)) \
	X(REQUIRED, cuDeviceTotalMem, cuDeviceTotalMem_v2, (size_t *bytes, gm_CUdevice device)) \
	X(REQUIRED, cuDeviceGetAttribute, cuDeviceGetAttribute, \
	  (int *value, gm_CUdevice_attribute attribute, gm_CUdevice device)) \
	X(REQUIRED, cuDeviceGetPCIBusId, cuDeviceGetPCIBusId, \
	  (char *id, int length, gm_CUdevice device)) \
	X(REQUIRED, cuDeviceCanAccessPeer, cuDeviceCanAccessPeer, \
	  (int *can, gm_CUdevice device, gm_CUdevice peer)) \
	X(REQUIRED, cuDevicePrimaryCtxSetFlags, cuDevicePrimaryCtxSetFlags_v2, \
	  (gm_CUdevice device, unsigned int flags)) \
	X(REQUIRED, cuDevicePrimaryCtxRetain, cuDevicePrimaryCtxRetain, \
	  (gm_CUcontext *context, gm_CUdevice device)) \
	X(REQUIRED, cuDevicePrimaryCtxRelease, cuDevicePrimaryCtxRelease_v2, (gm_CUdevice device)) \
	X(REQUIRED, cuCtxSetCurrent, cuCtxSetCurrent, (gm_CUcontext context)) \
	X(REQUIRED, cuMemGetInfo, cuMemGetInfo_v2, (size_t *free, size_t *total)) \
	X(REQUIRED, cuMemGetAllocationGranularity, cuMemGetAllocationGranularity, \
	  (size_t *granularity, const gm_CUmemAllocationProp *prop, \
	   gm_CUmemAllocationGranularity_flags option)) \
	X(REQUIRED, cuMemAddressReserve, cuMemAddressReserve, \
	  (gm_CUdeviceptr *address, size_t size, size_t alignment, gm_CUdeviceptr at, \
	   unsigned long long flags)) \
	X(REQUIRED, cuMemAddressFree, cuMemAddressFree, (gm_CUdeviceptr address, size_t size)) \
	X(REQUIRED, cuMemCreate, cuMemCreate, \
	  (gm_CUmemGenericAllocationHandle *handle, size_t size, \
	   const gm_CUmemAllocationProp *prop, unsigned long long flags)) \
	X(REQUIRED, cuMemRelease, cuMemRelease, (gm_CUmemGenericAllocationHandle handle)) \
	X(REQUIRED, cuMemMap, cuMemMap, \
	  (gm_CUdeviceptr address, size_t size, size_t offset, \
	   gm_CUmemGenericAllocationHandle handle, unsigned long long flags)) \
	X(REQUIRED, cuMemUnmap, cuMemUnmap, (gm_CUdeviceptr address, size_t size)) \
	X(REQUIRED, cuMemSetAccess, cuMemSetAccess, \
	  (gm_CUdeviceptr address, size_t size, const gm_CUmemAccessDesc *access, size_t count)) \
	X(REQUIRED, cuMemExportToShareableHandle, cuMemExportToShareableHandle, \
	  (void *shareable, gm_CUmemGenericAllocationHandle handle, \
	   gm_CUmemAllocationHandleType type, unsigned long long flags)) \
	X(REQUIRED, cuMemImportFromShareableHandle, cuMemImportFromShareableHandle, \
	  (gm_CUmemGenericAllocationHandle *handle, void *shareable, \
	   gm_CUmemAllocationHandleType type)) \
	X(REQUIRED, cuMemGetAllocationPropertiesFromHandle, cuMemGetAllocationPropertiesFromHandle, \
	  (gm_CUmemAllocationProp * prop, gm_CUmemGenericAllocationHandle handle)) \
	X(REQUIRED, cuMemGetAddressRange, cuMemGetAddressRange_v2, \
	  (gm_CUdeviceptr *base, size_t *bytes, gm_CUdeviceptr address)) \
	X(REQUIRED, cuPointerGetAttribute, cuPointerGetAttribute, \
	  (void *value, gm_CUpointer_attribute attribute, gm_CUdeviceptr address)) \
	X(REQUIRED, cuIpcGetMemHandle, cuIpcGetMemHandle, \
	  (gm_CUipcMemHandle *handle, gm_CUdeviceptr address)) \
	X(REQUIRED, cuIpcOpenMemHandle, cuIpcOpenMemHandle_v2, \
	  (gm_CUdeviceptr *address, gm_CUipcMemHandle handle, unsigned int flags)) \
	X(REQUIRED, cuIpcCloseMemHandle, cuIpcCloseMemHandle, (gm_CUdeviceptr address)) \
	X(OPTIONAL, cuMemGetHandleForAddressRange, cuMemGetHandleForAddressRange, \
	  (void *handle, gm_CUdeviceptr address, size_t size, gm_CUmemRangeHandleType type, \
	   unsigned long long flags)) \
	X(REQUIRED, cuMemHostAlloc, cuMemHostAlloc, \
	  (void **host, size_t size, unsigned int flags)) \
	X(REQUIRED, cuMemFreeHost, cuMemFreeHost, (void *host)) \
	X(REQUIRED, cuMemHostRegister, cuMemHostRegister_v2, \
	  (void *host, size_t size, unsigned int flags)) \
	X(REQUIRED, cuMemHostUnregister, cuMemHostUnregister, (void *host)) \
	X(REQUIRED, cuMemcpyHtoDAsync, cuMemcpyHtoDAsync_v2, \
	  (gm_CUdeviceptr to, const void *from, size_t bytes, gm_CUstream stream)) \
	X(REQUIRED, cuMemcpyDtoHAsync, cuMemcpyDtoHAsync_v2, \
	  (void *to, gm_CUdeviceptr from, size_t bytes, gm_CUstream stream)) \
	X(REQUIRED, cuMemcpyDtoDAsync, cuMemcpyDtoDAsync_v2, \
	  (gm_CUdeviceptr to, gm_CUdeviceptr from, size_t bytes, gm_CUstream stream)) \
	X(REQUIRED, cuMemsetD8Async, cuMemsetD8Async, \
	  (gm_CUdeviceptr to, unsigned char value, size_t bytes, gm_CUstream stream)) \
	X(REQUIRED, cuStreamCreate, cuStreamCreate, (gm_CUstream *stream, unsigned int flags)) \
	X(REQUIRED, cuStreamDestroy, cuStreamDestroy_v2, (gm_CUstream stream)) \
	X(REQUIRED, cuStreamQuery, cuStreamQuery, (gm_CUstream stream)) \
	X(REQUIRED, cuStreamSynchronize, cuStreamSynchronize, (gm_CUstream stream)) \
	X(REQUIRED, cuStreamWaitEvent, cuStreamWaitEvent, \
	  (gm_CUstream stream, gm_CUevent event, unsigned int flags)) \
	X(REQUIRED, cuEventCreate, cuEventCreate, (gm_CUevent *event, unsigned int flags)) \
	X(REQUIRED, cuEventDestroy, cuEventDestroy_v2, (gm_CUevent event)) \
	X(REQUIRED, cuEventRecord, cuEventRecord, (gm_CUevent event, gm_CUstream stream)) \
	X(REQUIRED, cuEventSynchronize, cuEventSynchronize, (gm_CUevent event))

/* Further functions for the client library. */
#define CUDA_CLIENT_FUNCTIONS(X) \
	X(REQUIRED, cuMemRetainAllocationHandle, cuMemRetainAllocationHandle, \
	  (gm_CUmemGenericAllocationHandle *handle, void *address)) \
	X(REQUIRED, cuCtxGetCurrent, cuCtxGetCurrent, (gm_CUcontext *context)) \
	X(REQUIRED, cuCtxGetDevice, cuCtxGetDevice, (gm_CUdevice *device)) \
	X(REQUIRED, cuCtxPushCurrent, cuCtxPushCurrent_v2, (gm_CUcontext context)) \
	X(REQUIRED, cuCtxPopCurrent, cuCtxPopCurrent_v2, (gm_CUcontext *context)) \
	X(REQUIRED, cuCtxSynchronize, cuCtxSynchronize, (void)) \
	X(REQUIRED, cuMemHostGetDevicePointer, cuMemHostGetDevicePointer_v2, \
	  (gm_CUdeviceptr *address, void *host, unsigned int flags)) \
	X(OPTIONAL, cuCtxGetId, cuCtxGetId, (gm_CUcontext context, unsigned long long *id)) \
	X(OPTIONAL, cuStreamWriteValue64, cuStreamWriteValue64_v2, \
	  (gm_CUstream stream, gm_CUdeviceptr address, uint64_t value, unsigned int flags)) \
	X(OPTIONAL, cuStreamWaitValue64, cuStreamWaitValue64_v2, \
	  (gm_CUstream stream, gm_CUdeviceptr address, uint64_t value, unsigned int flags)) \
	X(OPTIONAL, cuStreamIsCapturing, cuStreamIsCapturing, \
	  (gm_CUstream stream, gm_CUstreamCaptureStatus *status)) \
	X(OPTIONAL, cuFlushGPUDirectRDMAWrites, cuFlushGPUDirectRDMAWrites, \
	  (gm_CUflushGPUDirectRDMAWritesTarget target, gm_CUflushGPUDirectRDMAWritesScope scope)) \
	X(OPTIONAL, cuCheckpointProcessGetState, cuCheckpointProcessGetState, \
	  (int pid, gm_CUprocessState *state)) \
	X(OPTIONAL, cuCheckpointProcessLock, cuCheckpointProcessLock, \
	  (int pid, gm_CUcheckpointLockArgs *arguments)) \
	X(OPTIONAL, cuCheckpointProcessCheckpoint, cuCheckpointProcessCheckpoint, \
	  (int pid, gm_CUcheckpointCheckpointArgs *arguments)) \
	X(OPTIONAL, cuCheckpointProcessRestore, cuCheckpointProcessRestore, \
	  (int pid, gm_CUcheckpointRestoreArgs *arguments)) \
	X(OPTIONAL, cuCheckpointProcessUnlock, cuCheckpointProcessUnlock, \
	  (int pid, gm_CUcheckpointUnlockArgs *arguments))
/* clang-format on */

typedef struct gm_nvmlDevice_st *gm_nvmlDevice_t;
typedef enum { GM_NVML_SUCCESS = 0 } gm_nvmlReturn_t;

typedef struct {
	unsigned long long total, free, used;
} gm_nvmlMemory_t;

typedef struct {
	unsigned int version;
	unsigned long long total, reserved, free, used;
} gm_nvmlMemory_v2_t;

/* NVML's version of a struct: its size, with the version number in the top byte. */
#define GM_nvmlMemory_v2 ((unsigned int)(sizeof(gm_nvmlMemory_v2_t) | (2U << 24)))

typedef struct {
	unsigned long long bar1Total, bar1Free, bar1Used;
} gm_nvmlBAR1Memory_t;

/* All return gm_nvmlReturn_t. */
/* clang-format off */
#define NVML_FUNCTIONS(X) \
	X(REQUIRED, nvmlInit, nvmlInit_v2, (void)) \
	X(REQUIRED, nvmlShutdown, nvmlShutdown, (void)) \
	X(REQUIRED, nvmlSystemGetDriverVersion, nvmlSystemGetDriverVersion, \
	  (char *version, unsigned int length)) \
	X(REQUIRED, nvmlDeviceGetHandleByUUID, nvmlDeviceGetHandleByUUID, \
	  (const char *uuid, gm_nvmlDevice_t *device)) \
	X(REQUIRED, nvmlDeviceGetIndex, nvmlDeviceGetIndex, \
	  (gm_nvmlDevice_t device, unsigned int *index)) \
	X(OPTIONAL, nvmlDeviceGetParent, nvmlDeviceGetDeviceHandleFromMigDeviceHandle, \
	  (gm_nvmlDevice_t instance, gm_nvmlDevice_t *device)) \
	X(OPTIONAL, nvmlDeviceGetMaxMigDeviceCount, nvmlDeviceGetMaxMigDeviceCount, \
	  (gm_nvmlDevice_t device, unsigned int *count)) \
	X(OPTIONAL, nvmlDeviceGetMigDeviceHandleByIndex, nvmlDeviceGetMigDeviceHandleByIndex, \
	  (gm_nvmlDevice_t device, unsigned int index, gm_nvmlDevice_t *instance)) \
	X(REQUIRED, nvmlDeviceGetMemoryInfo, nvmlDeviceGetMemoryInfo, \
	  (gm_nvmlDevice_t device, gm_nvmlMemory_t *memory)) \
	X(OPTIONAL, nvmlDeviceGetMemoryInfo_v2, nvmlDeviceGetMemoryInfo_v2, \
	  (gm_nvmlDevice_t device, gm_nvmlMemory_v2_t *memory)) \
	X(REQUIRED, nvmlDeviceGetBAR1MemoryInfo, nvmlDeviceGetBAR1MemoryInfo, \
	  (gm_nvmlDevice_t device, gm_nvmlBAR1Memory_t *memory))
/* clang-format on */

typedef struct gm_gdr *gm_gdr_t;

typedef struct {
	unsigned long h;
} gm_gdr_mh_t;

typedef enum { GM_GDR_MAPPING_TYPE_NONE = 0 } gm_gdr_mapping_type_t;

typedef struct {
	/* Start of the mapping: the pinned address rounded down to a page of the GPU. */
	uint64_t va;
	uint64_t mapped_size;
	uint32_t page_size;
	uint64_t tm_cycles;
	uint32_t cycles_per_ms;
	unsigned mapped : 1;
	unsigned wc_mapping : 1;
	gm_gdr_mapping_type_t mapping_type;
} gm_gdr_info_v2_t;

/* X(need, field, symbol, type, arguments): an int result is 0 or a positive errno. */
/* clang-format off */
#define GDR_FUNCTIONS(X) \
	X(REQUIRED, gdr_open, gdr_open, gm_gdr_t, (void)) \
	X(REQUIRED, gdr_close, gdr_close, int, (gm_gdr_t gdr)) \
	X(REQUIRED, gdr_pin_buffer, gdr_pin_buffer, int, \
	  (gm_gdr_t gdr, unsigned long address, size_t size, uint64_t p2p_token, uint32_t va_space, \
	   gm_gdr_mh_t *handle)) \
	X(REQUIRED, gdr_unpin_buffer, gdr_unpin_buffer, int, (gm_gdr_t gdr, gm_gdr_mh_t handle)) \
	X(REQUIRED, gdr_get_info, gdr_get_info_v2, int, \
	  (gm_gdr_t gdr, gm_gdr_mh_t handle, gm_gdr_info_v2_t *info)) \
	X(REQUIRED, gdr_map, gdr_map, int, \
	  (gm_gdr_t gdr, gm_gdr_mh_t handle, void **address, size_t size)) \
	X(REQUIRED, gdr_unmap, gdr_unmap, int, \
	  (gm_gdr_t gdr, gm_gdr_mh_t handle, void *address, size_t size))
/* clang-format on */

/* bar_vulkan.c gets vkGetInstanceProcAddr from libvulkan.so.1 by dlsym, and all other functions by
 * vkGetInstanceProcAddr or vkGetDeviceProcAddr. Their types are those of vulkan/vulkan.h, a build
 * dependency. */

#endif
