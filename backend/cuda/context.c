/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
#include <errno.h>
#include <stdio.h>

#include "backend/cuda/provider.h"
#include "common/cleanup.h"
#include "common/log.h"

int cuda_result(struct cuda_device *device, gm_CUresult result, const char *call)
{
	if (result == GM_CUDA_SUCCESS)
		return 0;
	struct driver_error error = driver_error(result);
	if (error.error == -ENOSPC)
		return error.error;
	char name[DRIVER_ERROR_NAME_MAX];
	driver_error_name(&device->cuda->cu, result, name);
	if (error.fatal) {
		char cause[160];
		snprintf(cause, sizeof(cause), "%s: %s", call, name);
		device_fail(&device->base, cause);
	} else if (!atomic_load(&device->base.failed)) {
		log_error("%s: %s: %s", device->base.label, call, name);
	}
	return error.error;
}

/* Under device->lock. Waits inside the driver are to block: the default is to spin, at the cost of
 * a core per worker. dma.c polls for itself. */
static int context_retain(struct cuda_device *device)
{
	const struct cuda_driver *cu = &device->cuda->cu;

	cu->cuCtxSetCurrent(NULL); /* a failed device's context would fail these calls */
	gm_CUcontext context;
	gm_CUresult result =
	    cu->cuDevicePrimaryCtxSetFlags(device->handle, GM_CU_CTX_SCHED_BLOCKING_SYNC);
	if (result != GM_CUDA_SUCCESS)
		log_debug("%s: the context spins while it waits (flags refused: %d)",
			  device->base.label, (int)result);
	result = cu->cuDevicePrimaryCtxRetain(&context, device->handle);
	if (cuda_compute_mode_refuses(device, result))
		return -EBUSY;
	int rc = cuda_result(device, result, "cuDevicePrimaryCtxRetain");
	if (rc < 0)
		return rc;
	atomic_store_explicit(&device->context, context, memory_order_release);
	return 0;
}

void cuda_hold(struct cuda_device *device)
{
	scoped_lock(&device->lock);
	device->holds++;
}

void cuda_drop(struct cuda_device *device)
{
	scoped_lock(&device->lock);
	device->holds--;
}

int cuda_context_use(struct cuda_device *device)
{
	const struct cuda_driver *cu = &device->cuda->cu;
	gm_CUcontext context = atomic_load_explicit(&device->context, memory_order_acquire);
	if (!context) {
		scoped_lock(&device->lock);
		context = atomic_load(&device->context);
		int rc = context ? 0 : context_retain(device);
		if (rc < 0)
			return rc;
		context = atomic_load(&device->context);
	}
	gm_CUresult result = cu->cuCtxSetCurrent(context);
	if (result != GM_CUDA_SUCCESS) {
		/* Any call may return the error of the context that was current before. */
		cu->cuCtxSetCurrent(NULL);
		result = cu->cuCtxSetCurrent(context);
	}
	return cuda_result(device, result, "cuCtxSetCurrent");
}

void cuda_context_for_giving(struct cuda_device *owner)
{
	struct cuda *cuda = owner->cuda;
	gm_CUcontext own_context = atomic_load(&owner->context);

	cuda->cu.cuCtxSetCurrent(NULL); /* a failed device's context would fail these calls */
	if (own_context && cuda->cu.cuCtxSetCurrent(own_context) == GM_CUDA_SUCCESS &&
	    !atomic_load(&owner->base.failed))
		return;
	for (unsigned i = 0; i < cuda->base.n_devices; i++) {
		struct cuda_device *device = cuda_device(cuda->base.devices[i]);
		/* Only tried, because the caller may hold the owner's lock; a device is in use
		 * while its lock is held. */
		if (pthread_mutex_trylock(&device->lock))
			continue;
		gm_CUcontext context = atomic_load(&device->context);
		bool works = context && cuda->cu.cuCtxSetCurrent(context) == GM_CUDA_SUCCESS;
		pthread_mutex_unlock(&device->lock);
		if (works)
			return;
	}
}

void cuda_context_close(struct cuda_device *device)
{
	const struct cuda_driver *cu = &device->cuda->cu;

	if (!atomic_load(&device->context))
		return;
	atomic_store(&device->context, NULL);
	cu->cuCtxSetCurrent(NULL);
	cu->cuDevicePrimaryCtxRelease(device->handle);
}

static int context_free_memory(struct cuda_device *device, uint64_t *bytes)
{
	size_t in_driver = 0, total;

	cuda_hold(device);
	int rc = cuda_context_use(device);
	if (rc == 0)
		rc = cuda_result(device, device->cuda->cu.cuMemGetInfo(&in_driver, &total),
				 "cuMemGetInfo");
	cuda_drop(device);
	*bytes = in_driver;
	return rc;
}

int cuda_memory(struct device *base, struct device_memory *memory)
{
	struct cuda_device *device = cuda_device(base);
	uint64_t free_bytes;

	if (nvml_free_memory(device, &free_bytes) < 0) {
		int rc = context_free_memory(device, &free_bytes);
		if (rc < 0)
			return rc;
	}
	/* NVML's total includes memory that the driver keeps for itself. */
	memory->total = base->total;
	memory->free = free_bytes < base->total ? free_bytes : base->total;
	return 0;
}
