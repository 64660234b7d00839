/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* Inside a copier: its streams, its staging memory, its registered host memory. */
#ifndef BACKEND_CUDA_DMA_H
#define BACKEND_CUDA_DMA_H

#include <errno.h>

#include "backend/cuda/provider.h"

/* Two slots, so that the CPU fills or empties one while the GPU is at the other. */
#define STAGE_SLOTS 2
#define STAGE_BYTES (1ULL << 20)

/* A copy inside a device takes some microseconds to begin: with so many more streams that is behind
 * other copies, of a file that is in pieces. */
#define SPREAD_STREAMS 3

/* A device's queue. Everything a copier does on one device is in order; dma.c orders devices. */
struct dma_stream {
	struct cuda_device *device;
	gm_CUstream stream;		/* NULL until first used */
	gm_CUevent event;		/* what another device's stream waits for */
	gm_CUevent staged[STAGE_SLOTS]; /* this device is done with the slot */
	bool busy;			/* something was enqueued since the last wait */
	/* Copies inside the device, in no order among each other. */
	gm_CUstream spread[SPREAD_STREAMS]; /* NULL until first used */
	gm_CUevent joined[SPREAD_STREAMS];  /* the same: what comes after them waits for */
	gm_CUevent forked;		    /* what they begin after */
	unsigned n_spread;		    /* copies since then */
};

struct dma_slot {
	void *memory;		    /* pinned; NULL until first used */
	struct cuda_device *device; /* in whose context */
	struct dma_stream *user;    /* reads or writes it until its staged event; NULL: nobody */
};

/* Host memory declared by pin. */
struct dma_pin {
	struct dma_pin *next;
	char *base;
	size_t bytes;
	struct cuda_device *device; /* in whose context it was registered; NULL: not yet */
	bool refused;		    /* the driver would not: its copies are staged */
};

struct cuda_copier {
	struct copier base; /* first */
	/* Held in every call, so that a device that nobody uses can be given back while the
	 * copier's thread sleeps. Nobody ever waits for it: cuda_idle_release only tries. Guards
	 * what follows. */
	pthread_mutex_t lock;
	_Atomic uint64_t leave; /* bits by slot: devices to have nothing on after the next wait */
	struct cuda_copier *prev, *next;		/* in cuda->copiers, under its lock */
	struct dma_stream streams[BACKEND_DEVICES_MAX]; /* by the device's slot */
	struct dma_slot slots[STAGE_SLOTS];
	unsigned next_slot;
	struct dma_pin *pins;
	int error; /* the batch's first, for wait */
};

static inline struct cuda_copier *cuda_copier(struct copier *copier)
{
	return (struct cuda_copier *)copier;
}

/* A copy's errors are -ENOMEM and -EIO; a full device is no news to one. */
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

/* dma.c: completion, with copier->lock held. */
int dma_wait(struct cuda_copier *copier);
/* Gives back all that the copier has in the device's context: copier->lock is held. -EBUSY while
 * a batch is under way. */
int dma_leave(struct cuda_copier *copier, struct cuda_device *device);

/* dma.c: the device's stream, created if need be, with its context current to this thread. */
int dma_stream_use(struct cuda_copier *copier, struct cuda_device *device,
		   struct dma_stream **stream);
/* Makes what is enqueued on then from now on wait for what is enqueued on first by now. */
int dma_order(struct dma_stream *first, struct dma_stream *then);

/* dma_stage.c: copies of host memory that is not pinned. The host memory is free on return. */
int dma_stage_in(struct cuda_copier *copier, struct dma_stream *stream, gm_CUdeviceptr to,
		 const char *from, size_t bytes);
int dma_stage_out(struct cuda_copier *copier, struct dma_stream *stream, char *to,
		  gm_CUdeviceptr from, size_t bytes);
/* Between devices that cannot reach each other. */
int dma_stage_across(struct cuda_copier *copier, struct dma_stream *to_stream, gm_CUdeviceptr to,
		     struct dma_stream *from_stream, gm_CUdeviceptr from, uint64_t bytes);
/* Frees the slots that are in the device's context; NULL: all. */
void dma_stage_close(struct cuda_copier *copier, struct cuda_device *device);

/* dma_pin.c: whether the driver may be handed [host, host + bytes). DMA_PIN_GONE: the registration
 * of pin_for_all went with the device's context, and the CPU must not touch such memory either. The
 * device's context is current. */
enum dma_pinned { DMA_NOT_PINNED, DMA_PINNED, DMA_PIN_GONE };
enum dma_pinned dma_pinned(struct cuda_copier *copier, struct cuda_device *device, const void *host,
			   size_t bytes);
/* Takes what is registered in the device's context back; it can be registered again. */
void dma_unregister(struct cuda_copier *copier, struct cuda_device *device);
void dma_unregister_for_all(struct cuda_device *device);
void dma_unpin_all(struct cuda_copier *copier);

#endif
