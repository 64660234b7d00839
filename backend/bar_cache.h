/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* A cache of BAR mappings, bounded per device. A chunk is mapped when its small accesses by DMA
 * have cost as much as the mapping would have (rent-or-buy), or at the first access if its policy
 * is persistent. When the device's BAR budget is spent, the least recently used mapping is evicted.
 * A transient mapping is removed after its use. */
#ifndef BACKEND_BAR_CACHE_H
#define BACKEND_BAR_CACHE_H

#include "backend/backend.h"

/* budget: bytes that may be mapped at once; 0: mapping is off. */
int bar_cache_new(struct device *device, uint64_t budget, struct bar_cache **cache);
void bar_cache_free(struct bar_cache *cache);

/* BAR_WANT_FORCE maps at once (copy=bar), BAR_WANT_AUTO only when the mapping has paid off. */
enum bar_want { BAR_WANT_AUTO, BAR_WANT_FORCE };

/* The chunk's address through the BAR, valid until bar_release; NULL: use DMA. A thread holds a
 * single address, and briefly, because an eviction waits for it. */
void *bar_acquire(struct chunk *chunk, enum bar_want want, brlock_token *token);
void bar_release(struct chunk *chunk, brlock_token token);

/* Removes the chunk's mapping after waiting for its users; to be called before freeing the chunk.
 * Has no effect while the device is reset, which removes all mappings. */
void bar_drop(struct chunk *chunk);
/* Removes the chunk's mapping for the thread that resets the device (health.h). The next access may
 * map the chunk again. */
void bar_drop_alone(struct chunk *chunk);
void bar_set_policy(struct chunk *chunk, enum map_policy policy);

/* Whether the budget is not 0. */
bool bar_possible(struct device *device);

struct bar_usage {
	uint64_t mapped, budget;  /* bytes */
	uint64_t maps, evictions; /* since the start */
};
struct bar_usage bar_usage(struct device *device);

#endif
