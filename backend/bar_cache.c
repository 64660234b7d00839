/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
#include "backend/bar_cache.h"

#include <errno.h>
#include <stdlib.h>
#include <utlist.h>

#include "common/cacheline.h"
#include "common/cleanup.h"
#include "common/log.h"

/* How much more a small access by DMA costs than by BAR, on the reference machine: a synchronous
 * pinned copy up to 16 KiB takes 5.8-8.5 us, a store through BAR1 0.1-0.3 us. */
#define SAVED_NS 6000

/* The cost of a mapping besides bar_cost: on the reference machine an import into Vulkan takes 136
 * us for 2 MiB and 0.57 ms for 64 MiB. */
#define MAP_NS 120000

/* How many used mappings an eviction skips before taking the next in any case. */
#define SECOND_CHANCES 64

struct bar_cache {
	struct device *device;
	_Atomic uint64_t budget; /* read by every access through the BAR, unlike the fields below */
	_Alignas(CACHELINE_ALIGN) _Atomic uint64_t mapped, maps, evictions;
	/* Held while a mapping is made or removed. Taken before any chunk's bar_use_lock. */
	pthread_mutex_t lock;
	struct chunk *evictable; /* mapped chunks that are not persistent; a clock, with its hand at
				    the head */
};

int bar_cache_new(struct device *device, uint64_t budget, struct bar_cache **cache)
{
	struct bar_cache *new_cache = cacheline_calloc(sizeof(*new_cache));

	if (!new_cache)
		return -ENOMEM;
	new_cache->device = device;
	atomic_init(&new_cache->budget, budget);
	pthread_mutex_init(&new_cache->lock, NULL);
	*cache = new_cache;
	return 0;
}

void bar_cache_free(struct bar_cache *cache)
{
	if (!cache)
		return;
	pthread_mutex_destroy(&cache->lock);
	free(cache);
}

static bool is_persistent(struct chunk *chunk)
{
	return atomic_load(&chunk->bar_policy) == MAP_PERSISTENT;
}

/* The bytes of the BAR that a mapping of the chunk takes. */
static uint64_t chunk_bar_bytes(const struct chunk *chunk)
{
	return chunk->place == PLACE_GPU ? chunk->bytes : 0;
}

/* Lock held. Waits for accesses under way; new accesses find no mapping. */
static void chunk_unmap(struct bar_cache *cache, struct chunk *chunk)
{
	brlock_write_lock(&chunk->bar_use_lock);
	void *address = atomic_exchange(&chunk->bar, NULL);
	brlock_write_unlock(&chunk->bar_use_lock);

	if (!is_persistent(chunk))
		DL_DELETE2(cache->evictable, chunk, bar_prev, bar_next);
	atomic_store(&chunk->bar_heat, 0);
	chunk->device->backend->ops->bar_unmap(chunk, address);
	atomic_fetch_sub(&cache->mapped, chunk_bar_bytes(chunk));
}

/* Lock held. Second chance: a chunk used since the hand's last visit goes to the end of the queue.
 */
static bool cache_evict(struct bar_cache *cache)
{
	struct chunk *victim = cache->evictable;

	if (!victim)
		return false;
	for (unsigned i = 0; i < SECOND_CHANCES && atomic_exchange(&victim->bar_heat, 0); i++) {
		DL_DELETE2(cache->evictable, victim, bar_prev, bar_next);
		DL_APPEND2(cache->evictable, victim, bar_prev, bar_next);
		victim = cache->evictable;
	}
	chunk_unmap(cache, victim);
	atomic_fetch_add(&cache->evictions, 1);
	return true;
}

static bool cache_make_room(struct bar_cache *cache, uint64_t bytes)
{
	while (atomic_load(&cache->mapped) + bytes > atomic_load(&cache->budget))
		if (!cache_evict(cache))
			return false;
	return true;
}

/* Lock held. The device may have less room than the budget, because other programs map through it
 * as well. */
static int chunk_map_evicting(struct bar_cache *cache, struct chunk *chunk, void **address)
{
	const struct backend_ops *ops = chunk->device->backend->ops;
	int rc = ops->bar_map(chunk, address);

	while ((rc == -ENOSPC || rc == -ENOMEM) && cache_evict(cache))
		rc = ops->bar_map(chunk, address);
	return rc;
}

/* An automatic mapping is tried again after it has paid off again, persistent or not. Forced
 * mappings are asked for at every access: a failure is final. */
static void mapping_failed(struct bar_cache *cache, struct chunk *chunk, enum bar_want want, int rc)
{
	if ((rc == -ENOSPC || rc == -ENOMEM) && want == BAR_WANT_AUTO) {
		atomic_store(&chunk->bar_heat, 1);
		return;
	}
	atomic_store(&chunk->bar_refused, true);
	if (rc == -ENOTSUP) /* the same for every chunk of the device */
		atomic_store(&cache->budget, 0);
}

/* Lock held. Maps the chunk, or leaves it unmapped and cold. */
static void *chunk_map(struct bar_cache *cache, struct chunk *chunk, enum bar_want want)
{
	void *address;

	if (!cache_make_room(cache, chunk_bar_bytes(chunk))) {
		atomic_store(&chunk->bar_heat, 1);
		return NULL;
	}
	int rc = chunk_map_evicting(cache, chunk, &address);
	if (rc < 0) {
		mapping_failed(cache, chunk, want, rc);
		return NULL;
	}

	atomic_fetch_add(&cache->mapped, chunk_bar_bytes(chunk));
	atomic_fetch_add(&cache->maps, 1);
	atomic_store(&chunk->bar_heat, 1);
	if (!is_persistent(chunk))
		DL_APPEND2(cache->evictable, chunk, bar_prev, bar_next);
	atomic_store_explicit(&chunk->bar, address, memory_order_release);
	return address;
}

static uint64_t mapping_cost(struct chunk *chunk)
{
	uint64_t per_mib = chunk->device->backend->ops->bar_cost(chunk->device);

	return per_mib ? MAP_NS + per_mib * (chunk->bytes >> 20) : 0;
}

/* Counts an access without a mapping; true if the chunk should be mapped now. */
static bool chunk_wants_mapping(struct chunk *chunk, enum bar_want want)
{
	if (want == BAR_WANT_FORCE)
		return true;

	uint32_t old_heat = atomic_fetch_add_explicit(&chunk->bar_heat, 1, memory_order_relaxed);
	uint64_t cost = mapping_cost(chunk);

	switch ((enum map_policy)atomic_load(&chunk->bar_policy)) {
	case MAP_PERSISTENT:
		if (old_heat == 0)
			return true;
		break;
	case MAP_TRANSIENT: /* serves a single access, which must pay for the mapping */
		return cost <= SAVED_NS;
	case MAP_AUTO:
		break;
	}
	return (old_heat + 1ULL) * SAVED_NS >= cost;
}

/* Maps the chunk if necessary and read-locks bar_use_lock. An automatic mapping does not wait while
 * another chunk is mapped: DMA is faster. */
static void *chunk_map_and_lock(struct chunk *chunk, enum bar_want want, brlock_token *token)
{
	struct bar_cache *cache = chunk->device->bar;

	if (want == BAR_WANT_FORCE)
		pthread_mutex_lock(&cache->lock);
	else if (pthread_mutex_trylock(&cache->lock))
		return NULL;

	void *address = atomic_load(&chunk->bar);
	if (!address && !atomic_load(&chunk->bar_refused) && health_enter(chunk->device)) {
		address = chunk_map(cache, chunk, want);
		health_leave(chunk->device);
	}
	/* Read-locked before the cache's lock is released, so that no eviction comes in between. */
	if (address)
		*token = brlock_read_lock(&chunk->bar_use_lock);
	pthread_mutex_unlock(&cache->lock);
	return address;
}

/* Marks the chunk as used, for the clock; stored only when it changes, because threads share the
 * line. */
static void chunk_mark_used(struct chunk *chunk)
{
	if (!atomic_load_explicit(&chunk->bar_heat, memory_order_relaxed))
		atomic_store_explicit(&chunk->bar_heat, 1, memory_order_relaxed);
}

void *bar_acquire(struct chunk *chunk, enum bar_want want, brlock_token *token)
{
	struct bar_cache *cache = chunk->device->bar;

	if (!cache ||
	    atomic_load_explicit(&cache->budget, memory_order_relaxed) < chunk_bar_bytes(chunk))
		return NULL;

	*token = brlock_read_lock(&chunk->bar_use_lock);
	void *address = atomic_load_explicit(&chunk->bar, memory_order_acquire);
	if (address) {
		chunk_mark_used(chunk);
		return address;
	}
	brlock_read_unlock(&chunk->bar_use_lock, *token);

	if (atomic_load_explicit(&chunk->bar_refused, memory_order_relaxed) ||
	    !chunk_wants_mapping(chunk, want))
		return NULL;
	return chunk_map_and_lock(chunk, want, token);
}

void bar_release(struct chunk *chunk, brlock_token token)
{
	brlock_read_unlock(&chunk->bar_use_lock, token);
	if (atomic_load_explicit(&chunk->bar_policy, memory_order_relaxed) == MAP_TRANSIENT)
		bar_drop(chunk);
}

void bar_drop(struct chunk *chunk)
{
	struct bar_cache *cache = chunk->device->bar;

	if (!atomic_load(&chunk->bar) || !health_try(chunk->device))
		return;
	{
		scoped_lock(&cache->lock);
		if (atomic_load(&chunk->bar))
			chunk_unmap(cache, chunk);
	}
	health_leave(chunk->device);
}

void bar_drop_alone(struct chunk *chunk)
{
	struct bar_cache *cache = chunk->device->bar;

	if (!cache)
		return;
	scoped_lock(&cache->lock);
	if (atomic_load(&chunk->bar))
		chunk_unmap(cache, chunk);
	atomic_store(&chunk->bar_refused, false);
}

void bar_set_policy(struct chunk *chunk, enum map_policy policy)
{
	struct bar_cache *cache = chunk->device->bar;

	if (chunk->place != PLACE_GPU)
		return;
	if (!cache) {
		atomic_store(&chunk->bar_policy, policy);
		return;
	}
	scoped_lock(&cache->lock);
	bool listed = atomic_load(&chunk->bar) && !is_persistent(chunk);

	if (listed && policy == MAP_PERSISTENT)
		DL_DELETE2(cache->evictable, chunk, bar_prev, bar_next);
	if (atomic_load(&chunk->bar) && !listed && policy != MAP_PERSISTENT)
		DL_APPEND2(cache->evictable, chunk, bar_prev, bar_next);
	atomic_store(&chunk->bar_policy, policy);
	if (policy == MAP_TRANSIENT && atomic_load(&chunk->bar) && health_try(chunk->device)) {
		chunk_unmap(cache, chunk);
		health_leave(chunk->device);
	}
	if (policy == MAP_PERSISTENT && !atomic_load(&chunk->bar))
		atomic_store(&chunk->bar_heat, 0); /* the next access maps it again */
}

bool bar_possible(struct device *device)
{
	const struct bar_cache *cache = device->bar;

	return cache && atomic_load_explicit(&cache->budget, memory_order_relaxed);
}

struct bar_usage bar_usage(struct device *device)
{
	struct bar_cache *cache = device->bar;

	if (!cache)
		return (struct bar_usage){0};
	return (struct bar_usage){
	    .mapped = atomic_load(&cache->mapped),
	    .budget = atomic_load(&cache->budget),
	    .maps = atomic_load(&cache->maps),
	    .evictions = atomic_load(&cache->evictions),
	};
}
