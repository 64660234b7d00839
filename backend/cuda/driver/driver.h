/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* Loads CUDA and NVML at run time, and is the only place that turns CUDA's results into errnos. */
#ifndef BACKEND_CUDA_DRIVER_DRIVER_H
#define BACKEND_CUDA_DRIVER_DRIVER_H

#include <stdbool.h>

#include "backend/cuda/driver/abi.h"
#include "common/driver_library.h"

#define CUDA_FIELD(need, field, symbol, arguments) gm_CUresult(*field) arguments;
struct cuda_driver {
	void *library;
	CUDA_FUNCTIONS(CUDA_FIELD)
};
#undef CUDA_FIELD

#define NVML_FIELD(need, field, symbol, arguments) gm_nvmlReturn_t(*field) arguments;
struct nvml_driver {
	void *library;
	NVML_FUNCTIONS(NVML_FIELD)
};
#undef NVML_FIELD

int driver_load_cuda(struct cuda_driver *cu, char *reason, size_t size);
int driver_load_nvml(struct nvml_driver *nvml, char *reason, size_t size);

/* The meaning of a CUresult. */
struct driver_error {
	int error;  /* -errno */
	bool fatal; /* sticky: the device is gone, or its context fails all later calls */
};
struct driver_error driver_error(gm_CUresult result);

/* "CUDA_ERROR_OUT_OF_MEMORY", or "CUDA error 1234". */
#define DRIVER_ERROR_NAME_MAX 64
const char *driver_error_name(const struct cuda_driver *cu, gm_CUresult result,
			      char text[DRIVER_ERROR_NAME_MAX]);

#endif
