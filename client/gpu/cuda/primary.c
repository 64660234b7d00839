/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* Devices by CUDA's number, and their primary contexts, which the CUDA runtime uses. */
#include <string.h>

#include "client/core/error.h"
#include "client/gpu/cuda/cuda.h"
#include "client/gpu/cuda/primary.h"

static int device_get(const struct client_cuda **cuda, int number, gm_CUdevice *device)
{
	int rc = client_cuda_get(cuda);

	if (rc == 0)
		rc = client_cuda_result(*cuda, (*cuda)->cu.cuInit(0), "cuInit");
	if (rc == 0)
		rc = client_cuda_result(*cuda, (*cuda)->cu.cuDeviceGet(device, number),
					"cuDeviceGet");
	return rc;
}

int cuda_device_uuid(int number, uint8_t uuid[16])
{
	const struct client_cuda *cuda;
	gm_CUdevice device = 0;
	gm_CUuuid found;

	int rc = device_get(&cuda, number, &device);
	if (rc == 0)
		rc = client_cuda_result(cuda, cuda->cu.cuDeviceGetUuid(&found, device),
					"cuDeviceGetUuid");
	if (rc == 0)
		memcpy(uuid, found.bytes, sizeof(found.bytes));
	return rc;
}

static int context_run(const struct client_cuda *cuda, gm_CUcontext context,
		       int (*work)(void *argument), void *argument)
{
	gm_CUcontext pushed;

	int rc = client_cuda_result(cuda, cuda->cuCtxPushCurrent(context), "cuCtxPushCurrent");
	if (rc < 0)
		return rc;
	rc = work ? work(argument)
		  : client_cuda_result(cuda, cuda->cuCtxSynchronize(), "cuCtxSynchronize");
	cuda->cuCtxPopCurrent(&pushed);
	return rc;
}

int cuda_primary_run(int number, int (*work)(void *argument), void *argument)
{
	const struct client_cuda *cuda;
	gm_CUcontext context = NULL;
	gm_CUdevice device = 0;

	int rc = device_get(&cuda, number, &device);
	if (rc == 0)
		rc = client_cuda_context_result(
		    cuda, device, cuda->cu.cuDevicePrimaryCtxRetain(&context, device));
	if (rc < 0)
		return rc;
	rc = context_run(cuda, context, work, argument);
	cuda->cu.cuDevicePrimaryCtxRelease(device);
	return rc;
}
