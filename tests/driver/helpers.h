/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* What the stand-in libcuda.so.1 tells the other stand-ins in its process. They find these by
 * dlsym: linking would need the real libraries' dependencies to be the same. GPUs are numbered here
 * as nvidia-smi numbers them. */
#ifndef DRIVER_HELPERS_H
#define DRIVER_HELPERS_H

#include <stdint.h>

#define STANDIN_API __attribute__((visibility("default")))

/* Every exported fd and every memfd of GPU N bears this name. */
#define STANDIN_MEMFD_NAME "gpumem-standin-gpu"

struct standin_gpu {
	uint8_t uuid[16];
	char name[64];
	uint64_t total, used;
	uint64_t bar_total, bar_used;
	int failed; /* CUresult, 0 while it works */
};

/* 0, or -1 where there is no such GPU. Works before cuInit. */
STANDIN_API int standin_gpu_info(unsigned gpu, struct standin_gpu *info);
/* Takes BAR space of the GPU (gives it back when negative): 0, or -1 when there is not enough. */
STANDIN_API int standin_bar_take(unsigned gpu, int64_t bytes);
/* A readable and writable fd of the memory that is mapped at [address, address + size), and where
 * in it that is: the fd, or -1. Memory must have been created gpuDirectRDMACapable. */
STANDIN_API int standin_range_fd(uint64_t address, uint64_t size, uint64_t *offset, unsigned *gpu);
/* Reopens an exported fd for reading and writing and says whose memory it is: fd, or -1. */
STANDIN_API int standin_reopen(int fd, unsigned *gpu, uint64_t *size);

#endif
