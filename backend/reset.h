/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* Resetting failed devices. An error ends a device's context, but leaves the memory in the driver.
 * A thread of the backend makes a new context, maps the chunks into the context and reads every
 * byte once. Unreadable chunks are lost (chunk->lost); all other chunks work again. Whether a
 * driver can go on within one process depends on the driver: after a few attempts, at growing
 * intervals, the device stays failed until the process ends. */
#ifndef BACKEND_RESET_H
#define BACKEND_RESET_H

#include <stdint.h>

#include "common/background.h"

struct backend;
struct device;

/* Callbacks of the reset thread, which holds no lock. */
struct reset_watch {
	/* The device works again, ms after the failure, except for lost chunks. */
	void (*reset)(void *context, struct device *device, int64_t ms);
	void (*given_up)(void *context, struct device *device);
	void *context;
};

struct resetter {
	struct background background;
	struct reset_watch watch;
};

/* Until this call, failed devices stay failed. 0 or -errno. */
int reset_start(struct backend *backend, const struct reset_watch *watch);
/* Waits for an attempt under way. No device is reset any more. */
void reset_end(struct backend *backend);

/* A device has failed. Any thread, with any lock. */
void reset_wake(struct backend *backend);

#endif
