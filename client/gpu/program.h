/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* CUDA objects that the program has made: its allocations as descriptors, and words of 64 bits
 * that its streams write and wait for, in order with their other work. */
#ifndef CLIENT_GPU_PROGRAM_H
#define CLIENT_GPU_PROGRAM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct client_pieces {
	int *fds;
	size_t *sizes; /* of the whole allocations */
	uint32_t n;
	bool of_malloc; /* of cudaMalloc: one piece, whose memory ends with this process */
	uint64_t skip;	/* bytes of the first allocation before the range */
	uint8_t uuid[16];
};

/* Zeroed pieces are empty. uuid: of the memory's GPU. -ENODEV: no CUDA; -ENOTSUP: memory that CUDA
 * does not share, or several allocations of cudaMalloc; -EINVAL: a gap; -EMFILE. */
int client_pieces_export(uint64_t address, uint64_t bytes, struct client_pieces *pieces);
void client_pieces_close(struct client_pieces *pieces);

/* stream: a CUstream of the current context, or NULL. Writes behind the stream's earlier work,
 * whose stores any process sees before the value. 0; -ENODEV: no CUDA; -ENOTSUP: a driver or a GPU
 * without such operations; or another -errno, with a text. */
int client_stream_write(void *stream, uint64_t address, uint64_t value);
/* Holds the stream's later work up until the word, less the value, is not negative as an int64_t.
 */
int client_stream_wait(void *stream, uint64_t address, uint64_t value);

#endif
