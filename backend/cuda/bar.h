/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* The choice of a device's way to CPU mappings of its memory. A way is used only after a pattern
 * has been copied in both directions between the mapping and DMA. */
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
	_Atomic(const struct bar_way *) way; /* NULL: none works, or not probed yet */
	void *state; /* the way's state; constant while the device is held and open */
	atomic_bool open;
	atomic_bool probed;
	char reason[BAR_REASON_MAX]; /* constant once probed */
};

void cuda_bar_init(struct cuda_device *device);
void cuda_bar_close(struct cuda_device *device);
/* Closes the way until the next mapping; the choice stays. No mapping is left; lock is held. */
void cuda_bar_idle_release(struct cuda_device *device);

const char *cuda_bar_name(struct device *device, const char **reason);
int cuda_bar_map(struct chunk *chunk, void **address);
void cuda_bar_unmap(struct chunk *chunk, void *address);
uint32_t cuda_bar_cost(struct device *device);

/* For a way that is not chosen yet; way->unmap undoes it. */
int cuda_bar_map_way(const struct bar_way *way, void *state, struct cuda_chunk *chunk,
		     void **address, char *reason);

/* bar_test.c: whether the way maps this device's memory correctly. 0, or -errno and a reason. */
int cuda_bar_test(struct cuda_device *device, const struct bar_way *way, void *state, char *reason);

#endif
