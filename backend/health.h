/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* Which chunks a device has, and who may be at it while reset.c brings it back. Inside backend/. */
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
	/* Shared: a call that relies on the device's state. Exclusive: reset.c replaces that. The
	 * former only ever tries: nobody waits for a driver that is being brought back. */
	pthread_rwlock_t life;
	pthread_mutex_t lock;  /* of the lists; for chunks, life as well */
	struct chunk *chunks;  /* all that the provider made */
	struct chunk *dropped; /* of these, freed when nobody could be at the device */
	atomic_bool given_up;  /* nobody tries (any more) */
	atomic_uint resets;    /* how often it was brought back */
};

void health_init(struct health *health);
/* Frees what was dropped; the bar cache and the provider are still there. */
void health_close(struct device *device);

/* Whether the caller may be at the device until health_leave; if not, that is -EIO. try: also where
 * it failed. Neither waits, and one thread may enter twice. */
bool health_enter(struct device *device);
bool health_try(struct device *device);
void health_leave(struct device *device);

/* Entered. */
void health_add(struct chunk *chunk);
void health_remove(struct chunk *chunk);
/* Instead of freeing it: when the device is back, or closed. */
void health_drop(struct chunk *chunk);
/* Bytes of chunks that are lost, and not freed yet. */
uint64_t health_lost(struct device *device);
/* Frees what was dropped: life is held exclusively. */
void health_free_dropped(struct device *device);

#endif
