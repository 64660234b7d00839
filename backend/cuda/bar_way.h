/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* The ways to a CPU mapping of device memory, as the daemon's provider and the client library both
 * take them. No way is to be believed before a mapping of it was seen to show the right bytes. */
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

/* What is mapped: a whole physical allocation. */
struct bar_source {
	gm_CUdeviceptr address; /* where it is mapped for the GPU; 0 for a way without CUDA */
	uint64_t bytes;
	/* A new fd of the allocation, the caller's to close: 0 or -errno. */
	int (*export)(const struct bar_source *source, int *fd);
};

enum bar_needs {
	BAR_NEEDS_CUDA,	  /* bar_device.cu and bar_source.address */
	BAR_NEEDS_NOTHING /* bar_source.export is enough */
};

struct bar_way {
	const char *name;
	enum bar_needs needs;
	uint32_t cost; /* of map, ns per MiB */
	/* What the way needs per device, which stays valid until close. 0, or -errno and in why
	 * (BAR_REASON_MAX bytes) what is missing. Called once per device and again after close. */
	int (*open)(const struct bar_device *device, void **state, char *why);
	void (*close)(void *state);
	/* Maps the whole source. at: where, replacing what is mapped there, if the way can choose;
	 * one that cannot maps elsewhere all the same; NULL: anywhere. *mapping is for unmap. Any
	 * thread. -ENOSPC: no room left in the BAR; else another -errno. On failure why says more,
	 * and nothing new is mapped; what was at the place may be gone. */
	int (*map)(void *state, const struct bar_source *source, void *at, void **address,
		   void **mapping, char *why);
	/* The address that map gave: nothing is mapped there afterwards. */
	void (*unmap)(void *state, void *address, uint64_t bytes, void *mapping);
};

extern const struct bar_way cuda_bar_dmabuf, cuda_bar_gdrcopy, cuda_bar_vulkan;

#endif
