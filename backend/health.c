/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
#include "backend/health.h"

#include <utlist.h>

#include "backend/backend.h"
#include "backend/bar_cache.h"
#include "common/cleanup.h"

void health_init(struct health *health)
{
	/* The default kind prefers readers, so that a thread may read-lock twice. */
	pthread_rwlock_init(&health->life, NULL);
	pthread_mutex_init(&health->lock, NULL);
}

bool health_try(struct device *device)
{
	return pthread_rwlock_tryrdlock(&device->health.life) == 0;
}

bool health_enter(struct device *device)
{
	return !atomic_load(&device->failed) && health_try(device);
}

void health_leave(struct device *device)
{
	pthread_rwlock_unlock(&device->health.life);
}

void health_add(struct chunk *chunk)
{
	struct health *health = &chunk->device->health;

	scoped_lock(&health->lock);
	DL_APPEND(health->chunks, chunk);
}

void health_remove(struct chunk *chunk)
{
	struct health *health = &chunk->device->health;

	scoped_lock(&health->lock);
	DL_DELETE(health->chunks, chunk);
}

void health_drop(struct chunk *chunk)
{
	struct health *health = &chunk->device->health;

	scoped_lock(&health->lock);
	LL_PREPEND2(health->dropped, chunk, next_dropped);
}

static struct chunk *dropped_pop(struct health *health)
{
	scoped_lock(&health->lock);
	struct chunk *chunk = health->dropped;

	if (chunk) {
		LL_DELETE2(health->dropped, chunk, next_dropped);
		DL_DELETE(health->chunks, chunk);
	}
	return chunk;
}

void health_free_dropped(struct device *device)
{
	struct chunk *chunk;

	while ((chunk = dropped_pop(&device->health))) {
		bar_drop_alone(chunk);
		brlock_destroy(&chunk->bar_use_lock);
		device->backend->ops->chunk_free(chunk);
	}
}

uint64_t health_lost(struct device *device)
{
	struct chunk *chunk;
	uint64_t bytes = 0;

	scoped_lock(&device->health.lock);
	DL_FOREACH (device->health.chunks, chunk) {
		bytes += atomic_load(&chunk->lost) ? chunk->bytes : 0;
	}
	return bytes;
}

void health_close(struct device *device)
{
	health_free_dropped(device);
	pthread_rwlock_destroy(&device->health.life);
	pthread_mutex_destroy(&device->health.lock);
}
