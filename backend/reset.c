/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
#include "backend/reset.h"

#include <errno.h>
#include <string.h>
#include <utlist.h>

#include "backend/backend.h"
#include "backend/bar_cache.h"
#include "common/background.h"
#include "common/clock.h"
#include "common/log.h"

/* The first attempt is made at once, each further attempt after twice the wait. */
#define ATTEMPTS_MAX 5
#define DELAY_MS     50
/* Copies under way fail soon, and end. */
#define BUSY_MS	    5
#define BUSY_MAX_MS 10000
/* A device that fails again within this time counts as not reset. */
#define STEADY_MS 60000

#define NEVER INT64_MAX

/* State of the reset thread, by the device's slot. */
struct failing {
	int64_t failed_at; /* 0: the device works */
	int64_t due, back_at;
	unsigned n_attempts;
};

/* Only copiers still use the device; their copies are refused, and they leave the device. */
static int device_reset(struct device *device)
{
	struct health *health = &device->health;
	struct chunk *chunk;

	pthread_rwlock_wrlock(&health->life);
	DL_FOREACH (health->chunks, chunk) {
		bar_drop_alone(chunk);
	}
	int rc = device->backend->ops->reset(device);
	if (rc == 0) {
		health_free_dropped(device);
		atomic_fetch_add(&health->resets, 1);
		atomic_store(&device->failed, false);
	}
	pthread_rwlock_unlock(&health->life);
	return rc;
}

static void device_give_up(struct resetter *resetter, struct device *device,
			   struct failing *failing)
{
	failing->due = NEVER;
	atomic_store(&device->health.given_up, true);
	log_error("%s: %u attempts to reset it have failed: this process does not try "
		  "again",
		  device->label, failing->n_attempts);
	if (resetter->watch.given_up)
		resetter->watch.given_up(resetter->watch.context, device);
}

static void device_try_reset(struct resetter *resetter, struct device *device,
			     struct failing *failing)
{
	int rc = device_reset(device);
	int64_t now = clock_ms();

	if (rc == -EBUSY && now - failing->due < BUSY_MAX_MS) {
		failing->due = now + BUSY_MS;
		return;
	}
	failing->n_attempts++;
	if (rc == 0) {
		int64_t ms = now - failing->failed_at;

		failing->failed_at = 0;
		failing->back_at = now;
		if (resetter->watch.reset)
			resetter->watch.reset(resetter->watch.context, device, ms);
		return;
	}
	failing->due =
	    failing->n_attempts < ATTEMPTS_MAX ? now + (DELAY_MS << failing->n_attempts) : now;
	log_debug("%s: attempt %u to reset it: %s", device->label, failing->n_attempts,
		  strerror(-rc));
}

static void failing_begin(struct failing *failing)
{
	int64_t now = clock_ms();

	failing->failed_at = now;
	if (now - failing->back_at >= STEADY_MS)
		failing->n_attempts = 0;
	failing->due = failing->n_attempts ? now + (DELAY_MS << failing->n_attempts) : now;
}

/* Returns when to look at the device again. */
static int64_t device_check(struct resetter *resetter, struct device *device,
			    struct failing *failing)
{
	if (!atomic_load(&device->failed) || atomic_load(&device->health.given_up))
		return NEVER;
	if (!failing->failed_at)
		failing_begin(failing);
	if (failing->n_attempts >= ATTEMPTS_MAX)
		device_give_up(resetter, device, failing);
	else if (failing->due <= clock_ms())
		device_try_reset(resetter, device, failing);
	return failing->failed_at ? failing->due : NEVER;
}

static int ms_until(int64_t due)
{
	int64_t now = clock_ms();

	return due == NEVER ? -1 : due > now ? (int)(due - now) : 0;
}

static void reset_work(struct background *background)
{
	struct backend *backend = background->context;
	struct failing patients[BACKEND_DEVICES_MAX] = {0};
	int64_t due;

	do {
		due = NEVER;
		for (unsigned i = 0; i < backend->n_devices; i++) {
			int64_t next =
			    device_check(&backend->resetter, backend->devices[i], &patients[i]);

			due = next < due ? next : due;
		}
	} while (background_wait(background, ms_until(due)));
}

void reset_wake(struct backend *backend)
{
	background_wake(&backend->resetter.background);
}

int reset_start(struct backend *backend, const struct reset_watch *watch)
{
	struct resetter *resetter = &backend->resetter;

	if (!backend->ops->reset)
		return 0;
	resetter->watch = *watch;
	int rc = background_start(&resetter->background, reset_work, backend);

	if (rc < 0)
		log_warn("no thread to reset failed GPUs: %s", strerror(-rc));
	return rc;
}

void reset_end(struct backend *backend)
{
	background_stop(&backend->resetter.background);
}
