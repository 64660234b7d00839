/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* Bringing devices back that failed. An error that ends a device's context leaves its memory in the
 * driver; a thread of the backend makes a new context, maps the chunks into it and reads every byte
 * of them once. What cannot be read is lost (chunk->lost), all else is served again. Whether a
 * driver goes on within one process is up to it: after a few attempts, further and further apart,
 * the device is given up until the process ends. */
#ifndef BACKEND_RESET_H
#define BACKEND_RESET_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

struct backend;
struct device;

/* Who is to know. Called by the mender's thread; no lock is held. */
struct reset_watch {
	/* It is back, ms after it failed: from now on, but for chunks that are lost. */
	void (*reset)(void *of, struct device *device, int64_t ms);
	void (*given_up)(void *of, struct device *device);
	void *of;
};

struct resetter {
	atomic_bool running;
	pthread_mutex_t lock; /* of these two */
	bool ending, called;
	pthread_cond_t changed;
	pthread_t thread;
	struct reset_watch watch;
};

/* Before it, devices that fail stay so. 0 or -errno. */
int reset_start(struct backend *backend, const struct reset_watch *watch);
/* Waits for what is under way. No device comes back from then on. */
void reset_end(struct backend *backend);

/* A device failed just now. Any thread, with any lock. */
void reset_wake(struct backend *backend);

#endif
