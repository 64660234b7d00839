/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* The ways to CPU mappings of device memory, for the daemon's provider and the client library. A
 * way must not be trusted before one of its mappings has been seen to show the right bytes. */
#ifndef BACKEND_CUDA_BAR_WAY_H
#define BACKEND_CUDA_BAR_WAY_H

#include <stdbool.h>
#include <stdint.h>

#include "backend/cuda/driver/abi.h"

#define BAR_REASON_MAX 160

struct cuda_driver;

/* The GPU with the memory to be mapped. */
struct bar_device {
	const struct cuda_driver *cu; /* NULL: only for a way that does not need CUDA */
	gm_CUdevice handle;	      /* valid with cu */
	gm_CUuuid uuid;
};

/* The memory to be mapped: a whole physical allocation. */
struct bar_source {
	gm_CUdeviceptr address; /* its address for the GPU; 0 for a way without CUDA */
	uint64_t bytes;
	/* Makes a new descriptor of the allocation, the caller's: 0 or -errno. */
	int (*export)(const struct bar_source *source, int *fd);
};

enum bar_needs {
	BAR_NEEDS_CUDA,	  /* bar_device.cu and bar_source.address */
	BAR_NEEDS_NOTHING /* bar_source.export is enough */
};

struct bar_way {
	const char *name;
	enum bar_needs needs;
	uint32_t cost; /* of map, in ns per MiB */
	/* A mapping is at bar_source.address, and unmapped with that address. For clients only. */
	bool at_gpu_address;
	/* Makes the way's state for a device, valid until close. 0, or -errno with the missing
	 * thing in reason (BAR_REASON_MAX bytes). Called once per device, and again after close. */
	int (*open)(const struct bar_device *device, void **state, char *reason);
	void (*close)(void *state);
	/* Maps the whole source. at: the address to map at, replacing an earlier mapping, if the
	 * way can choose (otherwise ignored); NULL: any address. *mapping is for unmap. Any thread.
	 * -ENOSPC: no room left in the BAR; or another -errno, and a reason: then no new
	 * mapping exists, and the earlier mapping at that address may be gone. */
	int (*map)(void *state, const struct bar_source *source, void *at, void **address,
		   void **mapping, char *reason);
	/* address: from map. Leaves the address unmapped. */
	void (*unmap)(void *state, void *address, uint64_t bytes, void *mapping);
};

extern const struct bar_way cuda_bar_dmabuf, cuda_bar_gdrcopy, cuda_bar_vulkan;

#endif
