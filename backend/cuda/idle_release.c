/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* Releases the resources of an idle device: first all resources of copiers in its context, then the
 * context. */
#include <errno.h>
#include <utlist.h>

#include "backend/cuda/dma.h"
#include "common/cleanup.h"
#include "common/log.h"

/* Called by another thread than the copier's own, which sleeps in the kernel while there are no
 * requests. */
static int copier_leave(struct cuda_copier *copier, struct cuda_device *device)
{
	int rc = -EBUSY;

	if (pthread_mutex_trylock(&copier->lock) == 0) {
		rc = dma_leave(copier, device);
		pthread_mutex_unlock(&copier->lock);
	}
	if (rc < 0)
		atomic_fetch_or(&copier->leave, 1ULL << device->base.slot);
	return rc;
}

int cuda_copiers_leave(struct cuda_device *device)
{
	struct copiers *copiers = &device->cuda->copiers;
	struct cuda_copier *copier;
	int rc = 0;

	scoped_lock(&copiers->lock);
	DL_FOREACH (copiers->list, copier)
		if (copier_leave(copier, device) < 0)
			rc = -EBUSY;
	return rc;
}

/* bar.lock is held. The device's own lock keeps out threads that would begin to use the device. */
static int device_release(struct cuda_device *device)
{
	scoped_lock(&device->lock);
	if (device->holds)
		return -EBUSY;
	if (!atomic_load(&device->context))
		return 0;
	int rc = cuda_copiers_leave(device);
	if (rc < 0)
		return rc;
	dma_unregister_for_all(device);
	cuda_bar_idle_release(device);
	cuda_range_close(device);
	cuda_context_close(device);
	log_debug("%s: no memory is allocated: its context is released", device->base.label);
	return 0;
}

int cuda_idle_release(struct device *base)
{
	struct cuda_device *device = cuda_device(base);

	/* The thread that holds the lock is about to map a chunk. */
	if (pthread_mutex_trylock(&device->bar.lock))
		return -EBUSY;
	int rc = device_release(device);
	pthread_mutex_unlock(&device->bar.lock);
	return rc;
}
