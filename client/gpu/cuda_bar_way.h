/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* The calls of a way, made in the thread whose descriptors its driver uses. */
#ifndef CLIENT_GPU_CUDA_BAR_WAY_H
#define CLIENT_GPU_CUDA_BAR_WAY_H

#include "client/gpu/cuda_bar.h"

/* Fills in the state and whether it is apart. 0 or -errno, with why. */
int client_way_open(struct client_bar *bar, char *why);

/* Maps the allocation of fd, of piece->bytes (and for a way that needs it at piece->gpu), and fills
 * in the way's address and mapping. 0 or -errno, with why. */
int client_way_map(struct client_bar *bar, int fd, void *at, struct client_bar_piece *piece,
		   char *why);
void client_way_unmap(struct client_bar *bar, const struct client_bar_piece *piece);

#endif
