/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* Chooses a device's way to BAR mappings at the first mapping, because a test needs a CUDA context,
 * and Vulkan's device takes up to a second. */
#include "backend/cuda/bar.h"

#include <errno.h>
#include <stdio.h>

#include "backend/cuda/provider.h"
#include "common/cleanup.h"
#include "common/log.h"

static const struct bar_way *const bar_ways[BAR_OFF] = {
    [BAR_DMABUF] = &cuda_bar_dmabuf,
    [BAR_GDRCOPY] = &cuda_bar_gdrcopy,
    [BAR_VULKAN] = &cuda_bar_vulkan,
};

void cuda_bar_init(struct cuda_device *device)
{
	struct bar_state *bar = &device->bar;

	pthread_mutex_init(&bar->lock, NULL);
	if (device->cuda->bar == BAR_OFF) {
		snprintf(bar->reason, sizeof(bar->reason), "turned off (bar=off)");
		atomic_store(&bar->probed, true);
	}
}

void cuda_bar_idle_release(struct cuda_device *device)
{
	struct bar_state *bar = &device->bar;

	if (atomic_exchange(&bar->open, false))
		atomic_load(&bar->way)->close(bar->state);
}

void cuda_bar_close(struct cuda_device *device)
{
	cuda_bar_idle_release(device);
	pthread_mutex_destroy(&device->bar.lock);
}

/* 0 if the way works here; otherwise reason says why not. */
static int way_try(struct cuda_device *device, const struct bar_way *way, char *reason)
{
	void *state;

	device->bar.device = (struct bar_device){
	    .cu = &device->cuda->cu,
	    .handle = device->handle,
	    .uuid = device->uuid,
	};
	int rc = way->open(&device->bar.device, &state, reason);
	if (rc < 0)
		return rc;
	rc = cuda_bar_test(device, way, state, reason);
	if (rc < 0) {
		way->close(state);
		return rc;
	}
	device->bar.state = state;
	atomic_store(&device->bar.way, way);
	atomic_store_explicit(&device->bar.open, true, memory_order_release);
	log_info("%s: BAR mappings through %s", device->base.label, way->name);
	return 0;
}

/* Under bar.lock. -ENOMEM and -ENOSPC: the test had no room, and the ways are still unknown; the
 * next mapping tries again. */
static int ways_probe(struct cuda_device *device)
{
	struct bar_state *bar = &device->bar;
	enum bar_provider provider = device->cuda->bar;
	char reason[BAR_REASON_MAX] = "";

	for (enum bar_provider i = BAR_DMABUF; i <= BAR_VULKAN; i++) {
		if (provider != BAR_AUTO && provider != i)
			continue;
		int rc = way_try(device, bar_ways[i], reason);
		if (atomic_load(&device->base.failed))
			return -EIO;
		if (rc == -ENOMEM || rc == -ENOSPC)
			return rc;
		if (rc == 0)
			break;
		log_write(provider == BAR_AUTO ? LOG_LEVEL_INFO : LOG_LEVEL_WARN,
			  "%s: no BAR mappings through %s: %s", device->base.label,
			  bar_ways[i]->name, reason);
	}
	if (!atomic_load(&bar->way))
		snprintf(bar->reason, sizeof(bar->reason), "%.150s",
			 provider == BAR_AUTO ? "neither dma-buf, gdrcopy nor Vulkan works here"
					      : reason);
	atomic_store_explicit(&bar->probed, true, memory_order_release);
	return 0;
}

/* Under bar.lock. A tested way is not tested again: machine and driver do not change during a
 * process. */
static int way_reopen(struct cuda_device *device, const struct bar_way *way)
{
	char reason[BAR_REASON_MAX] = "";

	int rc = way->open(&device->bar.device, &device->bar.state, reason);
	if (rc == 0)
		atomic_store_explicit(&device->bar.open, true, memory_order_release);
	else
		log_warn("%s: no BAR mapping through %s for now: %s", device->base.label, way->name,
			 reason);
	return rc == -ENOTSUP ? -ENOMEM : rc; /* the way worked before, and will again */
}

/* 0: bar.way is open, or no way works. */
static int way_ensure_open(struct cuda_device *device)
{
	struct bar_state *bar = &device->bar;

	if (atomic_load_explicit(&bar->open, memory_order_acquire))
		return 0;
	scoped_lock(&bar->lock);
	if (!atomic_load(&bar->probed))
		return ways_probe(device);
	const struct bar_way *way = atomic_load(&bar->way);
	return way && !atomic_load(&bar->open) ? way_reopen(device, way) : 0;
}

struct chunk_source {
	struct bar_source base; /* first */
	struct chunk *chunk;
};

static int chunk_source_export(const struct bar_source *source, int *fd)
{
	return cuda_chunk_export(((const struct chunk_source *)source)->chunk, fd);
}

int cuda_bar_map_way(const struct bar_way *way, void *state, struct cuda_chunk *chunk,
		     void **address, char *reason)
{
	struct chunk_source source = {
	    .base = {.address = chunk->address,
		     .bytes = chunk->base.bytes,
		     .export = chunk_source_export},
	    .chunk = &chunk->base,
	};

	return way->map(state, &source.base, NULL, address, &chunk->mapping, reason);
}

int cuda_bar_map(struct chunk *base, void **address)
{
	struct cuda_chunk *chunk = cuda_chunk(base);
	struct cuda_device *device = cuda_device(base->device);

	if (base->place == PLACE_HOST) {
		*address = (void *)(uintptr_t)chunk->address;
		return 0;
	}
	int rc = way_ensure_open(device);
	if (rc < 0)
		return rc;
	const struct bar_way *way = atomic_load_explicit(&device->bar.way, memory_order_acquire);
	if (!way)
		return -ENOTSUP;
	rc = cuda_context_use(device) ?: cuda_chunk_need(chunk);
	if (rc == 0 && !chunk->handle)
		rc = -EINVAL; /* of cudaMalloc: this chunk only */
	if (rc < 0)
		return rc;
	char reason[BAR_REASON_MAX] = "";
	rc = cuda_bar_map_way(way, device->bar.state, chunk, address, reason);
	if (rc == -ENOTSUP)
		rc = -EINVAL; /* this chunk only: other chunks of the device are mapped by the same
				 way */
	if (rc < 0 && rc != -ENOSPC && rc != -ENOMEM)
		log_warn("%s: %s does not map a chunk of %llu MiB: %s", base->device->label,
			 way->name, (unsigned long long)base->bytes >> 20, reason);
	return rc;
}

void cuda_bar_unmap(struct chunk *base, void *address)
{
	struct cuda_chunk *chunk = cuda_chunk(base);
	struct bar_state *bar = &cuda_device(base->device)->bar;

	if (base->place == PLACE_HOST)
		return;
	atomic_load(&bar->way)->unmap(bar->state, address, base->bytes, chunk->mapping);
	chunk->mapping = NULL;
}

uint32_t cuda_bar_cost(struct device *base)
{
	struct cuda_device *device = cuda_device(base);
	const struct bar_way *way = atomic_load_explicit(&device->bar.way, memory_order_acquire);

	if (way)
		return way->cost;
	/* Before the test the way is unknown: the most expensive way is the safe guess. */
	return cuda_bar_vulkan.cost;
}

const char *cuda_bar_name(struct device *base, const char **reason)
{
	struct cuda_device *device = cuda_device(base);
	struct bar_state *bar = &device->bar;

	if (atomic_load_explicit(&bar->probed, memory_order_acquire)) {
		const struct bar_way *way = atomic_load(&bar->way);

		if (way)
			return way->name;
		*reason = bar->reason;
		return "none";
	}
	*reason = "not probed yet";
	return device->cuda->bar == BAR_AUTO ? "auto" : bar_ways[device->cuda->bar]->name;
}
