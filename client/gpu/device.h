/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* A file's device address. Callers hold the file's lock. */
#ifndef CLIENT_GPU_DEVICE_H
#define CLIENT_GPU_DEVICE_H

#include "client/core/answer.h"
#include "client/core/range.h"
#include "client/gpu/cuda.h"

struct client_device_map {
	const struct client_cuda *cuda; /* NULL: not mapped */
	gm_CUdeviceptr base;
	size_t mapped;
	/* device.c, memory of a GPU: */
	size_t reserved;
	uint32_t n_chunks;
	uint64_t devices; /* that have access, by CUDA's number */
	/* pinned.c, system memory: */
	struct client_range range;
	gm_CUcontext context;
	struct client_pin *pins;
	unsigned n_pins;
};

/* Maps the layout for the current context's device, or lets that device into what is mapped. */
int client_device_map(struct client_device_map *map, const struct client_layout *layout);
int client_device_extend(struct client_device_map *map, const struct client_layout *layout);
/* Whatever it returns, the map is gone. */
int client_device_unmap(struct client_device_map *map, const struct client_layout *layout);

/* pinned.c: the same for system memory. */
int client_pinned_map(struct client_device_map *map, const struct client_layout *layout);
int client_pinned_extend(struct client_device_map *map, const struct client_layout *layout);
int client_pinned_unmap(struct client_device_map *map);

#endif
