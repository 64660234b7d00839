/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* A volume: a top-level directory and its memory, a device's pool (gpuN/) or system memory with a
 * shared-memory object for each file (host/). */
#ifndef FS_FILE_VOLUME_H
#define FS_FILE_VOLUME_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "backend/backend.h"
#include "backend/pool.h"
#include "backend/system.h"

struct ahead;
struct host_windows;

struct volume {
	char name[16];	       /* "gpu0", "host" */
	unsigned index;	       /* position in the list of volumes */
	struct device *device; /* NULL for host/ */
	struct pool *pool;     /* NULL for host/ */
	struct pool *spill; /* system memory for extents that left the device (docs/tiers.md); NULL:
			       none */
	struct system_memory *system; /* NULL for gpuN/ */
	struct host_windows *windows; /* NULL for gpuN/ */
	struct ahead *ahead;	      /* blocks read ahead; the same for all volumes; NULL: none */
	atomic_bool used_away;	      /* files with memory in the spill were used */
	uint64_t spill_chunk;	      /* the largest chunk in the spill */
	uint64_t max_chunk; /* the largest chunk to allocate: bytes, a multiple of CHUNK_ALIGN */
	uint64_t root_ino;
	_Atomic int64_t files; /* regular files, including files without names */
};

struct volume_usage {
	uint64_t total;	    /* the size that df shows: the device's memory, or the limit if lower */
	uint64_t free;	    /* free on the device, for all processes */
	uint64_t available; /* available to a file of this mount */
	uint64_t held;	    /* held by this mount */
	/* The part of the first three that the spill has, which volumes share. */
	uint64_t shared;
};

/* Whether the volume is gpuN/; else the volume is host/. */
static inline bool volume_is_device(const struct volume *volume)
{
	return volume->pool != NULL;
}

/* The pool of the volume's chunks in a place. */
static inline struct pool *volume_pool(const struct volume *volume, enum memory_place place)
{
	return place == PLACE_HOST ? volume->spill : volume->pool;
}

/* The largest chunk to allocate there. */
static inline uint64_t volume_max_chunk(const struct volume *volume, enum memory_place place)
{
	return place == PLACE_HOST ? volume->spill_chunk : volume->max_chunk;
}

int volume_open_gpu(struct volume *volume, struct device *device, const struct pool_limits *limits,
		    uint64_t max_chunk);
/* Lets extents of the files leave the device, within a budget of bytes that volumes share. */
int volume_open_spill(struct volume *volume, struct pool_budget *budget);
int volume_open_host(struct volume *volume, uint64_t bytes);
void volume_close(struct volume *volume);
int volume_usage(struct volume *volume, struct volume_usage *usage);

#endif
