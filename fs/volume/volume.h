/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* A volume: a top-level directory and its memory, a device's pool (gpuN/) or system memory with a
 * shared-memory object for each file (host/). */
#ifndef FS_VOLUME_VOLUME_H
#define FS_VOLUME_VOLUME_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "backend/backend.h"
#include "backend/pool.h"
#include "backend/system/system.h"

struct ahead;
struct host_windows;

struct volume {
	char name[32];	       /* "gpu0", "gpu0.mig1", "host" */
	unsigned index;	       /* position in the list of volumes */
	struct device *device; /* NULL for host/ */
	struct pool *pool;     /* NULL for host/ */
	/* System memory, and a disk, for extents that left the device (docs/tiers.md). NULL: none.
	 */
	struct pool *spill, *disk;
	struct system_memory *system; /* NULL for gpuN/ */
	struct host_windows *windows; /* NULL for gpuN/ */
	struct ahead *ahead;	      /* blocks read ahead; the same for all volumes; NULL: none */
	atomic_bool used_away;	      /* files with memory off the device were used */
	uint64_t spill_chunk;	      /* the largest chunk off the device */
	uint64_t max_chunk; /* the largest chunk to allocate: bytes, a multiple of CHUNK_ALIGN */
	uint64_t root_ino;
	_Atomic int64_t files;		/* regular files, including files without names */
	_Atomic uint64_t moved[PLACES]; /* bytes of files that moved to each place */
};

struct volume_usage {
	uint64_t total;	    /* the size that df shows: the device's memory, or the limit if lower */
	uint64_t free;	    /* free on the device, for all processes */
	uint64_t available; /* available to a file of this mount */
	uint64_t held;	    /* held by this mount */
	/* The part of the first three that is off the device, which volumes share. */
	uint64_t shared;
};

/* Whether the volume is gpuN/; else the volume is host/. */
static inline bool volume_is_device(const struct volume *volume)
{
	return volume->pool != NULL;
}

/* The pool of the volume's chunks in a place, or NULL. */
static inline struct pool *volume_pool(const struct volume *volume, enum memory_place place)
{
	return place == PLACE_DISK   ? volume->disk
	       : place == PLACE_HOST ? volume->spill
				     : volume->pool;
}

/* The next slower place that the volume has; PLACES: none. */
static inline enum memory_place volume_place_below(const struct volume *volume,
						   enum memory_place place)
{
	do
		place++;
	while (place < PLACES && !volume_pool(volume, place));
	return place;
}

/* Whether memory of the volume's files can leave the device. */
static inline bool volume_is_tiered(const struct volume *volume)
{
	return volume->spill || volume->disk;
}

/* The largest chunk to allocate there. */
static inline uint64_t volume_max_chunk(const struct volume *volume, enum memory_place place)
{
	return place == PLACE_GPU ? volume->max_chunk : volume->spill_chunk;
}

int volume_open_gpu(struct volume *volume, struct device *device, const struct pool_limits *limits,
		    uint64_t max_chunk);
/* Lets extents of the files leave the device for a place, within a budget of bytes that volumes
 * share. 0 or -ENOMEM. */
int volume_open_place(struct volume *volume, enum memory_place place, struct pool_budget *budget);
int volume_open_host(struct volume *volume, uint64_t bytes);
void volume_close(struct volume *volume);
int volume_usage(struct volume *volume, struct volume_usage *usage);

#endif
