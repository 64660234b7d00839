/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* NVML knows the free memory without a CUDA context of 517 MiB, and numbers GPUs as nvidia-smi
 * does. NVML is thread-safe, by its manual. */
#include <errno.h>
#include <stdio.h>

#include "backend/cuda/provider.h"
#include "common/log.h"

void nvml_open(struct cuda *cuda)
{
	char reason[256];

	if (driver_load_nvml(&cuda->nvml, reason, sizeof(reason)) < 0) {
		log_info("free GPU memory is read through a CUDA context: %s", reason);
		return;
	}
	gm_nvmlReturn_t result = cuda->nvml.nvmlInit();
	if (result != GM_NVML_SUCCESS) {
		log_info("free GPU memory is read through a CUDA context: nvmlInit returns %d",
			 (int)result);
		return;
	}
	cuda->nvml_ready = true;
	char version[48];
	if (cuda->nvml.nvmlSystemGetDriverVersion(version, sizeof(version)) == GM_NVML_SUCCESS)
		snprintf(cuda->base.version, sizeof(cuda->base.version), "%s", version);
}

void nvml_close(struct cuda *cuda)
{
	if (cuda->nvml_ready)
		cuda->nvml.nvmlShutdown();
	cuda->nvml_ready = false;
}

gm_nvmlDevice_t nvml_device(struct cuda *cuda, const char *uuid)
{
	gm_nvmlDevice_t device;

	if (!cuda->nvml_ready ||
	    cuda->nvml.nvmlDeviceGetHandleByUUID(uuid, &device) != GM_NVML_SUCCESS)
		return NULL;
	return device;
}

static gm_nvmlDevice_t nvml_gpu(const struct cuda_device *device)
{
	const struct nvml_driver *nvml = &device->cuda->nvml;
	gm_nvmlDevice_t gpu;

	if (!device->nvml || !device->is_instance)
		return device->nvml;
	return nvml->nvmlDeviceGetParent &&
		       nvml->nvmlDeviceGetParent(device->nvml, &gpu) == GM_NVML_SUCCESS
		   ? gpu
		   : NULL;
}

int nvml_number(struct cuda_device *device, unsigned *index, unsigned *instance)
{
	const struct nvml_driver *nvml = &device->cuda->nvml;
	gm_nvmlDevice_t gpu = nvml_gpu(device);
	unsigned number = 0;

	if (!gpu || nvml->nvmlDeviceGetIndex(gpu, index) != GM_NVML_SUCCESS)
		return -ENOTSUP;
	/* The index of an instance counts in its GPU (NVML's manual, nvmlDeviceGetIndex). */
	if (device->is_instance &&
	    nvml->nvmlDeviceGetIndex(device->nvml, &number) != GM_NVML_SUCCESS)
		return -ENOTSUP;
	*instance = number;
	return 0;
}

unsigned nvml_instances(struct cuda_device *device)
{
	const struct nvml_driver *nvml = &device->cuda->nvml;
	gm_nvmlDevice_t gpu = nvml_gpu(device), instance;
	unsigned max_instances = 0, n = 0;

	if (!gpu || !nvml->nvmlDeviceGetMaxMigDeviceCount ||
	    !nvml->nvmlDeviceGetMigDeviceHandleByIndex ||
	    nvml->nvmlDeviceGetMaxMigDeviceCount(gpu, &max_instances) != GM_NVML_SUCCESS)
		return 0;
	for (unsigned i = 0; i < max_instances; i++)
		n +=
		    nvml->nvmlDeviceGetMigDeviceHandleByIndex(gpu, i, &instance) == GM_NVML_SUCCESS;
	return n;
}

int nvml_free_memory(struct cuda_device *device, uint64_t *bytes)
{
	const struct nvml_driver *nvml = &device->cuda->nvml;

	if (!device->nvml)
		return -ENOTSUP;
	gm_nvmlMemory_v2_t v2 = {.version = GM_nvmlMemory_v2};
	if (nvml->nvmlDeviceGetMemoryInfo_v2 &&
	    nvml->nvmlDeviceGetMemoryInfo_v2(device->nvml, &v2) == GM_NVML_SUCCESS) {
		*bytes = v2.free;
		return 0;
	}
	gm_nvmlMemory_t v1;
	if (nvml->nvmlDeviceGetMemoryInfo(device->nvml, &v1) != GM_NVML_SUCCESS)
		return -ENOTSUP;
	*bytes = v1.free;
	return 0;
}

int nvml_bar_free(struct cuda_device *device, uint64_t *bytes)
{
	gm_nvmlBAR1Memory_t memory;

	if (!device->nvml || device->cuda->nvml.nvmlDeviceGetBAR1MemoryInfo(
				 device->nvml, &memory) != GM_NVML_SUCCESS)
		return -ENOTSUP;
	*bytes = memory.bar1Free;
	return 0;
}
