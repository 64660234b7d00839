/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* The functions of client_gpu_cuda, by file; gpu.h has their contracts. */
#ifndef CLIENT_GPU_CUDA_OPS_H
#define CLIENT_GPU_CUDA_OPS_H

#include "client/gpu/cuda/cuda.h"
#include "client/gpu/gpu.h"

/* The state of a client_device_map starts with this. */
struct cuda_map {
	const struct client_cuda *cuda;
	struct cuda_pin *pins; /* NULL: memory of a GPU */
};

/* cuda_device.c. The caller sets map.vendor after a mapping. */
int cuda_device_map(struct client_device_map *map, const struct client_layout *layout);
int cuda_device_extend(struct client_device_map *map, const struct client_layout *layout);
int cuda_device_unmap(struct client_device_map *map, const struct client_layout *layout);
int cuda_device_prepare(const struct client_device_map *map, const struct client_layout *layout);
void cuda_device_cancel(const struct client_device_map *map, const struct client_layout *layout);
int cuda_device_park(struct client_device_map *map, const struct client_layout *layout);

/* cuda_copy.c */
int cuda_device_copy(uint64_t to, uint64_t from, size_t bytes, void *stream);
int cuda_host_copy(void *to, uint64_t from, size_t bytes);

/* cuda_pinned.c. The caller sets map.vendor after a mapping. */
int cuda_pinned_map(struct client_device_map *map, const struct client_layout *layout);
int cuda_pinned_extend(struct client_device_map *map, const struct client_layout *layout);
int cuda_pinned_unmap(struct client_device_map *map);

/* cuda_host.c */
int cuda_host_map(struct client_host_map *map, const struct client_layout *layout, int file);
int cuda_host_extend(struct client_host_map *map, const struct client_layout *layout);
void cuda_host_unmap(struct client_host_map *map);
void cuda_host_park(struct client_host_map *map);
void cuda_host_forget(struct client_host_map *map);
const char *cuda_host_provider(const struct client_host_map *map);
/* The driver that the mapping's way uses; NULL: the way uses none. */
const struct client_cuda *cuda_host_driver(const struct client_host_map *map);

#endif
