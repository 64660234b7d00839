/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* The list of a device's chunks, and the exclusion of all other threads while reset.c resets the
 * device. Private to backend/. */
#ifndef BACKEND_HEALTH_H
#define BACKEND_HEALTH_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

struct device;
struct chunk;

/* Lock order: life, lock. */
struct health {
	/* Shared: calls that rely on the device's state. Exclusive: the reset, which replaces that
	 * state. Shared holders only try the lock: no thread waits for a driver during a reset. */
	pthread_rwlock_t life;
	pthread_mutex_t lock;  /* protects the lists; changes to chunks also need life */
	struct chunk *chunks;  /* all chunks that the provider made */
	struct chunk *dropped; /* the chunks whose freeing waits until the device can be used */
	atomic_bool given_up;  /* no reset is tried any more */
	atomic_uint resets;    /* number of successful resets */
};

void health_init(struct health *health);
/* Frees dropped chunks; the bar cache and the provider still exist. */
void health_close(struct device *device);

/* Whether the caller may use the device until health_leave; false means -EIO. health_try also
 * admits a caller to a failed device. Neither function waits, and a thread may enter twice. */
bool health_enter(struct device *device);
bool health_try(struct device *device);
void health_leave(struct device *device);

/* The caller has entered. */
void health_add(struct chunk *chunk);
void health_remove(struct chunk *chunk);
/* Frees the chunk later: after the device's reset, or when the device is closed. */
void health_drop(struct chunk *chunk);
/* Bytes of chunks that are lost and not freed yet. */
uint64_t health_lost(struct device *device);
/* Frees dropped chunks; the caller holds life exclusively. */
void health_free_dropped(struct device *device);

#endif
