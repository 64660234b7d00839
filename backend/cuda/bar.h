/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* The choice between the ways to a CPU mapping of device memory. A way is used only after a test
 * pattern went in both directions between the mapping and DMA. */
#ifndef BACKEND_CUDA_BAR_H
#define BACKEND_CUDA_BAR_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>

#include "backend/backend.h"
#include "backend/cuda/bar_way.h"

struct cuda_device;
struct cuda_chunk;

struct bar_state {
	struct bar_device device;	     /* constant once probing began */
	pthread_mutex_t lock;		     /* held while probing, opening and closing */
	_Atomic(const struct bar_way *) way; /* NULL: none, or not probed yet */
	void *state; /* owned by the way; constant while the device is held and open */
	atomic_bool open;
	atomic_bool probed;
	char reason[BAR_REASON_MAX]; /* constant once probed */
};

void cuda_bar_init(struct cuda_device *device);
void cuda_bar_close(struct cuda_device *device);
/* Closes the way until the next mapping; the choice stays. No chunk is mapped; lock is held. */
void cuda_bar_idle_release(struct cuda_device *device);

const char *cuda_bar_name(struct device *device, const char **why);
int cuda_bar_map(struct chunk *chunk, void **address);
void cuda_bar_unmap(struct chunk *chunk, void *address);
uint32_t cuda_bar_cost(struct device *device);

/* For a way under test; way->unmap undoes the mapping. */
int cuda_bar_map_way(const struct bar_way *way, void *state, struct cuda_chunk *chunk,
		     void **address, char *why);

/* bar_test.c: whether a mapping by the way shows this device's memory. 0, or -errno and why. */
int cuda_bar_test(struct cuda_device *device, const struct bar_way *way, void *state, char *why);

#endif
