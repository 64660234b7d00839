/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "backend/copy.h"
#include "common/cacheline.h"
#include "common/log.h"
#include "fs/core/calibrate.h"
#include "fs/core/fs.h"

enum { NOT_STARTED, STARTED };

/* An entry for each device, on separate cache lines: the data path reads state. */
struct calibration {
	_Alignas(CACHELINE_ALIGN) atomic_int state;
	bool running; /* the thread must be joined */
	pthread_t thread;
};

static void *calibrate_thread(void *pointer)
{
	struct device *device = pointer;
	struct copier *copier;

	if (copier_open(device->backend, &copier))
		return NULL;
	if (copy_measure(copier, device) == 0) {
		struct copy_crossover found = copy_crossovers(device);
		const char *reason;

		log_info(
		    "%s: BAR through %s, used up to %llu bytes for writing and %llu for reading",
		    device->label, device_bar_name(device, &reason),
		    (unsigned long long)found.write, (unsigned long long)found.read);
	}
	copier_close(copier);
	return NULL;
}

static FS_STATE(struct calibration, calibrations_of, FS_CALIBRATIONS)

    int calibrate_open(struct fs *fs)
{
	size_t bytes = fs->backend->n_devices * sizeof(struct calibration);

	fs->states[FS_CALIBRATIONS] = cacheline_calloc(bytes);
	return fs->states[FS_CALIBRATIONS] ? 0 : -ENOMEM;
}

void calibrate_start(struct fs *fs, struct device *device)
{
	struct calibration *calibration = device ? &calibrations_of(fs)[device->slot] : NULL;
	int expected = NOT_STARTED;

	if (!calibration ||
	    atomic_load_explicit(&calibration->state, memory_order_relaxed) != NOT_STARTED ||
	    !atomic_compare_exchange_strong(&calibration->state, &expected, STARTED))
		return;
	/* Without the thread the defaults stay in force. */
	calibration->running =
	    pthread_create(&calibration->thread, NULL, calibrate_thread, device) == 0;
}

void calibrate_close(struct fs *fs)
{
	struct calibration *calibrations = calibrations_of(fs);

	for (unsigned i = 0; i < fs->backend->n_devices; i++)
		if (calibrations[i].running)
			pthread_join(calibrations[i].thread, NULL);
	free(calibrations);
}
