/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* A top-level directory and the memory behind it: gpuN/ (a device's pool) or host/ (system memory,
 * one shared-memory object per file). */
#ifndef FS_FILE_VOLUME_H
#define FS_FILE_VOLUME_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "backend/backend.h"
#include "backend/pool.h"
#include "backend/system.h"

struct host_windows;

struct volume {
	char name[16];		      /* "gpu0", "host" */
	unsigned index;		      /* position in the list of volumes */
	struct device *device;	      /* NULL for host/ */
	struct pool *pool;	      /* NULL for host/ */
	struct system_memory *system; /* NULL for gpuN/ */
	struct host_windows *windows; /* NULL for gpuN/ */
	uint64_t max_chunk; /* bytes, a multiple of CHUNK_ALIGN: the largest chunk to take */
	uint64_t root_ino;
	_Atomic int64_t files; /* regular files, with those that have no name any more */
};

struct volume_usage {
	uint64_t
	    total; /* what df shows as the size: the device's memory, or the limit where lower */
	uint64_t free;	    /* free on the device, whoever it is for */
	uint64_t available; /* what a file of this mount could still take */
	uint64_t held;	    /* by this mount */
};

/* Whether the volume is gpuN/, and not host/. */
static inline bool volume_is_device(const struct volume *volume)
{
	return volume->pool != NULL;
}

int volume_open_gpu(struct volume *volume, struct device *device, const struct pool_limits *limits,
		    uint64_t max_chunk);
int volume_open_host(struct volume *volume, uint64_t bytes);
void volume_close(struct volume *volume);
int volume_usage(struct volume *volume, struct volume_usage *usage);

#endif
