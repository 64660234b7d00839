/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
#include "fs/volume/volume.h"

#include <stdio.h>
#include <string.h>

#include "fs/object/host_pin.h"

static uint64_t chunk_limited(uint64_t bytes, uint64_t limit)
{
	limit = limit / CHUNK_ALIGN * CHUNK_ALIGN;
	if (!limit)
		limit = CHUNK_ALIGN;
	return bytes < limit ? bytes : limit;
}

int volume_open_gpu(struct volume *volume, struct device *device, const struct pool_limits *limits,
		    uint64_t max_chunk)
{
	struct pool *pool;
	int rc = pool_new(device, PLACE_GPU, limits, &pool);

	if (rc < 0)
		return rc;
	volume->device = device;
	volume->pool = pool;
	volume->system = NULL;
	volume->windows = NULL;
	volume->max_chunk = chunk_limited(UINT64_MAX, max_chunk);
	if (device->chunk_max)
		volume->max_chunk = chunk_limited(volume->max_chunk, device->chunk_max);
	snprintf(volume->name, sizeof(volume->name), "%s", device->label);
	return 0;
}

/* Chunks move between the places as a whole: a chunk of the largest size in 20 ms, as long as
 * requests of its file wait. A full device must have many chunks to choose from. */
#define SPILL_MAX_CHUNK (1ULL << 30)
#define SPILL_CHUNKS	64

/* Off the device, where files leave chunks of few sizes for the next files. */
#define SPILL_CHUNK (64ULL << 20)

int volume_open_place(struct volume *volume, enum memory_place place, struct pool_budget *budget)
{
	const struct pool_limits no_limits = {.size = UINT64_MAX};
	struct pool *pool;
	int rc = pool_new(volume->device, place, &no_limits, &pool);

	if (rc < 0)
		return rc;
	volume->max_chunk = chunk_limited(volume->max_chunk, SPILL_MAX_CHUNK);
	volume->max_chunk = chunk_limited(volume->max_chunk, volume->device->total / SPILL_CHUNKS);
	volume->max_chunk =
	    chunk_limited(volume->max_chunk, pool_limits(volume->pool).size / SPILL_CHUNKS);
	volume->spill_chunk = chunk_limited(volume->max_chunk, SPILL_CHUNK);
	/* Files of a disk are made quickly, so freed ones are not kept. */
	rc = pool_set_budget(pool, budget, place == PLACE_HOST ? volume->spill_chunk : 0);
	if (rc < 0) {
		pool_free(pool);
		return rc;
	}
	*(place == PLACE_HOST ? &volume->spill : &volume->disk) = pool;
	return 0;
}

int volume_open_host(struct volume *volume, uint64_t bytes)
{
	struct system_memory *system;
	int rc = system_memory_open(bytes, &system);

	if (rc < 0)
		return rc;
	rc = host_windows_new(HOST_WINDOWS_PINNED_MAX, &volume->windows);
	if (rc < 0) {
		system_memory_close(system);
		return rc;
	}
	volume->device = NULL;
	volume->pool = NULL;
	volume->system = system;
	volume->max_chunk = CHUNK_ALIGN;
	snprintf(volume->name, sizeof(volume->name), "host");
	return 0;
}

void volume_close(struct volume *volume)
{
	pool_free(volume->pool);
	pool_free(volume->spill);
	pool_free(volume->disk);
	host_windows_free(volume->windows);
	if (volume->system)
		system_memory_close(volume->system);
	volume->pool = NULL;
	volume->spill = volume->disk = NULL;
	volume->system = NULL;
	volume->windows = NULL;
}

static int host_usage(struct volume *volume, struct volume_usage *usage)
{
	struct system_usage memory;
	int rc = system_usage(volume->system, &memory);

	if (rc < 0)
		return rc;
	*usage = (struct volume_usage){
	    .total = memory.total,
	    .free = memory.free,
	    .available = memory.free,
	    .held = memory.total - memory.free,
	};
	return 0;
}

/* Files can fill these places as well, and nothing else can. */
static int tiers_usage_add(struct volume *volume, struct volume_usage *usage)
{
	enum memory_place place = PLACE_GPU;

	while ((place = volume_place_below(volume, place)) < PLACES) {
		struct pool *pool = volume_pool(volume, place);
		uint64_t held = pool_usage(pool).chunk_bytes, available;
		int rc = pool_available(pool, &available);

		if (rc < 0)
			return rc;
		usage->total += held + available;
		usage->free += available;
		usage->available += available;
		usage->held += held;
		usage->shared += available;
	}
	return 0;
}

int volume_usage(struct volume *volume, struct volume_usage *usage)
{
	struct device_memory memory;
	uint64_t available;

	if (!volume->pool)
		return host_usage(volume, usage);

	int rc = pool_available(volume->pool, &available);

	if (rc == 0)
		rc = device_memory(volume->device, &memory);
	if (rc < 0)
		return rc;

	struct pool_usage used = pool_usage(volume->pool);
	uint64_t held = used.chunk_bytes, room = used.size > held ? used.size - held : 0;
	uint64_t free = memory.free < room ? memory.free : room;

	/* A driver counts the memory that processes still have; a simulated GPU does not. */
	uint64_t max_available = room + pool_usage_unused(&used);

	if (backend_is_host(volume->device->backend) && available > max_available)
		available = max_available;

	*usage = (struct volume_usage){
	    .total = used.size < memory.total ? used.size : memory.total,
	    /* Memory that the mount holds unused is free for its files too. */
	    .free = free > available ? free : available,
	    .available = available,
	    .held = held,
	};
	return tiers_usage_add(volume, usage);
}
