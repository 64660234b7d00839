/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* Bytes in and out of device memory, for every provider alike: BAR stores and streaming loads where
 * a mapping exists and the size is below the measured crossover, DMA otherwise, and both at once
 * for large writes. */
#ifndef BACKEND_COPY_H
#define BACKEND_COPY_H

#include "backend/backend.h"

/* The attribute user.gpumem.copy. */
enum copy_path { COPY_AUTO, COPY_BAR, COPY_DMA };

/* A write of so many bytes is what the share below is of. */
#define COPY_WHOLE (1ULL << 20)

/* Where BAR stops being faster, in bytes; measured per device when its context is first made. */
struct copy_crossover {
	uint64_t write; /* host to device: BAR at or below this size */
	uint64_t read;	/* device to host */
	/* Of each COPY_WHOLE bytes of a larger write, what the CPU stores through the BAR while DMA
	 * moves the rest. */
	uint64_t overlap;
	bool measured; /* false: the defaults from the reference machine */
};

/* One per thread that copies; not to be shared. */
int copier_open(struct backend *backend, struct copier **copier);
void copier_close(struct copier *copier);
/* See backend_ops.pin. */
int copier_pin(struct copier *copier, void *base, size_t bytes);
void copier_unpin(struct copier *copier, void *base);

/* Enqueue; the host memory stays valid and untouched until copier_wait returns. COPY_BAR where no
 * mapping can be had falls back to DMA (the attribute is refused earlier: copy_bar_possible).
 * 0, -EIO, -ENOMEM. */
int copy_in(struct copier *copier, const struct span *to, uint64_t offset, const void *from,
	    size_t bytes, enum copy_path path);
int copy_out(struct copier *copier, void *to, const struct span *from, uint64_t offset,
	     size_t bytes, enum copy_path path);
/* Between any two devices; on one device the ranges do not overlap, nor do those of several copies
 * before a wait: these are in no order among each other. */
int copy_across(struct copier *copier, const struct span *to, uint64_t to_offset,
		const struct span *from, uint64_t from_offset, uint64_t bytes);
int copy_zero(struct copier *copier, const struct span *to, uint64_t offset, uint64_t bytes);

/* Completion of everything enqueued on the copier, visible to all; the batch's first error. */
int copier_wait(struct copier *copier);

bool copy_bar_possible(struct device *device);
struct copy_crossover copy_crossovers(struct device *device);

/* Measures the crossovers of a device with a chunk of its own; at most 50 ms. Later calls return at
 * once. */
int copy_measure(struct copier *copier, struct device *device);

#endif
