/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* Kernels that read a file's memory. No lock. Functions that return an int give 0, or -errno with
 * client_error_text. */
#ifndef CLIENT_GPU_CUDA_KERNEL_H
#define CLIENT_GPU_CUDA_KERNEL_H

#include <stdint.h>

/* A kernel that computes 8 bytes for each block of a file. Its arguments are the file's device
 * address, the address of the results, and the number of blocks (uint64_t each). */
struct client_gpu_kernel {
	const char *image; /* as the vendor's driver takes it, with a NUL behind */
	const char *name;
	unsigned threads;	    /* of a group */
	unsigned threads_per_block; /* of the file */
};

/* Loads a kernel on the GPU with this UUID, with room for the results of so many blocks, and makes
 * the GPU's primary context the calling thread's. */
int cuda_kernel_open(const struct client_gpu_kernel *kernel, const uint8_t uuid[16],
		     uint64_t blocks, void **state);
/* Runs the kernel on the blocks from the device address on, and waits for the results. */
int cuda_kernel_run(void *state, uint64_t address, uint64_t *results);
void cuda_kernel_close(void *state);

#endif
