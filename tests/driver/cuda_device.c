/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* Initialisation, the devices, and the helpers for the other stand-in libraries. */
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "tests/driver/standin.h"

struct standin standin = {.lock = PTHREAD_RWLOCK_INITIALIZER};

/* The process that called cuInit. A child of the process has no driver, as with the real library.
 */
static _Atomic pid_t initialised_by;

bool standin_is_initialised(void)
{
	return atomic_load_explicit(&initialised_by, memory_order_relaxed) == getpid();
}

bool standin_refused(CUresult entered)
{
	return entered == CUDA_ERROR_NOT_INITIALIZED || entered == CUDA_ERROR_NOT_READY;
}

/* With the real driver a call waits for the end of a lock. The stand-in finds the caller that did
 * not expect the wait. */
static bool is_locked(const char *function)
{
	int state = atomic_load_explicit(&standin.process_state, memory_order_relaxed);

	if (state != CU_PROCESS_STATE_LOCKED && state != CU_PROCESS_STATE_CHECKPOINTED)
		return false;
	standin_violation("%s while a checkpoint holds the process", function);
	return true;
}

CUresult standin_enter(const char *function, enum needs needs, int device)
{
	const struct context *context;
	CUresult fault;

	if (!standin_is_initialised())
		return CUDA_ERROR_NOT_INITIALIZED;
	if (is_locked(function))
		return CUDA_ERROR_NOT_READY;
	context = context_current();
	if (needs == NEEDS_CONTEXT && !context)
		return CUDA_ERROR_INVALID_CONTEXT;
	if (needs == NEEDS_CONTEXT && atomic_load(&context->destroyed))
		return CUDA_ERROR_CONTEXT_IS_DESTROYED;
	if (device == ANY_DEVICE && context)
		device = (int)context->device;

	fault = fault_call(function, device);
	if (fault != CUDA_SUCCESS || device == ANY_DEVICE || !standin_device_valid(device))
		return fault;
	return needs == NEEDS_CONTEXT ? device_state((unsigned)device)
				      : device_lost((unsigned)device);
}

void standin_violation(const char *format, ...)
{
	char line[256];
	va_list arguments;

	va_start(arguments, format);
	vsnprintf(line, sizeof(line), format, arguments);
	va_end(arguments);
	fprintf(stderr, "standin: %s\n", line);
	atomic_fetch_add_explicit(&standin.violations, 1, memory_order_relaxed);
}

uint64_t standin_new_handle(void)
{
	standin.next_handle += 16;
	return standin.next_handle + 0x10000;
}

bool standin_device_valid(int device)
{
	return device >= 0 && (unsigned)device < settings.gpus;
}

static void gpu_name(unsigned gpu, char *name, size_t size)
{
	if (gpu < STANDIN_MIG_FIRST)
		snprintf(name, size, "Stand-in GPU %u", gpu);
	else
		snprintf(name, size, "Stand-in GPU 0 MIG 1g.%llumb",
			 (unsigned long long)standin_gpu_memory(gpu) >> 20);
}

/* MIG instances are at their GPU's address. */
static unsigned pci_bus(unsigned device)
{
	unsigned gpu = standin_physical(device);

	return 0x1A + (gpu < STANDIN_MIG_FIRST ? gpu : 0);
}

STANDIN_API CUresult cuInit(unsigned int flags)
{
	pid_t before = atomic_load(&initialised_by);
	CUresult fault;

	settings_load();
	if (flags)
		return CUDA_ERROR_INVALID_VALUE;
	if (before && before != getpid())
		return CUDA_ERROR_NOT_INITIALIZED;
	fault = fault_call(__func__, ANY_DEVICE);
	if (fault != CUDA_SUCCESS)
		return fault;
	if (!settings.gpus)
		return CUDA_ERROR_NO_DEVICE;
	atomic_store(&initialised_by, getpid());
	checkpoints_serve();
	return CUDA_SUCCESS;
}

STANDIN_API CUresult cuDriverGetVersion(int *version)
{
	settings_load();
	if (!version)
		return CUDA_ERROR_INVALID_VALUE;
	*version = settings.driver_version;
	return CUDA_SUCCESS;
}

STANDIN_API CUresult cuDeviceGetCount(int *count)
{
	ENTER(NEEDS_INIT);
	if (!count)
		return CUDA_ERROR_INVALID_VALUE;
	*count = (int)settings.gpus;
	return CUDA_SUCCESS;
}

STANDIN_API CUresult cuDeviceGet(CUdevice *device, int ordinal)
{
	ENTER(NEEDS_INIT);
	if (!device)
		return CUDA_ERROR_INVALID_VALUE;
	if (!standin_device_valid(ordinal))
		return CUDA_ERROR_INVALID_DEVICE;
	*device = ordinal;
	return CUDA_SUCCESS;
}

STANDIN_API CUresult cuDeviceGetName(char *name, int length, CUdevice device)
{
	ENTER(NEEDS_INIT);
	if (!name || length <= 0)
		return CUDA_ERROR_INVALID_VALUE;
	if (!standin_device_valid(device))
		return CUDA_ERROR_INVALID_DEVICE;
	gpu_name(standin_physical((unsigned)device), name, (size_t)length);
	return CUDA_SUCCESS;
}

STANDIN_API CUresult cuDeviceGetUuid_v2(CUuuid *uuid, CUdevice device)
{
	ENTER(NEEDS_INIT);
	if (!uuid)
		return CUDA_ERROR_INVALID_VALUE;
	if (!standin_device_valid(device))
		return CUDA_ERROR_INVALID_DEVICE;
	standin_uuid(standin_physical((unsigned)device), (uint8_t *)uuid->bytes);
	return CUDA_SUCCESS;
}

STANDIN_API CUresult cuDeviceTotalMem_v2(size_t *bytes, CUdevice device)
{
	ENTER(NEEDS_INIT);
	if (!bytes)
		return CUDA_ERROR_INVALID_VALUE;
	if (!standin_device_valid(device))
		return CUDA_ERROR_INVALID_DEVICE;
	*bytes = standin_gpu_memory(standin_physical((unsigned)device));
	return CUDA_SUCCESS;
}

STANDIN_API CUresult cuDeviceGetPCIBusId(char *id, int length, CUdevice device)
{
	ENTER(NEEDS_INIT);
	if (!id || length < 13)
		return CUDA_ERROR_INVALID_VALUE;
	if (!standin_device_valid(device))
		return CUDA_ERROR_INVALID_DEVICE;
	snprintf(id, (size_t)length, "0000:%02X:00.0", pci_bus((unsigned)device));
	return CUDA_SUCCESS;
}

static int attribute_value(CUdevice_attribute attribute, unsigned device)
{
	switch ((int)attribute) {
	case CU_DEVICE_ATTRIBUTE_CAN_MAP_HOST_MEMORY:
	case CU_DEVICE_ATTRIBUTE_UNIFIED_ADDRESSING:
	case CU_DEVICE_ATTRIBUTE_HOST_REGISTER_SUPPORTED:
	case CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED:
	case CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED:
	case CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WITH_CUDA_VMM_SUPPORTED:
	case CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_SUPPORTED:
	case CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_FLUSH_WRITES_OPTIONS:
	case CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_FABRIC_SUPPORTED:
		return 1;
	case CU_DEVICE_ATTRIBUTE_COMPUTE_MODE:
		return settings.compute_mode;
	case CU_DEVICE_ATTRIBUTE_DMA_BUF_SUPPORTED:
		return settings.dmabuf != DMABUF_OFF;
	case CU_DEVICE_ATTRIBUTE_HOST_NUMA_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED:
		return settings.host_memory != 0;
	case CU_DEVICE_ATTRIBUTE_HOST_NUMA_ID:
		return HOST_NODE;
	case CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WRITES_ORDERING:
		return CU_FLUSH_GPU_DIRECT_RDMA_WRITES_TO_OWNER;
	case CU_DEVICE_ATTRIBUTE_PCI_BUS_ID:
		return (int)pci_bus(device);
	case CU_DEVICE_ATTRIBUTE_ASYNC_ENGINE_COUNT:
		return 3;
	case CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR:
		return 9;
	default:
		return 0;
	}
}

STANDIN_API CUresult cuDeviceGetAttribute(int *value, CUdevice_attribute attribute, CUdevice device)
{
	ENTER(NEEDS_INIT);
	if (!value || (int)attribute <= 0)
		return CUDA_ERROR_INVALID_VALUE;
	if (!standin_device_valid(device))
		return CUDA_ERROR_INVALID_DEVICE;
	*value = attribute_value(attribute, (unsigned)device);
	return CUDA_SUCCESS;
}

STANDIN_API CUresult cuDeviceCanAccessPeer(int *can, CUdevice device, CUdevice peer)
{
	ENTER(NEEDS_INIT);
	if (!can)
		return CUDA_ERROR_INVALID_VALUE;
	if (!standin_device_valid(device) || !standin_device_valid(peer))
		return CUDA_ERROR_INVALID_DEVICE;
	*can = device != peer && settings.peer;
	return CUDA_SUCCESS;
}

STANDIN_API CUresult cuMemGetInfo_v2(size_t *available, size_t *total)
{
	ENTER(NEEDS_CONTEXT);
	if (!available || !total)
		return CUDA_ERROR_INVALID_VALUE;

	STANDIN_LOCKED(SHARED);
	*available = device_available(context_device());
	*total = standin_gpu_memory(standin_physical(context_device()));
	return CUDA_SUCCESS;
}

STANDIN_API CUresult cuFlushGPUDirectRDMAWrites(CUflushGPUDirectRDMAWritesTarget target,
						CUflushGPUDirectRDMAWritesScope scope)
{
	ENTER(NEEDS_CONTEXT);
	if (target != CU_FLUSH_GPU_DIRECT_RDMA_WRITES_TARGET_CURRENT_CTX ||
	    (scope != CU_FLUSH_GPU_DIRECT_RDMA_WRITES_TO_OWNER &&
	     scope != CU_FLUSH_GPU_DIRECT_RDMA_WRITES_TO_ALL_DEVICES))
		return CUDA_ERROR_INVALID_VALUE;
	return CUDA_SUCCESS;
}

int standin_gpu_info(unsigned gpu, struct standin_gpu *info)
{
	int device;

	settings_load();
	if (!standin_gpu_exists(gpu))
		return -1;
	device = standin_ordinal(gpu);
	standin_uuid(gpu, info->uuid);
	gpu_name(gpu, info->name, sizeof(info->name));

	STANDIN_LOCKED(SHARED);
	info->total = standin_gpu_memory(gpu);
	info->bar_total = settings.bar;
	info->used = info->bar_used = 0;
	info->failed = CUDA_SUCCESS;
	if (device < 0)
		return 0;
	info->used = info->total - device_available((unsigned)device);
	info->bar_used = standin.devices[device].bar_used;
	info->failed = atomic_load(&standin.devices[device].failed);
	return 0;
}

int standin_bar_take(unsigned gpu, int64_t bytes)
{
	struct device *device;

	settings_load();
	if (standin_ordinal(gpu) < 0)
		return -1;
	device = &standin.devices[standin_ordinal(gpu)];

	STANDIN_LOCKED(EXCLUSIVE);
	if (bytes > 0 && device->bar_used + (uint64_t)bytes > settings.bar)
		return -1;
	device->bar_used += (uint64_t)bytes;
	return 0;
}
