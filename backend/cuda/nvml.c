/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* NVML knows the free memory without a CUDA context of 517 MiB, and numbers GPUs as nvidia-smi
 * does. NVML is thread-safe, by its manual. */
#include <errno.h>
#include <stdio.h>

#include "backend/cuda/provider.h"

void nvml_open(struct cuda *cuda)
{
	char why[256];

	if (driver_load_nvml(&cuda->nvml, why, sizeof(why)) < 0) {
		log_info("free GPU memory is read through a CUDA context: %s", why);
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

int nvml_index(struct cuda *cuda, gm_nvmlDevice_t device, unsigned *index)
{
	if (!device || cuda->nvml.nvmlDeviceGetIndex(device, index) != GM_NVML_SUCCESS)
		return -ENOTSUP;
	return 0;
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
