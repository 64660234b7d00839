/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* After an error that ended a device's context: makes another context, and maps the chunks again.
 * Physical memory and addresses belong to the process, not to the context. But no manual says
 * whether the access of a dead context stays, so each chunk is mapped again and read from end to
 * end, which takes 70 ms for 141 GB (H200). Manuals promise that the process can go on after few
 * such errors only; the attempt is made after every error. */
#include <errno.h>

#include "backend/cuda/dma.h"
#include "common/cleanup.h"

#include <utlist.h>

/* Chunks are read by copying them to a scratch buffer of this size. */
#define SCRATCH_BYTES (32ULL << 20)
/* A device with more bad chunks is not used again. */
#define LOST_MAX 16

struct scratch {
	gm_CUdeviceptr device; /* 0: host is used instead */
	void *host;
	uint64_t bytes;
	struct chunk *chunk;
	gm_CUstream stream;
};

static void scratch_close(struct cuda_device *device, struct scratch *scratch)
{
	const struct cuda_driver *cu = &device->cuda->cu;

	if (scratch->stream)
		cu->cuStreamDestroy(scratch->stream);
	if (scratch->host)
		cu->cuMemFreeHost(scratch->host);
	if (scratch->chunk)
		cuda_chunk_free(scratch->chunk);
}

static int scratch_memory(struct cuda_device *device, struct scratch *scratch)
{
	int rc = cuda_chunk_new(&device->base, PLACE_GPU, SCRATCH_BYTES, &scratch->chunk);

	scratch->bytes = SCRATCH_BYTES;
	if (rc == 0) {
		scratch->device = cuda_chunk(scratch->chunk)->address;
		return 0;
	}
	if (rc != -ENOSPC)
		return rc;
	/* The device is full. */
	scratch->bytes = CHUNK_ALIGN;
	return dma_result(device, device->cuda->cu.cuMemHostAlloc(&scratch->host, CHUNK_ALIGN, 0),
			  "cuMemHostAlloc");
}

static int scratch_test(struct cuda_device *device, const struct scratch *scratch)
{
	return dma_result(device, device->cuda->cu.cuStreamSynchronize(scratch->stream),
			  "cuStreamSynchronize");
}

/* First tests memory of its own: if the test fails, files are not to blame. */
static int scratch_open(struct cuda_device *device, struct scratch *scratch)
{
	const struct cuda_driver *cu = &device->cuda->cu;

	*scratch = (struct scratch){0};
	int rc = dma_context_use(device);
	if (rc == 0)
		rc = dma_result(device,
				cu->cuStreamCreate(&scratch->stream, GM_CU_STREAM_NON_BLOCKING),
				"cuStreamCreate");
	if (rc == 0)
		rc = scratch_memory(device, scratch);
	if (rc == 0 && scratch->device)
		rc = dma_result(
		    device,
		    cu->cuMemsetD8Async(scratch->device, 0, scratch->bytes, scratch->stream),
		    "cuMemsetD8Async");
	if (rc == 0)
		rc = scratch_test(device, scratch);
	if (rc < 0)
		scratch_close(device, scratch);
	return rc;
}

static int read_piece(struct cuda_device *device, const struct scratch *scratch,
		      gm_CUdeviceptr from, uint64_t bytes)
{
	const struct cuda_driver *cu = &device->cuda->cu;

	if (scratch->device)
		return dma_result(
		    device, cu->cuMemcpyDtoDAsync(scratch->device, from, bytes, scratch->stream),
		    "cuMemcpyDtoDAsync");
	return dma_result(device,
			  cu->cuMemcpyDtoHAsync(scratch->host, from, bytes, scratch->stream),
			  "cuMemcpyDtoHAsync");
}

static int read_all(struct cuda_device *device, const struct scratch *scratch,
		    const struct cuda_chunk *chunk)
{
	uint64_t bytes = chunk->base.bytes;
	int rc = 0;

	for (uint64_t at = 0; rc == 0 && at < bytes; at += scratch->bytes) {
		uint64_t remaining = bytes - at;

		rc = read_piece(device, scratch, chunk->address + at,
				remaining < scratch->bytes ? remaining : scratch->bytes);
	}
	int waited = scratch_test(device, scratch);

	return rc < 0 ? rc : waited;
}

static void chunk_lose(struct cuda_chunk *chunk)
{
	atomic_store(&chunk->base.lost, true);
	peers_remove(chunk);
	cuda_chunk_unmap(chunk);
	peers_drop(chunk);
}

/* 0; or an error, with the chunk just found bad in *lost, or NULL: a later attempt may work. */
static int chunk_map_and_read(struct cuda_device *device, const struct scratch *scratch,
			      struct cuda_chunk **lost)
{
	struct chunk *base;
	int rc = 0;

	scoped_lock(&device->import_lock);
	DL_FOREACH (device->base.health.chunks, base) {
		if (!cuda_chunk(base)->handle)
			cuda_chunk(base)->address = 0; /* opened in the old context */
		if (atomic_load(&base->lost) || !cuda_chunk(base)->handle)
			continue;
		rc = cuda_chunk_remap(cuda_chunk(base));
		if (rc == -ENOMEM || rc == -ENOSPC)
			return rc;
		if (rc == 0)
			rc = read_all(device, scratch, cuda_chunk(base));
		if (rc < 0) {
			*lost = cuda_chunk(base);
			return rc;
		}
	}
	return 0;
}

static void peers_leave(struct cuda_device *device)
{
	struct chunk *chunk;

	DL_FOREACH (device->base.health.chunks, chunk) {
		peers_remove(cuda_chunk(chunk));
		peers_drop(cuda_chunk(chunk));
	}
}

/* Grants the new context the old context's access to the peers' chunks. */
static void peers_renew_all(struct cuda_device *device)
{
	struct backend *backend = &device->cuda->base;
	struct chunk *chunk;

	for (unsigned i = 0; i < backend->n_devices; i++) {
		struct device *peer = backend->devices[i];

		if (peer == &device->base || !device->peer[i] || atomic_load(&peer->failed))
			continue;
		scoped_lock(&cuda_device(peer)->import_lock);
		scoped_lock(&peer->health.lock);
		DL_FOREACH (peer->health.chunks, chunk) {
			peers_renew(cuda_chunk(chunk));
		}
	}
}

static int device_restore(struct cuda_device *device, struct cuda_chunk **lost)
{
	struct scratch scratch;

	peers_leave(device);
	{
		scoped_lock(&device->lock);
		cuda_context_close(device);
	}
	int rc = scratch_open(device, &scratch);
	if (rc < 0)
		return rc;
	rc = chunk_map_and_read(device, &scratch, lost);
	scratch_close(device, &scratch);
	return rc;
}

static int device_leave(struct cuda_device *device)
{
	int rc = cuda_copiers_leave(device);

	if (rc < 0)
		return rc;
	dma_unregister_for_all(device);
	scoped_lock(&device->bar.lock);
	cuda_bar_idle_release(device);
	return 0;
}

int cuda_reset(struct device *base)
{
	struct cuda_device *device = cuda_device(base);
	int rc = device_leave(device);

	for (unsigned losses = 0; rc != -EBUSY && losses <= LOST_MAX; losses++) {
		struct cuda_chunk *lost = NULL;

		rc = device_restore(device, &lost);
		if (rc == 0)
			peers_renew_all(device);
		if (!lost)
			break;
		chunk_lose(lost);
	}
	return rc;
}
