/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* The crossovers: the size up to which BAR is faster than DMA, per device, and the part of a larger
 * write that the CPU stores while DMA copies the rest. */
#include "backend/copy.h"

#include <errno.h>
#include <stdlib.h>

#include "backend/bar_cache.h"
#include "common/clock.h"
#include "common/log.h"

/* From the reference machine (H200, PCIe 5.0 x16): stores are as fast as DMA at 256 to 512 KiB,
 * streaming loads at 4 to 6 KiB. */
#define DEFAULT_WRITE (256ULL << 10)
#define DEFAULT_READ  (4ULL << 10)

/* There 16 threads reach 38 GB/s with 372 KiB of each MiB, and 28 with none; one thread is fastest
 * with 256 to 320 KiB. */
#define DEFAULT_OVERLAP (256ULL << 10)

/* The most that a measurement may find for writes. Copies of other threads slow the measured DMA,
 * but not the measured stores, so that stores seem better than they are for many threads at once:
 * with 512 KiB stored of each MiB, or all, 16 threads reached 20 to 32 GB/s. */
#define MOST_WRITE   (256ULL << 10)
#define MOST_OVERLAP (384ULL << 10)

#define SMALLEST   512ULL
#define LARGEST	   COPY_WHOLE
#define ROUNDS	   9 /* per size and path; the median counts */
#define TIME_LIMIT 50000000

enum state { UNMEASURED, MEASURING, MEASURED };

struct copy_crossover copy_crossovers(struct device *device)
{
	if (atomic_load_explicit(&device->crossover_state, memory_order_acquire) != MEASURED)
		return (struct copy_crossover){
		    .write = DEFAULT_WRITE, .read = DEFAULT_READ, .overlap = DEFAULT_OVERLAP};
	return (struct copy_crossover){
	    .write = atomic_load_explicit(&device->crossover_write, memory_order_relaxed),
	    .read = atomic_load_explicit(&device->crossover_read, memory_order_relaxed),
	    .overlap = atomic_load_explicit(&device->crossover_overlap, memory_order_relaxed),
	    .measured = true,
	};
}

enum direction { WRITING, READING };

struct measurement {
	struct copier *copier;
	struct span span;
	void *buffer; /* LARGEST bytes, pinned */
	int64_t deadline;
	int error;
};

static int time_compare(const void *a, const void *b)
{
	const uint64_t *x = a, *y = b;

	return (*x > *y) - (*x < *y);
}

static int copy_once(struct measurement *m, enum direction direction, enum copy_path path,
		     uint64_t bytes)
{
	int rc = direction == WRITING ? copy_in(m->copier, &m->span, 0, m->buffer, bytes, path)
				      : copy_out(m->copier, m->buffer, &m->span, 0, bytes, path);
	int waited = copier_wait(m->copier);

	return rc < 0 ? rc : waited;
}

/* The median of ROUNDS copies, or of fewer when the time is up. */
static uint64_t time_copy(struct measurement *m, enum direction direction, enum copy_path path,
			  uint64_t bytes)
{
	uint64_t took[ROUNDS];
	unsigned n = 0;

	do {
		int64_t start = clock_ns();
		int rc = copy_once(m, direction, path, bytes);

		if (rc < 0)
			m->error = rc;
		took[n++] = (uint64_t)(clock_ns() - start);
	} while (n < ROUNDS && !m->error && clock_ns() < m->deadline);
	qsort(took, n, sizeof(took[0]), time_compare);
	return took[n / 2];
}

/* The largest size at which BAR is not slower; 0: always slower. If the time is up before DMA was
 * faster, because the device is busy, the default remains unless BAR is known to be good for more.
 */
static uint64_t crossover_find(struct measurement *m, enum direction direction)
{
	uint64_t best = 0, usual = direction == WRITING ? DEFAULT_WRITE : DEFAULT_READ;

	copy_once(m, direction, COPY_DMA, SMALLEST); /* makes registrations and contexts */
	copy_once(m, direction, COPY_BAR, SMALLEST);
	const uint64_t max_bytes = direction == WRITING ? MOST_WRITE : LARGEST;

	for (uint64_t bytes = SMALLEST; bytes <= max_bytes; bytes *= 2) {
		uint64_t bar = time_copy(m, direction, COPY_BAR, bytes);
		uint64_t dma = time_copy(m, direction, COPY_DMA, bytes);

		if (m->error || bar > dma)
			break;
		best = bytes;
		if (clock_ns() >= m->deadline)
			return best > usual ? best : usual;
	}
	return best;
}

/* The part with which both finish at the same time, if neither slows the other. */
static uint64_t overlap_find(struct measurement *m)
{
	uint64_t bar = time_copy(m, WRITING, COPY_BAR, LARGEST);
	uint64_t dma = time_copy(m, WRITING, COPY_DMA, LARGEST);
	uint64_t share = LARGEST * dma / (bar + dma + 1);

	return share < MOST_OVERLAP ? share : MOST_OVERLAP;
}

static bool chunk_can_map(struct chunk *chunk)
{
	brlock_token token;

	if (!bar_acquire(chunk, BAR_WANT_FORCE, &token))
		return false;
	bar_release(chunk, token);
	return true;
}

static int measure_directions(struct measurement *m, struct device *device)
{
	uint64_t write = 0, read = 0, overlap = 0;

	if (chunk_can_map(m->span.chunk)) {
		/* Half of the time for each direction, so that slow loads leave time for stores. */
		m->deadline = clock_ns() + TIME_LIMIT / 2;
		write = crossover_find(m, WRITING);
		overlap = overlap_find(m);
		m->deadline = clock_ns() + TIME_LIMIT / 2;
		read = crossover_find(m, READING);
	}
	if (m->error)
		return m->error;
	atomic_store(&device->crossover_write, write);
	atomic_store(&device->crossover_read, read);
	atomic_store(&device->crossover_overlap, overlap);
	return 0;
}

static int measure_pinned(struct measurement *m, struct device *device)
{
	int rc = copier_pin(m->copier, m->buffer, LARGEST);

	if (rc < 0)
		return rc;
	rc = measure_directions(m, device);
	copier_unpin(m->copier, m->buffer);
	return rc;
}

static int crossover_measure(struct copier *copier, struct device *device)
{
	struct measurement m = {.copier = copier};
	struct chunk *chunk;
	int rc = chunk_new(device, PLACE_GPU, CHUNK_ALIGN, &chunk);

	if (rc < 0)
		return rc;
	m.span = (struct span){.chunk = chunk, .offset = 0, .bytes = CHUNK_ALIGN};
	m.buffer = aligned_alloc(4096, LARGEST);
	rc = m.buffer ? measure_pinned(&m, device) : -ENOMEM;
	free(m.buffer);
	chunk_free(chunk);
	return rc;
}

int copy_measure(struct copier *copier, struct device *device)
{
	int unmeasured = UNMEASURED;

	if (!atomic_compare_exchange_strong(&device->crossover_state, &unmeasured, MEASURING))
		return 0;

	uint64_t bytes_bar = copier->bytes_bar, bytes_dma = copier->bytes_dma;
	int rc = crossover_measure(copier, device);
	copier->bytes_bar = bytes_bar; /* the statistics count users' bytes only */
	copier->bytes_dma = bytes_dma;
	atomic_store_explicit(&device->crossover_state, rc < 0 ? UNMEASURED : MEASURED,
			      memory_order_release);
	if (rc < 0)
		return rc;
	struct copy_crossover found = copy_crossovers(device);
	log_debug("%s: BAR at or below %llu bytes for writes, %llu for reads", device->label,
		  (unsigned long long)found.write, (unsigned long long)found.read);
	return 0;
}
