/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* The ways to a CPU mapping of device memory, shared by the daemon's provider and the client
 * library. A user of a way first tests that a mapping shows the right bytes. */
#ifndef BACKEND_CUDA_BAR_WAY_H
#define BACKEND_CUDA_BAR_WAY_H

#include <stdint.h>

#include "backend/cuda/abi.h"

#define BAR_REASON_MAX 160

struct cuda_driver;

/* The GPU whose memory is mapped. */
struct bar_device {
	const struct cuda_driver *cu; /* NULL: only for a way that does not need CUDA */
	gm_CUdevice handle;	      /* with cu */
	gm_CUuuid uuid;
};

/* The memory to map: a whole physical allocation. */
struct bar_source {
	gm_CUdeviceptr address; /* the GPU's address of the allocation; 0 for a way without CUDA */
	uint64_t bytes;
	/* A new fd of the allocation, closed by the caller: 0 or -errno. */
	int (*export)(const struct bar_source *source, int *fd);
};

enum bar_needs {
	BAR_NEEDS_CUDA,	  /* bar_device.cu and bar_source.address */
	BAR_NEEDS_NOTHING /* bar_source.export is enough */
};

struct bar_way {
	const char *name;
	enum bar_needs needs;
	uint32_t cost; /* cost of map, ns per MiB */
	/* Makes the state of the way for a device, valid until close. 0, or -errno and the missing
	 * requirement in why (BAR_REASON_MAX bytes). Called once per device, and again after close.
	 */
	int (*open)(const struct bar_device *device, void **state, char *why);
	void (*close)(void *state);
	/* Maps the whole source. at: the wanted address, where an existing mapping is replaced, if
	 * the way can choose the address, else the mapping is elsewhere; NULL: any address.
	 * *mapping is for unmap. Any thread. -ENOSPC: no room left in the BAR; else another -errno.
	 * On failure why has details, and nothing new is mapped; the former mapping at the address
	 * may be gone. */
	int (*map)(void *state, const struct bar_source *source, void *at, void **address,
		   void **mapping, char *why);
	/* Removes the mapping at the address from map: nothing is mapped there afterwards. */
	void (*unmap)(void *state, void *address, uint64_t bytes, void *mapping);
};

extern const struct bar_way cuda_bar_dmabuf, cuda_bar_gdrcopy, cuda_bar_vulkan;

#endif
