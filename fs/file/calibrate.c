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
#include "fs/core/fs.h"
#include "fs/file/calibrate.h"
#include "fs/file/volume.h"

enum { NOT_STARTED, STARTED };

/* An entry for each volume, on separate cache lines: the data path reads state. */
struct calibration {
	_Alignas(CACHELINE_ALIGN) atomic_int state;
	bool running; /* the thread must be joined */
	pthread_t thread;
};

static void *calibrate_thread(void *pointer)
{
	struct volume *volume = pointer;
	struct copier *copier;

	if (copier_open(volume->device->backend, &copier))
		return NULL;
	if (copy_measure(copier, volume->device) == 0) {
		struct copy_crossover found = copy_crossovers(volume->device);
		const char *why;

		log_info(
		    "%s: BAR through %s, used up to %llu bytes for writing and %llu for reading",
		    volume->name, device_bar_name(volume->device, &why),
		    (unsigned long long)found.write, (unsigned long long)found.read);
	}
	copier_close(copier);
	return NULL;
}

int calibrate_open(struct fs *fs)
{
	fs->calibrations = cacheline_calloc(fs->n_volumes * sizeof(*fs->calibrations));
	return fs->calibrations ? 0 : -ENOMEM;
}

void calibrate_start(struct fs *fs, struct volume *volume)
{
	struct calibration *calibration = &fs->calibrations[volume->index];
	int expected = NOT_STARTED;

	if (!volume->device ||
	    atomic_load_explicit(&calibration->state, memory_order_relaxed) != NOT_STARTED ||
	    !atomic_compare_exchange_strong(&calibration->state, &expected, STARTED))
		return;
	/* Without the thread the defaults stay in force. */
	calibration->running =
	    pthread_create(&calibration->thread, NULL, calibrate_thread, volume) == 0;
}

void calibrate_close(struct fs *fs)
{
	for (unsigned i = 0; i < fs->n_volumes; i++)
		if (fs->calibrations[i].running)
			pthread_join(fs->calibrations[i].thread, NULL);
	free(fs->calibrations);
}
