/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* The checking wrappers around a provider's functions. */
#include "backend/backend.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "backend/bar_cache.h"
#include "backend/disk.h"
#include "backend/providers.h"
#include "common/cleanup.h"
#include "common/log.h"

int backend_open(const struct backend_config *config, struct backend **backend)
{
	struct backend *opened;
	int rc = provider_open(config, &opened);

	if (rc < 0)
		return rc;
	opened->disk_dir = -1;
	for (unsigned i = 0; i < opened->n_devices; i++)
		health_init(&opened->devices[i]->health);
	for (unsigned i = 0; i < opened->n_devices; i++) {
		struct device *device = opened->devices[i];

		rc = bar_cache_new(device, device->bar_bytes, &device->bar);
		if (rc < 0) {
			backend_close(opened);
			return rc;
		}
	}
	*backend = opened;
	return 0;
}

void backend_close(struct backend *backend)
{
	if (!backend)
		return;
	reset_end(backend);
	for (unsigned i = 0; i < backend->n_devices; i++) {
		health_close(backend->devices[i]);
		bar_cache_free(backend->devices[i]->bar);
	}
	if (backend->disk_dir >= 0)
		close(backend->disk_dir);
	backend->ops->close(backend);
}

int device_memory(struct device *device, struct device_memory *memory)
{
	if (!health_enter(device))
		return -EIO;
	int rc = device->backend->ops->memory(device, memory);
	health_leave(device);
	return rc;
}

int device_idle_release(struct device *device)
{
	const struct backend_ops *ops = device->backend->ops;

	if (!ops->idle_release || !health_enter(device))
		return 0;
	int rc = ops->idle_release(device);
	health_leave(device);
	return rc;
}

int device_pin(struct device *device, void *base, size_t bytes)
{
	const struct backend_ops *ops = device->backend->ops;

	if (!ops->pin_for_all)
		return -ENOTSUP;
	if (!health_enter(device))
		return -EIO;
	int rc = ops->pin_for_all(device, base, bytes);
	health_leave(device);
	return rc;
}

void device_unpin(struct device *device, void *base)
{
	device->backend->ops->unpin_for_all(device, base);
}

const char *memory_place_name(enum memory_place place)
{
	static const char *const names[PLACES] = {"gpu", "host", "disk"};

	return names[place];
}

const char *device_bar_name(struct device *device, const char **reason)
{
	*reason = NULL;
	return device->backend->ops->bar_name(device, reason);
}

void device_fail(struct device *device, const char *cause)
{
	if (atomic_exchange(&device->failed, true))
		return;
	log_error("%s (%s): %s; its files answer with EIO %s", device->label, device->name, cause,
		  atomic_load(&device->backend->resetter.background.running)
		      ? "until the GPU is reset"
		      : "from now on: reset the GPU and remount");
	reset_wake(device->backend);
}

enum device_health device_health(struct device *device)
{
	if (!atomic_load(&device->failed))
		return DEVICE_OK;
	return atomic_load(&device->backend->resetter.background.running) &&
		       !atomic_load(&device->health.given_up)
		   ? DEVICE_RESETTING
		   : DEVICE_FAILED;
}

const char *device_health_name(struct device *device)
{
	static const char *const names[] = {"ok", "resetting", "failed"};

	return names[device_health(device)];
}

static void chunk_init(struct chunk *chunk)
{
	chunk->id = 0;
	chunk->pool_private = NULL;
	atomic_init(&chunk->lost, false);
	atomic_init(&chunk->handed_out, CHUNK_KEPT);
	atomic_init(&chunk->bar, NULL);
	brlock_init(&chunk->bar_use_lock);
	atomic_init(&chunk->bar_heat, 0);
	/* A mapping of system memory takes no room, so only the chunk's end removes it. */
	atomic_init(&chunk->bar_policy, chunk->place == PLACE_HOST ? MAP_PERSISTENT : MAP_AUTO);
	atomic_init(&chunk->bar_refused, false);
	chunk->bar_prev = chunk->bar_next = NULL;
}

/* As chunk_make. A reset of the device does not touch such a chunk. */
static int chunk_make_on_disk(struct device *device, uint64_t bytes, int fd, struct chunk **chunk)
{
	struct chunk *new_chunk;
	int rc = fd < 0 ? disk_chunk_new(device, bytes, &new_chunk)
			: disk_chunk_import(device, bytes, fd, &new_chunk);

	if (rc < 0)
		return rc;
	chunk_init(new_chunk);
	*chunk = new_chunk;
	return 0;
}

static bool chunk_origin_is_foreign(enum chunk_origin origin)
{
	return origin == CHUNK_FOREIGN || origin == CHUNK_FOREIGN_LATER;
}

static int chunk_make_on_device(struct device *device, enum memory_place place, uint64_t bytes,
				enum chunk_origin origin, int fd, struct chunk **chunk)
{
	const struct backend_ops *ops = device->backend->ops;

	switch (origin) {
	case CHUNK_NEW:
		return ops->chunk_new(device, place, bytes, chunk);
	case CHUNK_OURS:
		return ops->chunk_import(device, place, bytes, fd, chunk);
	default:
		return ops->chunk_import_foreign(device, bytes, fd, origin, chunk);
	}
}

static int chunk_make(struct device *device, enum memory_place place, uint64_t bytes,
		      enum chunk_origin origin, int fd, struct chunk **chunk)
{
	struct chunk *new_chunk;

	if (chunk_origin_is_foreign(origin) && !device->backend->ops->chunk_import_foreign)
		return -ENOTSUP;
	if (place == PLACE_DISK)
		return chunk_make_on_disk(device, bytes, fd, chunk);
	if (!health_enter(device))
		return -EIO;
	int rc = chunk_make_on_device(device, place, bytes, origin, fd, &new_chunk);

	if (rc == 0) {
		new_chunk->foreign = chunk_origin_is_foreign(origin);
		assert(new_chunk->device == device && new_chunk->place == place &&
		       new_chunk->bytes == bytes);
		chunk_init(new_chunk);
		health_add(new_chunk);
		*chunk = new_chunk;
	}
	health_leave(device);
	return rc;
}

int chunk_new(struct device *device, enum memory_place place, uint64_t bytes, struct chunk **chunk)
{
	assert(bytes > 0 && bytes % CHUNK_ALIGN == 0);
	return chunk_make(device, place, bytes, CHUNK_NEW, -1, chunk);
}

int chunk_import(struct device *device, enum memory_place place, uint64_t bytes, int fd,
		 struct chunk **chunk)
{
	if (!bytes || bytes % CHUNK_ALIGN || fd < 0)
		return -EINVAL;
	return chunk_make(device, place, bytes, CHUNK_OURS, fd, chunk);
}

int chunk_import_foreign(struct device *device, uint64_t bytes, int fd, enum chunk_origin origin,
			 struct chunk **chunk)
{
	if (!bytes || bytes % CHUNK_ALIGN || fd < 0)
		return -EINVAL;
	return chunk_make(device, PLACE_GPU, bytes, origin, fd, chunk);
}

void chunk_free(struct chunk *chunk)
{
	if (!chunk)
		return;
	struct device *device = chunk->device;

	if (chunk->place == PLACE_DISK) {
		brlock_destroy(&chunk->bar_use_lock);
		disk_chunk_free(chunk);
		return;
	}
	if (!health_enter(device)) {
		health_drop(chunk);
		return;
	}
	bar_drop(chunk);
	brlock_destroy(&chunk->bar_use_lock);
	health_remove(chunk);
	device->backend->ops->chunk_free(chunk);
	health_leave(device);
}

int chunk_export(struct chunk *chunk, int *fd)
{
	struct device *device = chunk->device;

	if (chunk->place == PLACE_DISK)
		return disk_chunk_export(chunk, fd);
	if (atomic_load(&chunk->lost) || !health_enter(device))
		return -EIO;
	int rc = device->backend->ops->chunk_export(chunk, fd);

	health_leave(device);
	return rc;
}
