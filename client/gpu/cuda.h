/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* libcuda, as a library in somebody else's program may use it: found when first needed, and no
 * context is ever made. */
#ifndef CLIENT_GPU_CUDA_H
#define CLIENT_GPU_CUDA_H

#include <stdbool.h>

#include "backend/cuda/driver.h"

#define CLIENT_CUDA_FIELD(need, field, symbol, arguments) gm_CUresult(*field) arguments;
struct client_cuda {
	struct cuda_driver cu;
	CUDA_CLIENT_FUNCTIONS(CLIENT_CUDA_FIELD)
};
#undef CLIENT_CUDA_FIELD

/* 0, or -ENODEV where there is no libcuda. */
int client_cuda_get(const struct client_cuda **cuda);

/* Whether the program has initialised CUDA; does not load it. */
bool client_cuda_running(void);

/* The device of the calling thread's current context: 0, -ENODEV, or -EINVAL where none is. */
int client_cuda_current(const struct client_cuda *cuda, gm_CUdevice *device);

/* The device with this UUID: 0 or -ENXIO. */
int client_cuda_find(const struct client_cuda *cuda, const uint8_t uuid[16], gm_CUdevice *device);

/* What a call gave: 0, or its errno with a text. */
int client_cuda_result(const struct client_cuda *cuda, gm_CUresult result, const char *call);

/* The same for calls that give back: they do so whatever they say, and the driver itself may have
 * ended before, with the program. */
int client_cuda_gave_back(const struct client_cuda *cuda, gm_CUresult result, const char *call);

#endif
