/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* Inside the CUDA provider: its structs, and what its files offer each other. */
#ifndef BACKEND_CUDA_PROVIDER_H
#define BACKEND_CUDA_PROVIDER_H

#include <pthread.h>

#include "backend/backend.h"
#include "backend/cuda/bar.h"
#include "backend/cuda/driver.h"
#include "backend/cuda/peers.h"
#include "backend/cuda/va.h"
#include "common/cacheline.h"

struct cuda_copier;

struct copiers {
	pthread_mutex_t lock; /* after a device's */
	struct cuda_copier *list;
};

struct dma_pin;

/* Host memory for every copier. */
struct pins {
	/* One registers or unregisters at a time, as the driver would have it; after a copier's and
	 * a device's lock. */
	pthread_mutex_t making;
	pthread_rwlock_t lock; /* after making; held for moments: every copy asks */
	struct dma_pin *list;  /* written under both */
};

struct cuda {
	struct backend base; /* first */
	struct cuda_driver cu;
	struct nvml_driver nvml;
	bool nvml_ready;
	enum bar_provider bar;
	struct peers peers;
	struct copiers copiers;
	struct pins pins;
	atomic_uint exports_kept; /* by all chunks */
};

struct cuda_device {
	struct device base; /* first */
	struct cuda *cuda;
	gm_CUdevice handle;
	gm_CUuuid uuid;
	gm_nvmlDevice_t nvml; /* NULL: NVML does not know it */
	bool rdma;	      /* chunks may ask to be mapped by other devices */
	/* By slot: the device there may access this one's memory, and this one its. */
	bool peer[BACKEND_DEVICES_MAX];
	atomic_bool peers_refused;     /* the driver did not grant it after all; said once */
	_Atomic(gm_CUcontext) context; /* written under lock; NULL while nothing needs it */

	/* Guards the context and what follows, none of which a copy looks at. */
	_Alignas(CACHELINE_ALIGN) pthread_mutex_t lock;
	uint64_t holds;	      /* what needs the context to stay: cuda_hold */
	gm_CUdeviceptr range; /* 0 while nothing needs it */
	uint64_t range_bytes;
	struct va va;

	struct bar_state bar; /* has its own lock, taken before this one */
};

struct cuda_chunk {
	struct chunk base; /* first */
	gm_CUmemGenericAllocationHandle handle;
	gm_CUdeviceptr address; /* 0: its memory is lost; for copies under copier->lock */
	struct peers_entry peers;
	_Atomic int exported; /* kept from the first export on; -1: none */
	void *mapping;	      /* the BAR way's own; see bar.h */
};

static inline struct cuda_device *cuda_device(struct device *device)
{
	return (struct cuda_device *)device;
}

static inline struct cuda_chunk *cuda_chunk(struct chunk *chunk)
{
	return (struct cuda_chunk *)chunk;
}

static inline struct cuda *cuda_of(struct backend *backend)
{
	return (struct cuda *)backend;
}

/* errors: 0 or -errno. A fatal one fails the device; any but -ENOSPC, which callers retry with
 * less, is one line of the log that names call. */
int cuda_result(struct cuda_device *device, gm_CUresult result, const char *call);

/* devices.c: fills cuda->base.devices with what gpus=list selects. */
int cuda_devices_open(struct cuda *cuda, const struct backend_config *config);
void cuda_device_close(struct cuda_device *device);

/* nvml.c: everything works without NVML, at the price of a context for the free memory. */
void nvml_open(struct cuda *cuda);
void nvml_close(struct cuda *cuda);
gm_nvmlDevice_t nvml_device(struct cuda *cuda, const char *uuid);
int nvml_index(struct cuda *cuda, gm_nvmlDevice_t device, unsigned *index);
int nvml_free_memory(struct cuda_device *device, uint64_t *bytes);
int nvml_bar_free(struct cuda_device *device, uint64_t *bytes);

/* context.c: makes the device's primary context current to this thread, retaining it when first
 * needed (517 MiB of device memory and 110 ms on the reference machine). The caller holds the
 * device, or has something there that does: a chunk, from before it is made until after it is
 * gone. */
int cuda_context_use(struct cuda_device *device);
/* Until the drop cuda_idle_release leaves the device alone. */
void cuda_hold(struct cuda_device *device);
void cuda_drop(struct cuda_device *device);
/* For giving back host memory that was made in the device's context: that one, or if it does not
 * work any more any that does. Where none does, the driver may take it back all the same. */
void cuda_context_for_giving(struct cuda_device *device);
void cuda_context_close(struct cuda_device *device);
int cuda_memory(struct device *device, struct device_memory *memory);

/* vmm.c */
int cuda_chunk_new(struct device *device, uint64_t bytes, struct chunk **chunk);
void cuda_chunk_free(struct chunk *chunk);
int cuda_chunk_export(struct chunk *chunk, int *fd);
int cuda_chunk_import(struct device *device, uint64_t bytes, int fd, struct chunk **chunk);
void cuda_range_close(struct cuda_device *device);
/* Maps the chunk at another address, whatever became of the mapping that it had, from its handle
 * or, where the driver does not have that any more, from a descriptor that was kept. An error
 * leaves it without an address. */
int cuda_chunk_remap(struct cuda_chunk *chunk);
/* It has no address from then on. */
void cuda_chunk_unmap(struct cuda_chunk *chunk);

/* reset.c: see backend_ops. */
int cuda_reset(struct device *device);

/* rest.c: see backend_ops. What copiers have on the device is taken from those that are at nothing,
 * whatever thread they belong to; the others are asked to leave it themselves. */
int cuda_idle_release(struct device *device);
/* All copiers leave the device; -EBUSY where one is at something. */
int cuda_copiers_leave(struct cuda_device *device);

/* dma.c */
int cuda_copier_new(struct backend *backend, struct copier **copier);
void cuda_copier_free(struct copier *copier);
int cuda_dma_in(struct copier *copier, struct chunk *to, uint64_t offset, const void *from,
		size_t bytes);
int cuda_dma_out(struct copier *copier, void *to, struct chunk *from, uint64_t offset,
		 size_t bytes);
int cuda_dma_across(struct copier *copier, struct chunk *to, uint64_t to_offset, struct chunk *from,
		    uint64_t from_offset, uint64_t bytes);
int cuda_dma_zero(struct copier *copier, struct chunk *to, uint64_t offset, uint64_t bytes);
int cuda_wait(struct copier *copier);

/* dma_pin.c */
int cuda_pin(struct copier *copier, void *host, size_t bytes);
void cuda_unpin(struct copier *copier, void *host);
int cuda_pin_for_all(struct device *device, void *host, size_t bytes);
void cuda_unpin_for_all(struct device *device, void *host);

#endif
