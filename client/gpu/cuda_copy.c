/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* Copies by the GPU on a stream of the program. */
#include <errno.h>

#include "client/core/error.h"
#include "client/gpu/cuda_ops.h"

/* The driver copies so many bytes out of pageable memory without a wait for earlier work of the
 * stream. That work may wait for the calling thread. */
#define UNWAITED_MAX (64UL << 10)

/* A wait would invalidate the graph that a stream records, and the graph must contain the program's
 * own copy. */
static int stream_is_usable(const struct client_cuda *cuda, gm_CUstream stream, size_t bytes)
{
	gm_CUstreamCaptureStatus capturing = GM_CU_STREAM_CAPTURE_STATUS_NONE;
	int rc = 0;

	if (cuda->cuStreamIsCapturing)
		rc = client_cuda_result(cuda, cuda->cuStreamIsCapturing(stream, &capturing),
					"cuStreamIsCapturing");
	if (rc == 0 && capturing != GM_CU_STREAM_CAPTURE_STATUS_NONE)
		return client_fail(EBUSY, "the stream records a graph");
	if (rc == 0 && bytes <= UNWAITED_MAX && cuda->cu.cuStreamQuery(stream) != GM_CUDA_SUCCESS)
		return client_fail(EBUSY, "the stream has work");
	return rc;
}

int cuda_device_copy(uint64_t to, uint64_t from, size_t bytes, void *stream)
{
	const struct client_cuda *cuda;

	int rc = client_cuda_get(&cuda);
	if (rc == 0)
		rc = stream_is_usable(cuda, stream, bytes);
	if (rc == 0)
		rc = client_cuda_result(cuda, cuda->cu.cuMemcpyDtoDAsync(to, from, bytes, stream),
					"cuMemcpyDtoDAsync");
	if (rc < 0)
		return rc;
	return client_cuda_result(cuda, cuda->cu.cuStreamSynchronize(stream),
				  "cuStreamSynchronize");
}
