/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* libcuda, used by a library inside a program: loaded by the first call that needs the driver;
 * never makes a context. */
#ifndef CLIENT_GPU_CUDA_CUDA_H
#define CLIENT_GPU_CUDA_CUDA_H

#include <stdbool.h>

#include "backend/cuda/driver/driver.h"

#define CLIENT_CUDA_FIELD(need, field, symbol, arguments) gm_CUresult(*field) arguments;
struct client_cuda {
	struct cuda_driver cu;
	CUDA_CLIENT_FUNCTIONS(CLIENT_CUDA_FIELD)
};
#undef CLIENT_CUDA_FIELD

/* Gives 0, or -ENODEV without libcuda. */
int client_cuda_get(const struct client_cuda **cuda);

/* Whether the program has initialised CUDA. Does not load libcuda. */
bool client_cuda_running(void);

/* The device of the calling thread's current context. -ENODEV; -EINVAL: there is no current
 * context. */
int client_cuda_current(const struct client_cuda *cuda, gm_CUdevice *device);

/* The device with this UUID, or -ENXIO. */
int client_cuda_find(const struct client_cuda *cuda, const uint8_t uuid[16], gm_CUdevice *device);

/* The errno of a driver call's result, with a text; 0 for success. */
int client_cuda_result(const struct client_cuda *cuda, gm_CUresult result, const char *call);

/* The errno of a call that makes a context. -EBUSY, -EPERM: the device's compute mode gives this
 * process no context. */
int client_cuda_context_result(const struct client_cuda *cuda, gm_CUdevice device,
			       gm_CUresult result);

/* The errno of a call that frees a resource. The resource is free whatever the result, and
 * CUDA_ERROR_DEINITIALIZED (the driver has ended, because the program ends) counts as success. */
int client_cuda_gave_back(const struct client_cuda *cuda, gm_CUresult result, const char *call);

#endif
