/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* A device's chunks, and permission to use the device while reset.c resets it. For backend/ only.
 */
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
	/* Read-locked by a call that relies on the device's state, write-locked by reset.c, which
	 * replaces the state. Calls only try: no thread waits for a reset of the driver. */
	pthread_rwlock_t life;
	pthread_mutex_t lock;  /* protects the lists; chunks needs life as well */
	struct chunk *chunks;  /* all that the provider made */
	struct chunk *dropped; /* chunks freed while the device could not be used */
	atomic_bool given_up;  /* no (further) attempt to reset the device is made */
	atomic_uint resets;    /* how often the device was reset */
};

void health_init(struct health *health);
/* Frees dropped chunks, while bar cache and provider still exist. */
void health_close(struct device *device);

/* Whether the caller may use the device until health_leave; if not, the operation is -EIO. try:
 * also on a failed device. Neither waits, and a thread may enter twice. */
bool health_enter(struct device *device);
bool health_try(struct device *device);
void health_leave(struct device *device);

/* After health_enter. */
void health_add(struct chunk *chunk);
void health_remove(struct chunk *chunk);
/* Instead of freeing a chunk: puts it off until the device is reset or closed. */
void health_drop(struct chunk *chunk);
/* Bytes of lost chunks that are not freed yet. */
uint64_t health_lost(struct device *device);
/* Frees dropped chunks; life is write-locked. */
void health_free_dropped(struct device *device);

#endif
