/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* The structs of the CUDA provider, and the functions that the provider's files share. */
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
	pthread_mutex_t lock; /* taken after a device's lock */
	struct cuda_copier *list;
};

struct dma_pin;

/* Host memory for every copier. */
struct pins {
	/* Held while a range is registered or unregistered, because the driver wants one at a time;
	 * taken after a copier's and a device's lock. */
	pthread_mutex_t making;
	/* Taken after making; held only briefly, because every copy takes the lock. */
	pthread_rwlock_t lock;
	struct dma_pin *list; /* written under both locks */
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
	atomic_uint exports_kept; /* counted over all chunks */
};

struct cuda_device {
	struct device base; /* first */
	struct cuda *cuda;
	gm_CUdevice handle;
	gm_CUuuid uuid;
	gm_nvmlDevice_t nvml; /* NULL: NVML does not know the device */
	bool rdma;	      /* chunks may ask to be mapped by other devices */
	/* By slot: that device and this device may access each other's memory. */
	bool peer[BACKEND_DEVICES_MAX];
	/* The driver refused the access in spite of peer[]; logged once. */
	atomic_bool peers_refused;
	_Atomic(gm_CUcontext) context; /* written under lock; NULL while the device is idle */

	/* Protects the context and the following members, none of which a copy reads. */
	_Alignas(CACHELINE_ALIGN) pthread_mutex_t lock;
	uint64_t holds;	      /* number of users for which the context stays: cuda_hold */
	gm_CUdeviceptr range; /* 0 while the device is idle */
	uint64_t range_bytes;
	struct va va;

	struct bar_state bar; /* has its own lock, taken before this lock */
};

struct cuda_chunk {
	struct chunk base; /* first */
	gm_CUmemGenericAllocationHandle handle;
	/* 0: the memory is lost; copies read the address under copier->lock. */
	gm_CUdeviceptr address;
	struct peers_entry peers;
	_Atomic int exported; /* kept after the first export; -1: none */
	void *mapping;	      /* owned by the BAR way; see bar.h */
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

/* Turns result into 0 or -errno. A fatal error fails the device. Every error except -ENOSPC, after
 * which callers retry with less, is logged in one line that names call. */
int cuda_result(struct cuda_device *device, gm_CUresult result, const char *call);

/* devices.c: fills cuda->base.devices with the GPUs that config->gpus selects. */
int cuda_devices_open(struct cuda *cuda, const struct backend_config *config);
void cuda_device_close(struct cuda_device *device);

/* nvml.c: everything works without NVML, but then asking for free memory needs a context. */
void nvml_open(struct cuda *cuda);
void nvml_close(struct cuda *cuda);
gm_nvmlDevice_t nvml_device(struct cuda *cuda, const char *uuid);
int nvml_index(struct cuda *cuda, gm_nvmlDevice_t device, unsigned *index);
int nvml_free_memory(struct cuda_device *device, uint64_t *bytes);
int nvml_bar_free(struct cuda_device *device, uint64_t *bytes);

/* context.c: makes the device's primary context current to this thread, retaining the context on
 * first use (517 MiB of device memory and 110 ms on the reference machine). The caller holds the
 * device, or has a chunk on the device, counted from before the chunk is made until after the chunk
 * is freed. */
int cuda_context_use(struct cuda_device *device);
/* Until the drop, cuda_idle_release does not release the device. */
void cuda_hold(struct cuda_device *device);
void cuda_drop(struct cuda_device *device);
/* For freeing host memory that was allocated in the device's context: makes that context current,
 * or any working context if that context failed. Without any working context, the driver may still
 * free the memory. */
void cuda_context_for_giving(struct cuda_device *device);
void cuda_context_close(struct cuda_device *device);
int cuda_memory(struct device *device, struct device_memory *memory);

/* vmm.c */
int cuda_chunk_new(struct device *device, uint64_t bytes, struct chunk **chunk);
void cuda_chunk_free(struct chunk *chunk);
int cuda_chunk_export(struct chunk *chunk, int *fd);
int cuda_chunk_import(struct device *device, uint64_t bytes, int fd, struct chunk **chunk);
void cuda_range_close(struct cuda_device *device);
/* Maps the chunk at a new address, whatever happened to the old mapping, from the chunk's handle
 * or, if the driver lost the handle, from a kept descriptor. After an error the chunk has no
 * address. */
int cuda_chunk_remap(struct cuda_chunk *chunk);
/* After this call the chunk has no address. */
void cuda_chunk_unmap(struct cuda_chunk *chunk);

/* reset.c: see backend_ops. */
int cuda_reset(struct device *device);

/* idle_release.c: see backend_ops. Resources of idle copiers on the device are freed, whichever
 * thread owns the copier; busy copiers are asked to free theirs. */
int cuda_idle_release(struct device *device);
/* Makes all copiers leave the device; -EBUSY if a copier is busy. */
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
