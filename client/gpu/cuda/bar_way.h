/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* Calls the functions of a way in the right thread: the driver thread, or the caller's. */
#ifndef CLIENT_GPU_CUDA_BAR_WAY_H
#define CLIENT_GPU_CUDA_BAR_WAY_H

#include "client/gpu/cuda/bar.h"

/* Sets the state and on_driver_thread. 0 or -errno, with the reason. */
int client_way_open(struct client_bar *bar, char *reason);

/* Maps the allocation of fd (piece->bytes, and at the device address piece->gpu if the way needs
 * one), and sets the piece's address and mapping. 0 or -errno, with the reason. */
int client_way_map(struct client_bar *bar, int fd, void *at, struct client_bar_piece *piece,
		   char *reason);
void client_way_unmap(struct client_bar *bar, const struct client_bar_piece *piece);

#endif
