/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
#include "client/gpu/cuda/cuda.h"

#include <errno.h>
#include <pthread.h>
#include <string.h>

#include "client/core/error.h"
#include "client/core/process.h"
#include "common/cleanup.h"

#define REASON_MAX 160

#define ROW(need, field, symbol, arguments) {#symbol, offsetof(struct client_cuda, field), need},
static const struct driver_symbol cuda_symbols[] = {CUDA_CLIENT_FUNCTIONS(ROW)};

static pthread_mutex_t cuda_lock = PTHREAD_MUTEX_INITIALIZER;
static struct client_cuda loaded_cuda; /* written once, under cuda_lock */

int client_cuda_get(const struct client_cuda **cuda)
{
	char reason[REASON_MAX];
	void *library;

	scoped_lock(&cuda_lock);
	if (!loaded_cuda.cu.library) {
		struct client_cuda new_cuda = {0};
		if (driver_load_cuda(&new_cuda.cu, reason, sizeof(reason)) < 0 ||
		    driver_load("libcuda.so.1", cuda_symbols,
				sizeof(cuda_symbols) / sizeof(cuda_symbols[0]), &new_cuda, reason,
				sizeof(reason), &library) < 0)
			return client_fail(ENODEV, "no CUDA driver: %s", reason);
		loaded_cuda = new_cuda;
		client_fork_go_first();
	}
	*cuda = &loaded_cuda;
	return 0;
}

bool client_cuda_running(void)
{
	const struct client_cuda *cuda;
	int count;

	return driver_is_loaded("libcuda.so.1") && client_cuda_get(&cuda) == 0 &&
	       cuda->cu.cuDeviceGetCount(&count) == GM_CUDA_SUCCESS;
}

int client_cuda_result(const struct client_cuda *cuda, gm_CUresult result, const char *call)
{
	char name[DRIVER_ERROR_NAME_MAX];

	if (result == GM_CUDA_SUCCESS)
		return 0;
	return client_fail(-driver_error(result).error, "%s: %s", call,
			   driver_error_name(&cuda->cu, result, name));
}

int client_cuda_context_result(const struct client_cuda *cuda, gm_CUdevice device,
			       gm_CUresult result)
{
	int mode = GM_CU_COMPUTEMODE_DEFAULT;

	if (result != GM_CUDA_SUCCESS)
		cuda->cu.cuDeviceGetAttribute(&mode, GM_CU_DEVICE_ATTRIBUTE_COMPUTE_MODE, device);
	if (mode == GM_CU_COMPUTEMODE_EXCLUSIVE_PROCESS &&
	    result == GM_CUDA_ERROR_DEVICE_UNAVAILABLE)
		return client_fail(EBUSY, "another process, such as gpumemfs, has the GPU alone: "
					  "its compute mode is EXCLUSIVE_PROCESS (change it: "
					  "nvidia-smi -c DEFAULT)");
	if (mode == GM_CU_COMPUTEMODE_PROHIBITED)
		return client_fail(EPERM, "no process may use the GPU: its compute mode is "
					  "PROHIBITED (change it: nvidia-smi -c DEFAULT)");
	return client_cuda_result(cuda, result, "cuDevicePrimaryCtxRetain");
}

int client_cuda_gave_back(const struct client_cuda *cuda, gm_CUresult result, const char *call)
{
	if (result == GM_CUDA_ERROR_DEINITIALIZED)
		return 0;
	return client_cuda_result(cuda, result, call);
}

int client_cuda_current(const struct client_cuda *cuda, gm_CUdevice *device)
{
	gm_CUcontext context = NULL;
	gm_CUresult result = cuda->cuCtxGetCurrent(&context);

	if (result == GM_CUDA_ERROR_NOT_INITIALIZED)
		return client_fail(EINVAL, "this thread has no current CUDA context: CUDA is not "
					   "initialised in this process (after fork it cannot be)");
	if (result != GM_CUDA_SUCCESS)
		return client_cuda_result(cuda, result, "cuCtxGetCurrent");
	if (!context)
		return client_fail(EINVAL, "this thread has no current CUDA context: make one "
					   "current first (cuCtxSetCurrent, cudaSetDevice)");
	return client_cuda_result(cuda, cuda->cuCtxGetDevice(device), "cuCtxGetDevice");
}

int client_cuda_find(const struct client_cuda *cuda, const uint8_t uuid[16], gm_CUdevice *device)
{
	gm_CUdevice found;
	gm_CUuuid found_uuid;
	int count = 0;

	gm_CUresult result = cuda->cu.cuDeviceGetCount(&count);
	if (result != GM_CUDA_SUCCESS)
		return client_cuda_result(cuda, result, "cuDeviceGetCount");
	for (int i = 0; i < count; i++) {
		if (cuda->cu.cuDeviceGet(&found, i) != GM_CUDA_SUCCESS ||
		    cuda->cu.cuDeviceGetUuid(&found_uuid, found) != GM_CUDA_SUCCESS ||
		    memcmp(found_uuid.bytes, uuid, sizeof(found_uuid.bytes)) != 0)
			continue;
		*device = found;
		return 0;
	}
	return client_fail(ENXIO,
			   "the file's GPU or MIG instance (UUID %02x%02x%02x%02x-...) is not "
			   "visible to this process: check CUDA_VISIBLE_DEVICES; a process of "
			   "another MIG instance can only read and write the file",
			   uuid[0], uuid[1], uuid[2], uuid[3]);
}
