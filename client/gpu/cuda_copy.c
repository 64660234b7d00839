/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* Copies by the GPU, on a stream of the program or on one of this library. */
#include <errno.h>

#include <pthread.h>

#include "client/core/error.h"
#include "client/gpu/cuda_ops.h"
#include "common/cleanup.h"

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

/* Streams that wait for no other stream, kept for later copies: to make one takes longer than to
 * copy 64 KiB. A stream is of one context. */
#define STREAMS_MAX 16

struct kept_stream {
	gm_CUcontext context;
	gm_CUstream stream;
};

static pthread_mutex_t streams_lock = PTHREAD_MUTEX_INITIALIZER;
static struct kept_stream kept_streams[STREAMS_MAX];

/* Takes a stream of this context out of the table. NULL: there is none. */
static gm_CUstream stream_take(gm_CUcontext context)
{
	scoped_lock(&streams_lock);
	for (unsigned i = 0; i < STREAMS_MAX; i++) {
		gm_CUstream stream = kept_streams[i].stream;
		if (!stream || kept_streams[i].context != context)
			continue;
		kept_streams[i].stream = NULL;
		return stream;
	}
	return NULL;
}

static bool stream_keep(gm_CUcontext context, gm_CUstream stream)
{
	scoped_lock(&streams_lock);
	for (unsigned i = 0; i < STREAMS_MAX; i++) {
		if (kept_streams[i].stream)
			continue;
		kept_streams[i] = (struct kept_stream){context, stream};
		return true;
	}
	return false;
}

/* After an error the stream may be of a context that has ended. */
int cuda_host_copy(void *to, uint64_t from, size_t bytes)
{
	const struct client_cuda *cuda;
	gm_CUcontext context = NULL;

	int rc = client_cuda_get(&cuda);
	if (rc == 0)
		rc = client_cuda_result(cuda, cuda->cuCtxGetCurrent(&context), "cuCtxGetCurrent");
	if (rc < 0)
		return rc;
	gm_CUstream stream = stream_take(context);
	if (!stream)
		rc = client_cuda_result(cuda,
					cuda->cu.cuStreamCreate(&stream, GM_CU_STREAM_NON_BLOCKING),
					"cuStreamCreate");
	if (rc < 0)
		return rc;
	rc = client_cuda_result(cuda, cuda->cu.cuMemcpyDtoHAsync(to, from, bytes, stream),
				"cuMemcpyDtoHAsync");
	if (rc == 0)
		rc = client_cuda_result(cuda, cuda->cu.cuStreamSynchronize(stream),
					"cuStreamSynchronize");
	if (rc < 0 || !stream_keep(context, stream))
		cuda->cu.cuStreamDestroy(stream);
	return rc;
}
