/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* BAR mappings as a bounded cache per device. A chunk is mapped when the small accesses to the
 * chunk have cost as much as the mapping would have (rent-or-buy), or at once if the policy is
 * persistent. When the device's BAR budget is spent, the coldest unused mapping is evicted.
 * Transient mappings are removed after each use. */
#ifndef BACKEND_BAR_CACHE_H
#define BACKEND_BAR_CACHE_H

#include "backend/backend.h"

/* budget: BAR bytes that may be mapped at once; 0 turns mapping off. */
int bar_cache_new(struct device *device, uint64_t budget, struct bar_cache **cache);
void bar_cache_free(struct bar_cache *cache);

/* FORCE maps at once (copy=bar); AUTO maps only once the mapping has paid for itself. */
enum bar_want { BAR_WANT_AUTO, BAR_WANT_FORCE };

/* The chunk's address through the BAR, held until bar_release; NULL: use DMA. A thread holds at
 * most one chunk at a time, and briefly: an eviction waits for the release. */
void *bar_acquire(struct chunk *chunk, enum bar_want want, brlock_token *token);
void bar_release(struct chunk *chunk, brlock_token token);

/* Removes the chunk's mapping, after waiting for its users; called before a chunk is freed. During
 * a reset of the device the mapping is gone already. */
void bar_drop(struct chunk *chunk);
/* The same for a thread that has the device alone (health.h). The next access may map the chunk
 * again. */
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
