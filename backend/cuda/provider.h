/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* The CUDA provider's structs, and the functions that its files share. */
#ifndef BACKEND_CUDA_PROVIDER_H
#define BACKEND_CUDA_PROVIDER_H

#include <pthread.h>

#include "backend/backend.h"
#include "backend/cuda/bar.h"
#include "backend/cuda/driver/driver.h"
#include "backend/cuda/peers.h"
#include "backend/cuda/va.h"
#include "common/cacheline.h"

struct cuda_copier;

struct copiers {
	pthread_mutex_t lock; /* taken after a device's */
	struct cuda_copier *list;
};

struct dma_pin;

/* Host memory registered for all copiers. */
struct pins {
	/* Held to register or unregister, which the driver serialises in any case. Taken after a
	 * copier's and a device's lock. */
	pthread_mutex_t making;
	pthread_rwlock_t lock; /* taken after making, for moments only: every copy takes it */
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
	atomic_uint exports_kept; /* descriptors kept by all chunks */
};

struct cuda_device {
	struct device base; /* first */
	struct cuda *cuda;
	gm_CUdevice handle;
	gm_CUuuid uuid;
	gm_nvmlDevice_t nvml; /* NULL: NVML does not know it */
	bool is_instance;     /* a MIG instance, with a part of a GPU's memory */
	unsigned instance;    /* its number in the GPU; 0 for a whole GPU */
	bool rdma;	      /* chunks may be mapped by other devices (GPUDirect RDMA) */
	int numa_node;	      /* of the system memory that is nearest */
	/* By slot: this device and that device can access each other's memory. */
	bool peer[BACKEND_DEVICES_MAX];
	atomic_bool peers_refused; /* the driver refused an access all the same; logged once */
	_Atomic(gm_CUcontext)
	    context; /* written under lock; NULL while the context is not needed */

	/* Protects the context and the fields below, none of which a copy reads. */
	_Alignas(CACHELINE_ALIGN) pthread_mutex_t lock;
	uint64_t holds;	      /* users that need the context: cuda_hold */
	gm_CUdeviceptr range; /* 0 while not needed */
	uint64_t range_bytes;
	struct va va;

	pthread_mutex_t import_lock; /* held while a chunk is imported for its first use */

	struct bar_state bar; /* has its own lock, taken before this lock */
};

struct cuda_chunk {
	struct chunk base; /* first */
	/* 0: not imported yet, or of cudaMalloc. */
	gm_CUmemGenericAllocationHandle handle;
	/* 0: no address, because the memory is lost, or another program's and not needed yet; used
	 * by copies under copier->lock. */
	_Atomic gm_CUdeviceptr address;
	uint64_t usable; /* bytes that there are, of the chunk's; set before address */
	struct peers_entry peers;
	_Atomic int exported; /* a descriptor, kept from the first export on; -1: none */
	void *mapping;	      /* belongs to the BAR way; bar.h */
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

/* Errors: 0 or -errno. A fatal error fails the device. Any error is a line in the log with the name
 * of the call, except -ENOSPC, after which callers retry with less. */
int cuda_result(struct cuda_device *device, gm_CUresult result, const char *call);

/* compute_mode.c: which processes may use the device, as nvidia-smi -c sets it. */
void cuda_compute_mode_read(struct cuda_device *device);
/* Whether the device can be used; otherwise, and for a device that processes cannot share, with a
 * warning. */
bool cuda_compute_mode_check(struct cuda_device *device);
/* Whether the mode is the reason for this result of making a context: another process has the
 * device alone, which is logged and no fault of the device. */
bool cuda_compute_mode_refuses(struct cuda_device *device, gm_CUresult result);

/* devices.c: fills cuda->base.devices with the devices that gpus=list selects. */
int cuda_devices_open(struct cuda *cuda, const struct backend_config *config);
void cuda_device_close(struct cuda_device *device);

/* nvml.c: NVML is optional; without it, reading the free memory needs a context. */
void nvml_open(struct cuda *cuda);
void nvml_close(struct cuda *cuda);
gm_nvmlDevice_t nvml_device(struct cuda *cuda, const char *uuid);
/* Numbers as nvidia-smi: the GPU's, and of a MIG instance the instance's in its GPU. */
int nvml_number(struct cuda_device *device, unsigned *index, unsigned *instance);
/* How many MIG instances the device's GPU has; 0: NVML does not know. */
unsigned nvml_instances(struct cuda_device *device);
int nvml_free_memory(struct cuda_device *device, uint64_t *bytes);
int nvml_bar_free(struct cuda_device *device, uint64_t *bytes);

/* context.c: makes the device's primary context current to this thread; retains it at first (517
 * MiB of device memory and 110 ms on the reference machine). The caller holds the device
 * (cuda_hold), or has a chunk there: from before the chunk's making until after its freeing. */
int cuda_context_use(struct cuda_device *device);
/* Until cuda_drop, cuda_idle_release leaves the device alone. */
void cuda_hold(struct cuda_device *device);
void cuda_drop(struct cuda_device *device);
/* To free host memory of the device's context: makes the device's context current, or another
 * working context if the device has failed. Without a working context, the driver may free the
 * memory all the same. */
void cuda_context_for_giving(struct cuda_device *device);
void cuda_context_close(struct cuda_device *device);
int cuda_memory(struct device *device, struct device_memory *memory);

/* vmm.c */
int cuda_chunk_new(struct device *device, enum memory_place place, uint64_t bytes,
		   struct chunk **chunk);
void cuda_chunk_free(struct chunk *chunk);
int cuda_chunk_export(struct chunk *chunk, int *fd);
int cuda_chunk_import_foreign(struct device *device, uint64_t bytes, int fd,
			      enum chunk_origin origin, struct chunk **chunk);
/* Imports a chunk of CHUNK_FOREIGN_LATER that is used for the first time, and makes the context of
 * its device current to this thread: 0, -ENOMEM, or -EIO: fd was no memory of this device, or
 * another error, which is logged. Under copier->lock, or where the device is not reset. */
int cuda_chunk_need(struct cuda_chunk *chunk);
int cuda_chunk_import(struct device *device, enum memory_place place, uint64_t bytes, int fd,
		      struct chunk **chunk);
void cuda_range_close(struct cuda_device *device);
/* Maps the chunk at another address, even without its former mapping, by its handle or, if the
 * driver has lost the handle, by a kept descriptor. After an error the chunk has no address. */
int cuda_chunk_remap(struct cuda_chunk *chunk);
/* The chunk has no address afterwards. */
void cuda_chunk_unmap(struct cuda_chunk *chunk);

/* reset.c: backend_ops.reset. */
int cuda_reset(struct device *device);

/* idle_release.c: backend_ops.idle_release. Frees the resources of idle copiers on the device,
 * whichever thread they belong to, and asks busy copiers to leave the device. */
int cuda_idle_release(struct device *device);
/* All copiers leave the device; -EBUSY if a copier is busy. */
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
