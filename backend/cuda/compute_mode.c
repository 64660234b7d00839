/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
#include "backend/cuda/provider.h"
#include "common/log.h"

static const char exclusive_mode[] = "exclusive_process";
static const char prohibited_mode[] = "prohibited";

void cuda_compute_mode_read(struct cuda_device *device)
{
	int mode = GM_CU_COMPUTEMODE_DEFAULT;

	if (device->cuda->cu.cuDeviceGetAttribute(&mode, GM_CU_DEVICE_ATTRIBUTE_COMPUTE_MODE,
						  device->handle) != GM_CUDA_SUCCESS)
		return;
	device->base.compute_mode = mode == GM_CU_COMPUTEMODE_PROHIBITED	  ? prohibited_mode
				    : mode == GM_CU_COMPUTEMODE_EXCLUSIVE_PROCESS ? exclusive_mode
										  : "default";
}

bool cuda_compute_mode_check(struct cuda_device *device)
{
	const struct device *base = &device->base;

	if (base->compute_mode == prohibited_mode)
		log_warn("%s (%s) is not used: its compute mode PROHIBITED lets no process use it: "
			 "nvidia-smi -i %u -c DEFAULT",
			 base->label, base->name, base->index);
	if (base->compute_mode == exclusive_mode)
		log_warn("%s: its compute mode EXCLUSIVE_PROCESS lets one process at a time use "
			 "the GPU: while files are there, all other programs fail with "
			 "CUDA_ERROR_DEVICE_UNAVAILABLE: nvidia-smi -i %u -c DEFAULT",
			 base->label, base->index);
	return base->compute_mode != prohibited_mode;
}

bool cuda_compute_mode_refuses(struct cuda_device *device, gm_CUresult result)
{
	if (result != GM_CUDA_ERROR_DEVICE_UNAVAILABLE)
		return false;
	cuda_compute_mode_read(device); /* the mode changes at any time */
	if (device->base.compute_mode != exclusive_mode)
		return false;
	log_caller_error("%s: another process has the GPU alone (compute mode "
			 "EXCLUSIVE_PROCESS): nvidia-smi -i %u -c DEFAULT",
			 device->base.label, device->base.index);
	return true;
}
