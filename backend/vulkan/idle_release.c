/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* A device without chunks needs no VkDevice, which takes memory of the GPU (25 MiB on an H100). */
#include <errno.h>
#include <utlist.h>

#include "backend/vulkan/copier.h"
#include "common/cleanup.h"
#include "common/log.h"

int vulkan_device_hold(struct vulkan_device *device)
{
	scoped_lock(&device->lock);
	int rc = device->handle ? 0 : vulkan_device_create(device);

	if (rc == 0)
		device->holds++;
	/* The device was made before, so -ENOTSUP is no ability that is missing. */
	return rc == -ENOTSUP ? -EIO : rc;
}

void vulkan_device_unhold(struct vulkan_device *device)
{
	scoped_lock(&device->lock);
	device->holds--;
}

/* The copier's own thread sleeps in the kernel while there are no requests, or is in a call. */
static int copier_leave(struct vulkan_copier *copier, struct vulkan_device *device)
{
	if (pthread_mutex_trylock(&copier->lock))
		return -EBUSY;
	vulkan_streams_wait_for(&copier->streams[device->base.slot]);
	vulkan_copier_leave(copier, device);
	pthread_mutex_unlock(&copier->lock);
	return 0;
}

static int copiers_leave(struct vulkan_device *device)
{
	struct vulkan_copier *copier;
	int rc = 0;

	scoped_lock(&device->vulkan->lock);
	DL_FOREACH (device->vulkan->copiers, copier)
		if (copier_leave(copier, device) < 0)
			rc = -EBUSY;
	return rc;
}

int vulkan_idle_release(struct device *base)
{
	struct vulkan_device *device = vulkan_device(base);

	scoped_lock(&device->lock);
	if (device->holds)
		return -EBUSY;
	if (!device->handle)
		return 0;
	int rc = copiers_leave(device);
	if (rc < 0)
		return rc;
	vulkan_device_destroy(device);
	log_debug("gpu%u: no memory is allocated: its Vulkan device is released", base->index);
	return 0;
}
