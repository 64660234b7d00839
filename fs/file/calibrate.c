/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
#include <pthread.h>
#include <string.h>

#include "backend/copy.h"
#include "common/log.h"
#include "fs/core/fs.h"
#include "fs/file/calibrate.h"

enum { NOT_STARTED, STARTED };

static void *measure(void *pointer)
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

void calibrate_start(struct fs *fs, struct volume *volume)
{
	struct calibration *calibration = &fs->calibrations[volume->index];
	int expected = NOT_STARTED;

	if (!volume->device ||
	    atomic_load_explicit(&calibration->state, memory_order_relaxed) != NOT_STARTED ||
	    !atomic_compare_exchange_strong(&calibration->state, &expected, STARTED))
		return;
	/* Without it the defaults stay in force. */
	calibration->running = pthread_create(&calibration->thread, NULL, measure, volume) == 0;
}

void calibrate_end(struct fs *fs)
{
	for (unsigned i = 0; i < fs->n_volumes; i++)
		if (fs->calibrations[i].running)
			pthread_join(fs->calibrations[i].thread, NULL);
}
