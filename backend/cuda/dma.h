/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* The inside of a copier: streams, staging memory, registered host memory. */
#ifndef BACKEND_CUDA_DMA_H
#define BACKEND_CUDA_DMA_H

#include <errno.h>

#include "backend/cuda/provider.h"

/* Two slots: CPU and GPU each use a slot at the same time. */
#define STAGE_SLOTS 2
#define STAGE_BYTES (1ULL << 20)

/* A copy within a device takes some microseconds to begin. With so many further streams that time
 * is hidden behind other copies, for a file in several extents. */
#define SPREAD_STREAMS 3

/* A device's queue. A copier's work on a device is in order; dma.c orders the work of different
 * devices. */
struct dma_stream {
	struct cuda_device *device;
	gm_CUstream stream;		/* NULL until first used */
	gm_CUevent event;		/* another device's stream waits for it */
	gm_CUevent staged[STAGE_SLOTS]; /* recorded when this device has finished with the slot */
	bool busy;			/* work was enqueued since the last wait */
	/* Copies within the device, not ordered among each other. */
	gm_CUstream spread[SPREAD_STREAMS]; /* NULL until first used */
	gm_CUevent joined[SPREAD_STREAMS];  /* as spread; later work waits for these */
	gm_CUevent forked;		    /* the copies begin after it */
	unsigned n_spread;		    /* copies since forked */
};

struct dma_slot {
	void *memory;		    /* pinned; NULL until first used */
	struct cuda_device *device; /* memory was allocated in its context */
	struct dma_stream *user;    /* uses the slot until its staged event; NULL: no stream does */
};

/* Host memory declared by pin. */
struct dma_pin {
	struct dma_pin *next;
	char *base;
	size_t bytes;
	struct cuda_device *device; /* registered in its context; NULL: not yet */
	bool refused;		    /* the driver refused to register: copies are staged */
};

struct cuda_copier {
	struct copier base; /* first */
	/* Held in every call, so that an idle device can be released while the copier's thread
	 * sleeps. No thread waits for it: cuda_idle_release only tries. Protects the fields below.
	 */
	pthread_mutex_t lock;
	_Atomic uint64_t leave;		 /* bits by slot: devices to leave after the next wait */
	struct cuda_copier *prev, *next; /* in cuda->copiers, under the list's lock */
	struct dma_stream streams[BACKEND_DEVICES_MAX]; /* by the device's slot */
	struct dma_slot slots[STAGE_SLOTS];
	unsigned next_slot;
	struct dma_pin *pins;
	int error; /* the first of the batch, for wait */
};

static inline struct cuda_copier *cuda_copier(struct copier *copier)
{
	return (struct cuda_copier *)copier;
}

/* A copy's errors are -ENOMEM and -EIO: a full device means that the copy had no memory. */
static inline int dma_result(struct cuda_device *device, gm_CUresult result, const char *call)
{
	int rc = cuda_result(device, result, call);
	if (rc == 0)
		return 0;
	return rc == -ENOSPC ? -ENOMEM : -EIO;
}

/* cuda_context_use with a copy's errors. */
static inline int dma_context_use(struct cuda_device *device)
{
	int rc = cuda_context_use(device);
	if (rc == 0)
		return 0;
	return rc == -ENOSPC ? -ENOMEM : -EIO;
}

/* dma.c: waits for all work, with copier->lock held. */
int dma_wait(struct cuda_copier *copier);
/* Frees the copier's resources in the device's context. copier->lock is held. -EBUSY: a batch is
 * under way. */
int dma_leave(struct cuda_copier *copier, struct cuda_device *device);

/* dma.c: the device's stream, created if necessary; makes the device's context current to this
 * thread. */
int dma_stream_use(struct cuda_copier *copier, struct cuda_device *device,
		   struct dma_stream **stream);
/* Orders work enqueued on second from now on after all work enqueued on first so far. */
int dma_order(struct dma_stream *first, struct dma_stream *second);

/* dma_stage.c: copies with host memory that is not pinned. On return the host memory may be
 * changed. */
int dma_stage_in(struct cuda_copier *copier, struct dma_stream *stream, gm_CUdeviceptr to,
		 const char *from, size_t bytes);
int dma_stage_out(struct cuda_copier *copier, struct dma_stream *stream, char *to,
		  gm_CUdeviceptr from, size_t bytes);
/* Between devices without access to each other. */
int dma_stage_across(struct cuda_copier *copier, struct dma_stream *to_stream, gm_CUdeviceptr to,
		     struct dma_stream *from_stream, gm_CUdeviceptr from, uint64_t bytes);
/* Frees the slots in the device's context; NULL: all slots. */
void dma_stage_close(struct cuda_copier *copier, struct cuda_device *device);

/* dma_pin.c: whether the driver may be given [host, host + bytes). DMA_PIN_GONE: pin_for_all's
 * registration was lost with the device's context, and the CPU must not touch such memory. The
 * device's context is current. */
enum dma_pinned { DMA_NOT_PINNED, DMA_PINNED, DMA_PIN_GONE };
enum dma_pinned dma_pinned(struct cuda_copier *copier, struct cuda_device *device, const void *host,
			   size_t bytes);
/* Undoes registrations made in the device's context; they can be made again. */
void dma_unregister(struct cuda_copier *copier, struct cuda_device *device);
void dma_unregister_for_all(struct cuda_device *device);
void dma_unpin_all(struct cuda_copier *copier);

#endif
