/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* Resets devices that failed. An error that ends a device's context leaves the device's memory in
 * the driver. A thread of the backend makes a new context, maps the chunks into the context and
 * reads every byte of them once. Chunks that cannot be read are lost (chunk->lost); all others are
 * served again. Not every driver recovers within one process: after a few attempts at growing
 * intervals the device is given up until the process ends. */
#ifndef BACKEND_RESET_H
#define BACKEND_RESET_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

struct backend;
struct device;

/* Callbacks of the reset thread; no lock is held. */
struct reset_watch {
	/* The device is back, ms after the failure; only lost chunks stay unreadable. */
	void (*reset)(void *of, struct device *device, int64_t ms);
	void (*given_up)(void *of, struct device *device);
	void *of;
};

struct resetter {
	atomic_bool running;
	pthread_mutex_t lock; /* protects ending and called */
	bool ending, called;
	pthread_cond_t changed;
	pthread_t thread;
	struct reset_watch watch;
};

/* Devices that fail before this call stay failed. 0 or -errno. */
int reset_start(struct backend *backend, const struct reset_watch *watch);
/* Waits for a reset that is under way. No device is reset from then on. */
void reset_end(struct backend *backend);

/* A device failed just now. Any thread, with any lock held. */
void reset_wake(struct backend *backend);

#endif
