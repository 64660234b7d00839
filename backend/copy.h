/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* Copies bytes in and out of device memory, alike for every provider: BAR stores and streaming
 * loads if a mapping exists and the size is below the measured crossover, DMA otherwise, and both
 * at once for large writes. */
#ifndef BACKEND_COPY_H
#define BACKEND_COPY_H

#include "backend/backend.h"

/* The attribute user.gpumem.copy. */
enum copy_path { COPY_AUTO, COPY_BAR, COPY_DMA };

/* The unit of copy_crossover.overlap, in bytes of a write. */
#define COPY_WHOLE (1ULL << 20)

/* The sizes in bytes from which BAR is no longer faster; measured per device when the device's
 * context is first made. */
struct copy_crossover {
	uint64_t write; /* host to device: BAR at or below this size */
	uint64_t read;	/* device to host */
	/* Of each COPY_WHOLE bytes of a larger write, the bytes that the CPU stores through the BAR
	 * while DMA moves the rest. */
	uint64_t overlap;
	bool measured; /* false: the defaults from the reference machine */
};

/* Each copying thread has its own; threads never share a copier. */
int copier_open(struct backend *backend, struct copier **copier);
void copier_close(struct copier *copier);
/* See backend_ops.pin. */
int copier_pin(struct copier *copier, void *base, size_t bytes);
void copier_unpin(struct copier *copier, void *base);

/* Enqueue a copy; the host memory stays valid and untouched until copier_wait returns. COPY_BAR
 * without a possible mapping falls back to DMA (copy_bar_possible: the attribute is refused
 * earlier). 0, -EIO, -ENOMEM. */
int copy_in(struct copier *copier, const struct span *to, uint64_t offset, const void *from,
	    size_t bytes, enum copy_path path);
int copy_out(struct copier *copier, void *to, const struct span *from, uint64_t offset,
	     size_t bytes, enum copy_path path);
/* Between any two devices. On one device the ranges do not overlap. Several copies before a wait
 * run in any order, so their ranges do not overlap either. */
int copy_across(struct copier *copier, const struct span *to, uint64_t to_offset,
		const struct span *from, uint64_t from_offset, uint64_t bytes);
int copy_zero(struct copier *copier, const struct span *to, uint64_t offset, uint64_t bytes);

/* Waits until everything enqueued on the copier is complete, and visible to all; returns the
 * batch's first error. */
int copier_wait(struct copier *copier);

bool copy_bar_possible(struct device *device);
struct copy_crossover copy_crossovers(struct device *device);

/* Measures the crossovers of a device with a chunk allocated for the purpose; at most 50 ms. Later
 * calls return at once. */
int copy_measure(struct copier *copier, struct device *device);

#endif
