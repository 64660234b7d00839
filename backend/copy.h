/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* Copies in and out of chunks, with any provider: BAR stores and streaming loads if the chunk is
 * mapped and the size is below the measured crossover, DMA otherwise, and both at once for large
 * writes. The CPU copies in and out of PLACE_HOST, unless DMA is asked for, and always in and out
 * of PLACE_DISK, where a copy is complete on return. */
#ifndef BACKEND_COPY_H
#define BACKEND_COPY_H

#include "backend/backend.h"

/* The attribute user.gpumem.copy. */
enum copy_path { COPY_AUTO, COPY_BAR, COPY_DMA };

/* The size of a write to which copy_crossover.overlap refers. */
#define COPY_WHOLE (1ULL << 20)

/* The sizes up to which BAR is faster than DMA, in bytes; measured per device when its context is
 * first made. */
struct copy_crossover {
	uint64_t write; /* host to device: BAR at or below this size */
	uint64_t read;	/* device to host */
	/* Of each COPY_WHOLE bytes of a larger write, the bytes that the CPU stores through the BAR
	 * while DMA copies the rest. */
	uint64_t overlap;
	bool measured; /* false: defaults, from the reference machine */
};

/* One per thread that copies. */
int copier_open(struct backend *backend, struct copier **copier);
void copier_close(struct copier *copier);
/* See backend_ops.pin. */
int copier_pin(struct copier *copier, void *base, size_t bytes);
void copier_unpin(struct copier *copier, void *base);

/* Enqueue a copy. The host memory must stay valid and unchanged until copier_wait returns. COPY_BAR
 * falls back to DMA if the chunk cannot be mapped (the attribute is refused earlier: bar_possible).
 * 0, -EIO, -ENOMEM. */
int copy_in(struct copier *copier, const struct span *to, uint64_t offset, const void *from,
	    size_t bytes, enum copy_path path);
int copy_out(struct copier *copier, void *to, const struct span *from, uint64_t offset,
	     size_t bytes, enum copy_path path);
/* Between any two devices. On the same device source and target must not overlap, nor may the
 * ranges of several copies before a wait: such copies are not ordered. */
int copy_across(struct copier *copier, const struct span *to, uint64_t to_offset,
		const struct span *from, uint64_t from_offset, uint64_t bytes);
int copy_zero(struct copier *copier, const struct span *to, uint64_t offset, uint64_t bytes);

/* Waits for all enqueued copies, which are visible to every process then; returns the first error
 * of the batch. */
int copier_wait(struct copier *copier);

bool copy_bar_possible(struct device *device);
struct copy_crossover copy_crossovers(struct device *device);

/* Measures a device's crossovers with a chunk of its own, in at most 50 ms. Later calls return at
 * once. */
int copy_measure(struct copier *copier, struct device *device);

#endif
