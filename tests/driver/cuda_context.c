/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* Contexts: the primary context of each device, further contexts, and the current context of each
 * thread. A destroyed context stays allocated and marked, because threads may still have the
 * context current. */
#include <fcntl.h>
#include <stdlib.h>
#include <unistd.h>

#include "tests/driver/standin.h"

#define DEPTH_MAX 16

static __thread struct context *stack[DEPTH_MAX];
static __thread unsigned depth;

struct context *context_current(void)
{
	return depth ? stack[depth - 1] : NULL;
}

unsigned context_device(void)
{
	return context_current()->device;
}

/* Call under standin.lock. Returns NULL for an unknown handle or a destroyed context. */
static struct context *context_find(CUcontext handle)
{
	struct context *context = table_at(&standin.contexts, (uintptr_t)handle);

	return context && !atomic_load(&context->destroyed) ? context : NULL;
}

static CUcontext context_handle(const struct context *context)
{
	return context ? (CUcontext)(uintptr_t)context->id : NULL;
}

/* Locks or unlocks (F_WRLCK, F_UNLCK) the GPU for this process, as the compute mode
 * EXCLUSIVE_PROCESS does. Returns false if another process has the GPU. */
static bool gpu_lock(unsigned device, short how)
{
	static int fd = -1;
	struct flock lock = {
	    .l_type = how, .l_start = standin_physical(device), .l_len = 1, .l_whence = SEEK_SET};

	if (fd < 0)
		fd = open(settings.exclusive_path, O_RDWR | O_CREAT | O_CLOEXEC, 0666);
	if (fd < 0)
		abort();
	return fcntl(fd, F_SETLK, &lock) == 0;
}

/* By CUDA's manual, a GPU in the mode PROHIBITED gives UNKNOWN. */
static CUresult context_allowed(unsigned device)
{
	if (settings.compute_mode == COMPUTE_PROHIBITED)
		return CUDA_ERROR_UNKNOWN;
	if (settings.compute_mode == COMPUTE_EXCLUSIVE && !standin.devices[device].contexts &&
	    !gpu_lock(device, F_WRLCK))
		return CUDA_ERROR_DEVICE_UNAVAILABLE;
	return CUDA_SUCCESS;
}

/* Call under standin.lock, exclusive. */
static CUresult context_new(unsigned device, bool primary, struct context **context)
{
	struct device *owner = &standin.devices[device];
	CUresult result;

	if (settings.context_memory > device_available(device))
		return CUDA_ERROR_OUT_OF_MEMORY;
	result = context_allowed(device);
	if (result != CUDA_SUCCESS)
		return result;
	*context = calloc(1, sizeof(**context));
	if (!*context)
		return CUDA_ERROR_OUT_OF_MEMORY;
	(*context)->id = standin_new_handle();
	(*context)->device = device;
	(*context)->primary = primary;
	owner->used += settings.context_memory;
	owner->contexts++;
	table_add(&standin.contexts, (*context)->id, 1, *context);
	return CUDA_SUCCESS;
}

/* Destroys the context with its streams, events and registrations. Do not call under standin.lock:
 * the function waits for the work under way. */
static void context_destroy(struct context *context)
{
	streams_wait_context(context);

	STANDIN_LOCKED(EXCLUSIVE);
	atomic_store(&context->destroyed, true);
	streams_forget_context(context);
	host_forget_context(context);
	ipc_forget_context(context);
	standin.devices[context->device].used -= settings.context_memory;
	if (--standin.devices[context->device].contexts == 0 &&
	    settings.compute_mode == COMPUTE_EXCLUSIVE)
		gpu_lock(context->device, F_UNLCK);
	if (context->primary)
		device_renew(context->device);
}

STANDIN_API CUresult cuDevicePrimaryCtxRetain(CUcontext *handle, CUdevice device)
{
	CUresult result = CUDA_SUCCESS;
	struct device *owner;

	ENTER_ON(NEEDS_INIT, device);
	if (!handle)
		return CUDA_ERROR_INVALID_VALUE;
	if (!standin_device_valid(device))
		return CUDA_ERROR_INVALID_DEVICE;

	STANDIN_LOCKED(EXCLUSIVE);
	owner = &standin.devices[device];
	if (!owner->primary)
		result = context_new((unsigned)device, true, &owner->primary);
	if (result != CUDA_SUCCESS)
		return result;
	owner->primary_references++;
	*handle = context_handle(owner->primary);
	return CUDA_SUCCESS;
}

static CUresult primary_drop(unsigned device, struct context **last)
{
	STANDIN_LOCKED(EXCLUSIVE);
	struct device *owner = &standin.devices[device];

	if (!owner->primary_references)
		return CUDA_ERROR_INVALID_CONTEXT;
	if (--owner->primary_references == 0) {
		*last = owner->primary;
		owner->primary = NULL;
	}
	return CUDA_SUCCESS;
}

STANDIN_API CUresult cuDevicePrimaryCtxRelease_v2(CUdevice device)
{
	CUresult entered = standin_enter(__func__, NEEDS_INIT, device);
	struct context *last = NULL;
	CUresult result;

	if (standin_refused(entered))
		return entered;
	if (!standin_device_valid(device))
		return CUDA_ERROR_INVALID_DEVICE;
	result = primary_drop((unsigned)device, &last);
	if (last)
		context_destroy(last);
	return entered != CUDA_SUCCESS ? entered : result;
}

STANDIN_API CUresult cuDevicePrimaryCtxSetFlags_v2(CUdevice device, unsigned int flags)
{
	ENTER_ON(NEEDS_INIT, device);
	if (!standin_device_valid(device))
		return CUDA_ERROR_INVALID_DEVICE;
	return (flags & 7) > 4 ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
}

STANDIN_API CUresult cuDevicePrimaryCtxGetState(CUdevice device, unsigned int *flags, int *active)
{
	ENTER_ON(NEEDS_INIT, device);
	if (!flags || !active)
		return CUDA_ERROR_INVALID_VALUE;
	if (!standin_device_valid(device))
		return CUDA_ERROR_INVALID_DEVICE;

	STANDIN_LOCKED(SHARED);
	*flags = 0;
	*active = standin.devices[device].primary != NULL;
	return CUDA_SUCCESS;
}

STANDIN_API CUresult cuCtxPopCurrent_v2(CUcontext *handle)
{
	ENTER(NEEDS_INIT);
	if (!depth)
		return CUDA_ERROR_INVALID_CONTEXT;
	depth--;
	if (handle)
		*handle = context_handle(stack[depth]);
	return CUDA_SUCCESS;
}

STANDIN_API CUresult cuCtxPushCurrent_v2(CUcontext handle)
{
	struct context *context;

	ENTER(NEEDS_INIT);
	STANDIN_LOCKED(SHARED);
	context = context_find(handle);
	if (!context || depth == DEPTH_MAX)
		return CUDA_ERROR_INVALID_CONTEXT;
	stack[depth++] = context;
	return CUDA_SUCCESS;
}

/* Replaces the top of the thread's context stack; NULL pops the top. */
STANDIN_API CUresult cuCtxSetCurrent(CUcontext handle)
{
	struct context *context;
	/* The thread must be able to leave a failed or destroyed context. */
	CUresult entered = standin_enter(__func__, NEEDS_INIT, ANY_DEVICE);

	if (standin_refused(entered))
		return entered;
	if (!handle) {
		depth -= depth > 0;
		return CUDA_SUCCESS;
	}
	STANDIN_LOCKED(SHARED);
	context = context_find(handle);
	if (!context)
		return CUDA_ERROR_INVALID_CONTEXT;
	if (device_lost(context->device) != CUDA_SUCCESS)
		return device_lost(context->device);
	if (!depth)
		depth = 1;
	stack[depth - 1] = context;
	return CUDA_SUCCESS;
}

STANDIN_API CUresult cuCtxGetCurrent(CUcontext *handle)
{
	ENTER(NEEDS_INIT);
	if (!handle)
		return CUDA_ERROR_INVALID_VALUE;
	*handle = context_handle(context_current());
	return CUDA_SUCCESS;
}

STANDIN_API CUresult cuCtxGetId(CUcontext handle, unsigned long long *id)
{
	const struct context *context;

	ENTER(NEEDS_INIT);
	STANDIN_LOCKED(SHARED);
	context = context_find(handle);
	if (!id || !context)
		return CUDA_ERROR_INVALID_CONTEXT;
	*id = context->id;
	return CUDA_SUCCESS;
}

STANDIN_API CUresult cuCtxGetDevice(CUdevice *device)
{
	ENTER(NEEDS_CONTEXT);
	if (!device)
		return CUDA_ERROR_INVALID_VALUE;
	*device = (CUdevice)context_device();
	return CUDA_SUCCESS;
}

STANDIN_API CUresult cuCtxSynchronize(void)
{
	ENTER(NEEDS_CONTEXT);
	streams_wait_context(context_current());
	return device_state(context_device());
}

STANDIN_API CUresult cuCtxCreate_v2(CUcontext *handle, unsigned int flags, CUdevice device)
{
	struct context *context;
	CUresult result;

	ENTER_ON(NEEDS_INIT, device);
	(void)flags;
	if (!handle || depth == DEPTH_MAX)
		return CUDA_ERROR_INVALID_VALUE;
	if (!standin_device_valid(device))
		return CUDA_ERROR_INVALID_DEVICE;
	STANDIN_LOCKED(EXCLUSIVE);
	result = context_new((unsigned)device, false, &context);
	if (result != CUDA_SUCCESS)
		return result;
	stack[depth++] = context;
	*handle = context_handle(context);
	return CUDA_SUCCESS;
}

STANDIN_API CUresult cuCtxCreate_v4(CUcontext *handle, CUctxCreateParams *parameters,
				    unsigned int flags, CUdevice device)
{
	if (parameters)
		return CUDA_ERROR_NOT_SUPPORTED;
	return cuCtxCreate_v2(handle, flags, device);
}

static struct context *context_take(CUcontext handle)
{
	STANDIN_LOCKED(SHARED);
	struct context *context = context_find(handle);

	return context && !context->primary ? context : NULL;
}

STANDIN_API CUresult cuCtxDestroy_v2(CUcontext handle)
{
	struct context *context;

	ENTER(NEEDS_INIT);
	context = context_take(handle);
	if (!context)
		return CUDA_ERROR_INVALID_CONTEXT;
	context_destroy(context);
	if (context_current() == context)
		depth--;
	return CUDA_SUCCESS;
}
