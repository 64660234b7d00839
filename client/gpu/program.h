/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* The allocations behind a range of device addresses of this process, as descriptors. */
#ifndef CLIENT_GPU_PIECES_H
#define CLIENT_GPU_PIECES_H

#include <stddef.h>
#include <stdint.h>

struct client_pieces {
	int *fds;
	size_t *sizes; /* of the whole allocations */
	uint32_t n;
	uint64_t skip; /* bytes of the first allocation before the range */
};

/* Zeroed pieces are empty. -ENODEV: no CUDA; -ENOTSUP: memory that CUDA does not export, such as
 * cudaMalloc's; -EINVAL: a gap; -EMFILE. */
int client_pieces_export(uint64_t address, uint64_t bytes, struct client_pieces *pieces);
void client_pieces_close(struct client_pieces *pieces);

#endif
