/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
#include "backend/cuda/driver/driver.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#define ROWS(table) (sizeof(table) / sizeof((table)[0]))

#define CUDA_ROW(need, field, symbol, arguments)                                                   \
	{#symbol, offsetof(struct cuda_driver, field), need},
static const struct driver_symbol cuda_symbols[] = {CUDA_FUNCTIONS(CUDA_ROW)};

#define NVML_ROW(need, field, symbol, arguments)                                                   \
	{#symbol, offsetof(struct nvml_driver, field), need},
static const struct driver_symbol nvml_symbols[] = {NVML_FUNCTIONS(NVML_ROW)};

int driver_load_cuda(struct cuda_driver *cu, char *reason, size_t size)
{
	return driver_load("libcuda.so.1", cuda_symbols, ROWS(cuda_symbols), cu, reason, size,
			   &cu->library);
}

int driver_load_nvml(struct nvml_driver *nvml, char *reason, size_t size)
{
	return driver_load("libnvidia-ml.so.1", nvml_symbols, ROWS(nvml_symbols), nvml, reason,
			   size, &nvml->library);
}

struct driver_error driver_error(gm_CUresult result)
{
	switch (result) {
	case GM_CUDA_SUCCESS:
		return (struct driver_error){0, false};
	case GM_CUDA_ERROR_OUT_OF_MEMORY:
		return (struct driver_error){-ENOSPC, false};
	case GM_CUDA_ERROR_INVALID_VALUE:
	case GM_CUDA_ERROR_INVALID_HANDLE:
	case GM_CUDA_ERROR_ILLEGAL_STATE:
	case GM_CUDA_ERROR_INVALID_CONTEXT:
	case GM_CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED:
		return (struct driver_error){-EINVAL, false};
	case GM_CUDA_ERROR_INVALID_DEVICE:
		return (struct driver_error){-ENXIO, false};
	case GM_CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED:
		return (struct driver_error){-EEXIST, false};
	case GM_CUDA_ERROR_NOT_SUPPORTED:
	case GM_CUDA_ERROR_NOT_PERMITTED:
	case GM_CUDA_ERROR_PEER_ACCESS_UNSUPPORTED:
		return (struct driver_error){-ENOTSUP, false};
	case GM_CUDA_ERROR_NO_DEVICE:
	case GM_CUDA_ERROR_NOT_INITIALIZED:
		return (struct driver_error){-ENODEV, false};
	case GM_CUDA_ERROR_NOT_READY:
		return (struct driver_error){-EAGAIN, false};
	case GM_CUDA_ERROR_DEINITIALIZED:
	case GM_CUDA_ERROR_DEVICE_UNAVAILABLE:
	case GM_CUDA_ERROR_ECC_UNCORRECTABLE:
	case GM_CUDA_ERROR_NVLINK_UNCORRECTABLE:
	case GM_CUDA_ERROR_CONTAINED:
	case GM_CUDA_ERROR_ILLEGAL_ADDRESS:
	case GM_CUDA_ERROR_LAUNCH_TIMEOUT:
	case GM_CUDA_ERROR_CONTEXT_IS_DESTROYED:
	case GM_CUDA_ERROR_HARDWARE_STACK_ERROR:
	case GM_CUDA_ERROR_ILLEGAL_INSTRUCTION:
	case GM_CUDA_ERROR_MISALIGNED_ADDRESS:
	case GM_CUDA_ERROR_INVALID_ADDRESS_SPACE:
	case GM_CUDA_ERROR_INVALID_PC:
	case GM_CUDA_ERROR_LAUNCH_FAILED:
	case GM_CUDA_ERROR_EXTERNAL_DEVICE:
	case GM_CUDA_ERROR_SYSTEM_NOT_READY:
	case GM_CUDA_ERROR_UNKNOWN: /* also the result for a GPU that fell off the bus */
		return (struct driver_error){-EIO, true};
	default:
		return (struct driver_error){-EIO, false};
	}
}

const char *driver_error_name(const struct cuda_driver *cu, gm_CUresult result,
			      char text[DRIVER_ERROR_NAME_MAX])
{
	const char *name = NULL;
	if (cu->cuGetErrorName(result, &name) == GM_CUDA_SUCCESS && name)
		snprintf(text, DRIVER_ERROR_NAME_MAX, "%s", name);
	else
		snprintf(text, DRIVER_ERROR_NAME_MAX, "CUDA error %d", (int)result);
	return text;
}
