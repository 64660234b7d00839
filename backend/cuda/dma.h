/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* The parts of a copier: streams, staging memory, registered host memory. */
#ifndef BACKEND_CUDA_DMA_H
#define BACKEND_CUDA_DMA_H

#include <errno.h>

#include "backend/cuda/provider.h"

/* Two slots, so that the CPU fills or empties one slot while the GPU uses the other. */
#define STAGE_SLOTS 2
#define STAGE_BYTES (1ULL << 20)

/* A copy inside a device takes some microseconds to start. With so many more streams, the start
 * overlaps with other copies of a file with several extents. */
#define SPREAD_STREAMS 3

/* A device's queue. Everything a copier enqueues on one device runs in order; dma.c orders devices.
 */
struct dma_stream {
	struct cuda_device *device;
	gm_CUstream stream;		/* NULL until first used */
	gm_CUevent event;		/* another device's stream waits for this event */
	gm_CUevent staged[STAGE_SLOTS]; /* this device no longer uses the slot */
	bool busy;			/* work was enqueued since the last wait */
	/* Copies inside the device, in any order among each other. */
	gm_CUstream spread[SPREAD_STREAMS]; /* NULL until first used */
	gm_CUevent joined[SPREAD_STREAMS];  /* the events for which later work waits */
	gm_CUevent forked;		    /* the event after which spread copies begin */
	unsigned n_spread;		    /* copies since the event */
};

struct dma_slot {
	void *memory;		    /* pinned; NULL until first used */
	struct cuda_device *device; /* the owner of the context of memory */
	/* The stream that uses the slot until its staged event; NULL: none. */
	struct dma_stream *user;
};

/* Host memory declared by pin. */
struct dma_pin {
	struct dma_pin *next;
	char *base;
	size_t bytes;
	/* The device with whose context the range is registered; NULL: none yet. */
	struct cuda_device *device;
	bool refused; /* the driver refused: copies of the range are staged */
};

struct cuda_copier {
	struct copier base; /* first */
	/* Held in every call, so that an unused device can be released while the copier's thread
	 * sleeps. No thread waits for the lock: cuda_idle_release only tries. Protects the
	 * following members. */
	pthread_mutex_t lock;
	/* Bits by slot: devices on which the copier keeps nothing after the next wait. */
	_Atomic uint64_t leave;
	struct cuda_copier *prev, *next;		/* in cuda->copiers, under its lock */
	struct dma_stream streams[BACKEND_DEVICES_MAX]; /* by the device's slot */
	struct dma_slot slots[STAGE_SLOTS];
	unsigned next_slot;
	struct dma_pin *pins;
	int error; /* the first error of the batch, returned by wait */
};

static inline struct cuda_copier *cuda_copier(struct copier *copier)
{
	return (struct cuda_copier *)copier;
}

/* A copy's errors are -ENOMEM and -EIO; a copy allocates nothing, so -ENOSPC does not occur. */
static inline int dma_result(struct cuda_device *device, gm_CUresult result, const char *call)
{
	int rc = cuda_result(device, result, call);
	if (rc == 0)
		return 0;
	return rc == -ENOSPC ? -ENOMEM : -EIO;
}

/* As cuda_context_use, with a copy's errors. */
static inline int dma_context_use(struct cuda_device *device)
{
	int rc = cuda_context_use(device);
	if (rc == 0)
		return 0;
	return rc == -ENOSPC ? -ENOMEM : -EIO;
}

/* dma.c: waits for completion, with copier->lock held. */
int dma_wait(struct cuda_copier *copier);
/* Frees everything that the copier has in the device's context; copier->lock is held. -EBUSY during
 * a batch. */
int dma_leave(struct cuda_copier *copier, struct cuda_device *device);

/* dma.c: the device's stream, created if necessary, with the device's context current to this
 * thread. */
int dma_stream_use(struct cuda_copier *copier, struct cuda_device *device,
		   struct dma_stream **stream);
/* Makes all work enqueued on then after this call wait for all work enqueued on first before this
 * call. */
int dma_order(struct dma_stream *first, struct dma_stream *then);

/* dma_stage.c: copies of host memory that is not pinned. On return the host memory may be reused.
 */
int dma_stage_in(struct cuda_copier *copier, struct dma_stream *stream, gm_CUdeviceptr to,
		 const char *from, size_t bytes);
int dma_stage_out(struct cuda_copier *copier, struct dma_stream *stream, char *to,
		  gm_CUdeviceptr from, size_t bytes);
/* Between devices without peer access. */
int dma_stage_across(struct cuda_copier *copier, struct dma_stream *to_stream, gm_CUdeviceptr to,
		     struct dma_stream *from_stream, gm_CUdeviceptr from, uint64_t bytes);
/* Frees the slots in the device's context; NULL: all slots. */
void dma_stage_close(struct cuda_copier *copier, struct cuda_device *device);

/* dma_pin.c: whether the driver may access [host, host + bytes) directly. DMA_PIN_GONE: the
 * registration of pin_for_all was lost with the device's context, and the CPU must not touch such
 * memory either. The device's context is current. */
enum dma_pinned { DMA_NOT_PINNED, DMA_PINNED, DMA_PIN_GONE };
enum dma_pinned dma_pinned(struct cuda_copier *copier, struct cuda_device *device, const void *host,
			   size_t bytes);
/* Unregisters all ranges in the device's context; the ranges can be registered again. */
void dma_unregister(struct cuda_copier *copier, struct cuda_device *device);
void dma_unregister_for_all(struct cuda_device *device);
void dma_unpin_all(struct cuda_copier *copier);

#endif
