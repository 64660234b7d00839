/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* A file's CPU address. Callers hold the file's lock. */
#ifndef CLIENT_GPU_HOST_H
#define CLIENT_GPU_HOST_H

#include "client/core/range.h"
#include "client/gpu/bar.h"

struct client_host_map {
	struct client_range range; /* base NULL: not mapped */
	/* Of a GPU's memory: */
	struct client_bar *bar; /* NULL: plain mmap */
	struct client_bar_piece *pieces;
	uint32_t n_pieces;
};

/* file: any descriptor of the file, to compare with. */
int client_host_map(struct client_host_map *map, const struct client_layout *layout, int file);
int client_host_extend(struct client_host_map *map, const struct client_layout *layout);
void client_host_unmap(struct client_host_map *map);
/* "dmabuf", "gdrcopy", "vulkan", "mmap", "". */
const char *client_host_provider(const struct client_host_map *map);

#endif
