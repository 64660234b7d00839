/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* Stand-in libnvidia-ml.so.1: the names, sizes and counters of the stand-in GPUs. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/driver/other.h"

typedef enum {
	NVML_SUCCESS = 0,
	NVML_ERROR_UNINITIALIZED = 1,
	NVML_ERROR_INVALID_ARGUMENT = 2,
	NVML_ERROR_NOT_FOUND = 6,
	NVML_ERROR_INSUFFICIENT_SIZE = 7,
	NVML_ERROR_DRIVER_NOT_LOADED = 9,
	NVML_ERROR_GPU_IS_LOST = 15,
	NVML_ERROR_ARGUMENT_VERSION_MISMATCH = 25,
} nvmlReturn_t;

typedef struct nvmlDevice_st *nvmlDevice_t;

typedef struct {
	unsigned long long total, free, used;
} nvmlMemory_t;

typedef struct {
	unsigned int version;
	unsigned long long total, reserved, free, used;
} nvmlMemory_v2_t;

typedef struct {
	unsigned long long bar1Total, bar1Free, bar1Used;
} nvmlBAR1Memory_t;

#define MEMORY_V2_VERSION (sizeof(nvmlMemory_v2_t) | 2U << 24)
/* CUDA_ERROR_UNKNOWN: the stand-in libcuda's error for a GPU that fell off the bus. */
#define LOST 999

static struct {
	pthread_mutex_t lock;
	unsigned users;
} state = {PTHREAD_MUTEX_INITIALIZER, 0};

static bool is_ready(void)
{
	bool ready;

	pthread_mutex_lock(&state.lock);
	ready = state.users > 0;
	pthread_mutex_unlock(&state.lock);
	return ready;
}

/* A handle is the number of the GPU or the MIG instance plus one. */
static nvmlReturn_t gpu_of(nvmlDevice_t device, struct standin_gpu *info, unsigned *gpu)
{
	*gpu = (unsigned)(uintptr_t)device - 1;
	if (!is_ready())
		return NVML_ERROR_UNINITIALIZED;
	if (!device || other_helpers()->gpu_info(*gpu, info))
		return NVML_ERROR_INVALID_ARGUMENT;
	return info->failed == LOST ? NVML_ERROR_GPU_IS_LOST : NVML_SUCCESS;
}

STANDIN_API nvmlReturn_t nvmlInit_v2(void)
{
	if (other_setting_is("GPUMEM_STANDIN_NVML", "0"))
		return NVML_ERROR_DRIVER_NOT_LOADED;
	pthread_mutex_lock(&state.lock);
	state.users++;
	pthread_mutex_unlock(&state.lock);
	return NVML_SUCCESS;
}

STANDIN_API nvmlReturn_t nvmlShutdown(void)
{
	nvmlReturn_t result = NVML_ERROR_UNINITIALIZED;

	pthread_mutex_lock(&state.lock);
	if (state.users) {
		state.users--;
		result = NVML_SUCCESS;
	}
	pthread_mutex_unlock(&state.lock);
	return result;
}

STANDIN_API const char *nvmlErrorString(nvmlReturn_t result)
{
	switch (result) {
	case NVML_SUCCESS:
		return "Success";
	case NVML_ERROR_UNINITIALIZED:
		return "Uninitialized";
	case NVML_ERROR_INVALID_ARGUMENT:
		return "Invalid Argument";
	case NVML_ERROR_NOT_FOUND:
		return "Not Found";
	case NVML_ERROR_INSUFFICIENT_SIZE:
		return "Insufficient Size";
	case NVML_ERROR_DRIVER_NOT_LOADED:
		return "Driver Not Loaded";
	case NVML_ERROR_GPU_IS_LOST:
		return "GPU is lost";
	case NVML_ERROR_ARGUMENT_VERSION_MISMATCH:
		return "Argument version mismatch";
	}
	return "Unknown Error";
}

STANDIN_API nvmlReturn_t nvmlSystemGetDriverVersion(char *version, unsigned int length)
{
	static const char text[] = "580.0.stand-in";

	if (!is_ready())
		return NVML_ERROR_UNINITIALIZED;
	if (!version)
		return NVML_ERROR_INVALID_ARGUMENT;
	if (length < sizeof(text))
		return NVML_ERROR_INSUFFICIENT_SIZE;
	memcpy(version, text, sizeof(text));
	return NVML_SUCCESS;
}

STANDIN_API nvmlReturn_t nvmlDeviceGetCount_v2(unsigned int *count)
{
	if (!is_ready())
		return NVML_ERROR_UNINITIALIZED;
	if (!count)
		return NVML_ERROR_INVALID_ARGUMENT;
	*count = other_gpus();
	return NVML_SUCCESS;
}

STANDIN_API nvmlReturn_t nvmlDeviceGetHandleByIndex_v2(unsigned int index, nvmlDevice_t *device)
{
	if (!is_ready())
		return NVML_ERROR_UNINITIALIZED;
	if (!device || index >= other_gpus())
		return NVML_ERROR_INVALID_ARGUMENT;
	*device = (nvmlDevice_t)(uintptr_t)(index + 1);
	return NVML_SUCCESS;
}

STANDIN_API nvmlReturn_t nvmlDeviceGetHandleByUUID(const char *uuid, nvmlDevice_t *device)
{
	struct standin_gpu info;
	char text[UUID_TEXT_MAX];

	if (!is_ready())
		return NVML_ERROR_UNINITIALIZED;
	if (!uuid || !device)
		return NVML_ERROR_INVALID_ARGUMENT;
	for (unsigned gpu = 0; gpu < 2 * STANDIN_MIG_FIRST; gpu++) {
		if (other_helpers()->gpu_info(gpu, &info))
			continue;
		other_uuid_text(gpu, info.uuid, text);
		if (strcmp(text, uuid) != 0)
			continue;
		*device = (nvmlDevice_t)(uintptr_t)(gpu + 1);
		return NVML_SUCCESS;
	}
	return NVML_ERROR_NOT_FOUND;
}

STANDIN_API nvmlReturn_t nvmlDeviceGetIndex(nvmlDevice_t device, unsigned int *index)
{
	struct standin_gpu info;
	unsigned gpu;
	nvmlReturn_t result = gpu_of(device, &info, &gpu);

	if (result != NVML_SUCCESS)
		return result;
	if (!index)
		return NVML_ERROR_INVALID_ARGUMENT;
	*index = gpu % STANDIN_MIG_FIRST;
	return NVML_SUCCESS;
}

STANDIN_API nvmlReturn_t nvmlDeviceGetUUID(nvmlDevice_t device, char *uuid, unsigned int length)
{
	struct standin_gpu info;
	unsigned gpu;
	nvmlReturn_t result = gpu_of(device, &info, &gpu);

	if (result != NVML_SUCCESS)
		return result;
	if (!uuid)
		return NVML_ERROR_INVALID_ARGUMENT;
	if (length < UUID_TEXT_MAX)
		return NVML_ERROR_INSUFFICIENT_SIZE;
	other_uuid_text(gpu, info.uuid, uuid);
	return NVML_SUCCESS;
}

STANDIN_API nvmlReturn_t nvmlDeviceGetMemoryInfo(nvmlDevice_t device, nvmlMemory_t *memory)
{
	struct standin_gpu info;
	unsigned gpu;
	nvmlReturn_t result = gpu_of(device, &info, &gpu);

	if (result != NVML_SUCCESS)
		return result;
	if (!memory)
		return NVML_ERROR_INVALID_ARGUMENT;
	*memory = (nvmlMemory_t){info.total, info.total - info.used, info.used};
	return NVML_SUCCESS;
}

STANDIN_API nvmlReturn_t nvmlDeviceGetMemoryInfo_v2(nvmlDevice_t device, nvmlMemory_v2_t *memory)
{
	struct standin_gpu info;
	unsigned gpu;
	nvmlReturn_t result = gpu_of(device, &info, &gpu);

	if (result != NVML_SUCCESS)
		return result;
	if (!memory)
		return NVML_ERROR_INVALID_ARGUMENT;
	if (memory->version != MEMORY_V2_VERSION)
		return NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
	memory->total = info.total;
	memory->reserved = 0;
	memory->used = info.used;
	memory->free = info.total - info.used;
	return NVML_SUCCESS;
}

STANDIN_API nvmlReturn_t nvmlDeviceGetBAR1MemoryInfo(nvmlDevice_t device, nvmlBAR1Memory_t *memory)
{
	struct standin_gpu info;
	unsigned gpu;
	nvmlReturn_t result = gpu_of(device, &info, &gpu);

	if (result != NVML_SUCCESS)
		return result;
	if (!memory)
		return NVML_ERROR_INVALID_ARGUMENT;
	*memory = (nvmlBAR1Memory_t){info.bar_total, info.bar_total - info.bar_used, info.bar_used};
	return NVML_SUCCESS;
}

/* Every instance belongs to GPU 0. */
static bool has_instances(unsigned gpu)
{
	struct standin_gpu info;

	return gpu == 0 && !other_helpers()->gpu_info(STANDIN_MIG_FIRST, &info);
}

STANDIN_API nvmlReturn_t nvmlDeviceGetMaxMigDeviceCount(nvmlDevice_t device, unsigned int *count)
{
	struct standin_gpu info;
	unsigned gpu;
	nvmlReturn_t result = gpu_of(device, &info, &gpu);

	if (result != NVML_SUCCESS)
		return result;
	if (!count)
		return NVML_ERROR_INVALID_ARGUMENT;
	*count = has_instances(gpu) ? 7 : 0;
	return NVML_SUCCESS;
}

STANDIN_API nvmlReturn_t nvmlDeviceGetMigDeviceHandleByIndex(nvmlDevice_t device,
							     unsigned int index,
							     nvmlDevice_t *instance)
{
	struct standin_gpu info;
	unsigned gpu;
	nvmlReturn_t result = gpu_of(device, &info, &gpu);

	if (result != NVML_SUCCESS)
		return result;
	if (!instance || !has_instances(gpu) || index >= 7)
		return NVML_ERROR_INVALID_ARGUMENT;
	if (other_helpers()->gpu_info(STANDIN_MIG_FIRST + index, &info))
		return NVML_ERROR_NOT_FOUND;
	*instance = (nvmlDevice_t)(uintptr_t)(STANDIN_MIG_FIRST + index + 1);
	return NVML_SUCCESS;
}

STANDIN_API nvmlReturn_t nvmlDeviceGetDeviceHandleFromMigDeviceHandle(nvmlDevice_t instance,
								      nvmlDevice_t *device)
{
	struct standin_gpu info;
	unsigned gpu;
	nvmlReturn_t result = gpu_of(instance, &info, &gpu);

	if (result != NVML_SUCCESS)
		return result;
	if (!device || gpu < STANDIN_MIG_FIRST)
		return NVML_ERROR_INVALID_ARGUMENT;
	*device = (nvmlDevice_t)(uintptr_t)1;
	return NVML_SUCCESS;
}
