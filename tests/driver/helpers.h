/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* The functions of the stand-in libcuda.so.1 for the other stand-ins in its process. The other
 * stand-ins find the functions by dlsym: linking would need the real libraries' dependencies to be
 * the same. GPU numbers here are nvidia-smi's; MIG
 * instance I of GPU 0 has the number STANDIN_MIG_FIRST + I. */
#ifndef DRIVER_HELPERS_H
#define DRIVER_HELPERS_H

#include <stdint.h>

#define STANDIN_API __attribute__((visibility("default")))

/* The name of every exported fd and every memfd of GPU N begins with STANDIN_MEMFD_NAME, and N
 * follows. Host-located memory has STANDIN_HOST_MEMFD_NAME. */
#define STANDIN_MEMFD_NAME	"gpumem-standin-gpu"
#define STANDIN_HOST_MEMFD_NAME "gpumem-standin-host"

#define STANDIN_MIG_FIRST 64

/* The UUID of GPU 0; the last byte of GPU N's is N more. */
#define STANDIN_UUID                                                                               \
	{                                                                                          \
		0x57, 0xa2, 0xd1, 0x9c, 0x6e, 0x40, 0x4b, 0x13, 0x9f, 0x08, 0x3d, 0x71, 0xc5,      \
		    0xe2, 0x00, 0x01                                                               \
	}

struct standin_gpu {
	uint8_t uuid[16];
	char name[64];
	uint64_t total, used;
	uint64_t bar_total, bar_used;
	int failed; /* CUresult, 0 while the GPU works */
};

/* Returns 0, or -1 for an unknown GPU. Works before cuInit. */
STANDIN_API int standin_gpu_info(unsigned gpu, struct standin_gpu *info);
/* Takes BAR space of the GPU; a negative number gives BAR space back. Returns 0, or -1 if the GPU
 * has too little BAR space left. */
STANDIN_API int standin_bar_take(unsigned gpu, int64_t bytes);
/* Returns a readable and writable fd of the memory that is mapped at [address, address + size), and
 * sets offset to the range's place in the fd; -1 on failure. The memory must have been created
 * gpuDirectRDMACapable. */
STANDIN_API int standin_range_fd(uint64_t address, uint64_t size, uint64_t *offset, unsigned *gpu);
/* Reopens an exported fd for reading and writing, and sets gpu and size to the GPU and the size of
 * its memory. Returns the fd, or -1, also for host-located memory, which is no GPU's. */
STANDIN_API int standin_reopen(int fd, unsigned *gpu, uint64_t *size);

#endif
