/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* Copies by the GPUs' copy engines. A copier has a stream per device, so that its copies on a
 * device are in order, except copies within the device, which are spread over streams; a copy
 * between devices is ordered with both. */
#include "backend/cuda/dma.h"

#include <errno.h>
#include <sched.h>
#include <stdlib.h>
#include <time.h>
#include <utlist.h>

#include "common/cacheline.h"
#include "common/cleanup.h"
#include "common/clock.h"

/* A wait polls, because waking up is slow on the reference machine: 16 threads with copies of 1 MiB
 * each (350 us, as they share the link) that blocked after 50 us reached half the rate of polling
 * threads. A wait yields the processor after YIELD_AFTER_NS, and sleeps after NAP_AFTER_NS, in
 * steps much shorter than the time waited already. */
#define YIELD_AFTER_NS 50000
#define NAP_AFTER_NS   3000000
#define NAP_NS	       50000

static int stream_create(struct dma_stream *stream, struct cuda_device *device)
{
	const struct cuda_driver *cu = &device->cuda->cu;

	/* Waiting for a staging slot may spin in cuEventSynchronize, because its copies are short.
	 */
	gm_CUevent *events[] = {&stream->event, &stream->staged[0], &stream->staged[1],
				&stream->forked};
	_Static_assert(STAGE_SLOTS == 2, "an event per slot");
	for (unsigned i = 0; i < sizeof(events) / sizeof(events[0]); i++) {
		if (*events[i])
			continue;
		int rc =
		    dma_result(device, cu->cuEventCreate(events[i], GM_CU_EVENT_DISABLE_TIMING),
			       "cuEventCreate");
		if (rc < 0)
			return rc;
	}
	int rc = dma_result(device, cu->cuStreamCreate(&stream->stream, GM_CU_STREAM_NON_BLOCKING),
			    "cuStreamCreate");
	return rc;
}

/* Orders work enqueued on second from now on after all work enqueued on first so far. */
static int stream_after(struct dma_stream *stream, gm_CUstream second, gm_CUstream first,
			gm_CUevent event)
{
	const struct cuda_driver *cu = &stream->device->cuda->cu;
	int rc = dma_result(stream->device, cu->cuEventRecord(event, first), "cuEventRecord");

	if (rc < 0)
		return rc;
	return dma_result(stream->device, cu->cuStreamWaitEvent(second, event, 0),
			  "cuStreamWaitEvent");
}

/* Orders later work after the copies that were spread. The context is current. */
static int spread_join(struct dma_stream *stream)
{
	unsigned used = stream->n_spread;
	int rc = 0;

	stream->n_spread = 0;
	for (unsigned i = 0; rc == 0 && i < SPREAD_STREAMS && i + 1 < used; i++)
		rc = stream_after(stream, stream->stream, stream->spread[i], stream->joined[i]);
	return rc;
}

static int stream_use(struct cuda_copier *copier, struct cuda_device *device,
		      struct dma_stream **stream)
{
	if (atomic_load_explicit(&device->base.failed, memory_order_relaxed))
		return -EIO;
	int rc = dma_context_use(device);
	if (rc < 0)
		return rc;
	struct dma_stream *used = &copier->streams[device->base.slot];
	if (!used->stream) {
		used->device = device;
		rc = stream_create(used, device);
		if (rc < 0)
			return rc;
	}
	*stream = used;
	return 0;
}

int dma_stream_use(struct cuda_copier *copier, struct cuda_device *device,
		   struct dma_stream **stream)
{
	int rc = stream_use(copier, device, stream);

	return rc < 0 ? rc : spread_join(*stream);
}

static void stream_destroy(struct dma_stream *stream)
{
	if (!stream->device)
		return;
	const struct cuda_driver *cu = &stream->device->cuda->cu;
	cuda_context_use(stream->device); /* a failed device's streams are destroyed as well */
	if (stream->stream)
		cu->cuStreamDestroy(stream->stream);
	for (unsigned i = 0; i < SPREAD_STREAMS; i++) {
		if (stream->spread[i])
			cu->cuStreamDestroy(stream->spread[i]);
		if (stream->joined[i])
			cu->cuEventDestroy(stream->joined[i]);
	}
	if (stream->forked)
		cu->cuEventDestroy(stream->forked);
	if (stream->event)
		cu->cuEventDestroy(stream->event);
	for (unsigned i = 0; i < STAGE_SLOTS; i++)
		if (stream->staged[i])
			cu->cuEventDestroy(stream->staged[i]);
	*stream = (struct dma_stream){0};
}

int dma_order(struct dma_stream *first, struct dma_stream *second)
{
	if (first == second || !first->busy)
		return 0;
	int rc = dma_context_use(first->device);
	if (rc == 0)
		rc = dma_result(first->device,
				first->device->cuda->cu.cuEventRecord(first->event, first->stream),
				"cuEventRecord");
	if (rc == 0)
		rc = dma_context_use(second->device);
	if (rc == 0)
		rc = dma_result(
		    second->device,
		    second->device->cuda->cu.cuStreamWaitEvent(second->stream, first->event, 0),
		    "cuStreamWaitEvent");
	if (rc == 0)
		second->busy = true;
	return rc;
}

/* copier->lock is held. The chunk keeps the address while the lock is held, and while copies
 * enqueued under it are under way (reset.c). */
static int chunk_address(struct chunk *chunk, uint64_t offset, uint64_t bytes,
			 gm_CUdeviceptr *address)
{
	if (atomic_load_explicit(&chunk->lost, memory_order_relaxed) ||
	    offset + bytes > cuda_chunk(chunk)->usable)
		return -EIO;
	*address = cuda_chunk(chunk)->address + offset;
	return 0;
}

/* copier->lock is held. The chunk's address and the stream for a copy with the host. */
static int dma_begin(struct cuda_copier *copier, struct chunk *chunk, uint64_t offset,
		     uint64_t bytes, struct dma_stream **stream, gm_CUdeviceptr *address)
{
	int rc = cuda_chunk_need(cuda_chunk(chunk));

	if (rc == 0)
		rc = dma_stream_use(copier, cuda_device(chunk->device), stream);
	return rc < 0 ? rc : chunk_address(chunk, offset, bytes, address);
}

int cuda_dma_in(struct copier *base, struct chunk *to, uint64_t offset, const void *from,
		size_t bytes)
{
	struct cuda_copier *copier = cuda_copier(base);
	struct cuda_device *device = cuda_device(to->device);
	gm_CUdeviceptr address;
	struct dma_stream *stream = NULL;

	scoped_lock(&copier->lock);
	int rc = dma_begin(copier, to, offset, bytes, &stream, &address);
	if (rc < 0)
		return rc;
	enum dma_pinned pinned = dma_pinned(copier, device, from, bytes);

	if (pinned != DMA_PINNED)
		return pinned == DMA_PIN_GONE ? -EIO
					      : dma_stage_in(copier, stream, address, from, bytes);
	stream->busy = true;
	return dma_result(device,
			  device->cuda->cu.cuMemcpyHtoDAsync(address, from, bytes, stream->stream),
			  "cuMemcpyHtoDAsync");
}

int cuda_dma_out(struct copier *base, void *to, struct chunk *from, uint64_t offset, size_t bytes)
{
	struct cuda_copier *copier = cuda_copier(base);
	struct cuda_device *device = cuda_device(from->device);
	gm_CUdeviceptr address;
	struct dma_stream *stream = NULL;

	scoped_lock(&copier->lock);
	int rc = dma_begin(copier, from, offset, bytes, &stream, &address);
	if (rc < 0)
		return rc;
	enum dma_pinned pinned = dma_pinned(copier, device, to, bytes);

	if (pinned != DMA_PINNED)
		return pinned == DMA_PIN_GONE ? -EIO
					      : dma_stage_out(copier, stream, to, address, bytes);
	stream->busy = true;
	return dma_result(device,
			  device->cuda->cu.cuMemcpyDtoHAsync(to, address, bytes, stream->stream),
			  "cuMemcpyDtoHAsync");
}

int cuda_dma_zero(struct copier *base, struct chunk *to, uint64_t offset, uint64_t bytes)
{
	struct cuda_copier *copier = cuda_copier(base);
	struct cuda_device *device = cuda_device(to->device);
	gm_CUdeviceptr address;
	struct dma_stream *stream = NULL;

	scoped_lock(&copier->lock);
	int rc = dma_begin(copier, to, offset, bytes, &stream, &address);
	if (rc < 0)
		return rc;
	stream->busy = true;
	return dma_result(device,
			  device->cuda->cu.cuMemsetD8Async(address, 0, bytes, stream->stream),
			  "cuMemsetD8Async");
}

static int copy_on(struct dma_stream *stream, gm_CUstream handle, gm_CUdeviceptr to,
		   gm_CUdeviceptr from, uint64_t bytes)
{
	struct cuda_device *device = stream->device;

	stream->busy = true;
	return dma_result(device, device->cuda->cu.cuMemcpyDtoDAsync(to, from, bytes, handle),
			  "cuMemcpyDtoDAsync");
}

static int copy_direct(struct dma_stream *stream, gm_CUdeviceptr to, gm_CUdeviceptr from,
		       uint64_t bytes)
{
	return copy_on(stream, stream->stream, to, from, bytes);
}

/* Chooses the stream for a copy within the device. */
static int spread_stream(struct dma_stream *stream, gm_CUstream *handle)
{
	const struct cuda_driver *cu = &stream->device->cuda->cu;
	unsigned n = stream->n_spread, slot = n % (SPREAD_STREAMS + 1);

	*handle = stream->stream;
	if (n == 0)
		return dma_result(stream->device, cu->cuEventRecord(stream->forked, *handle),
				  "cuEventRecord");
	if (slot == 0)
		return 0;
	gm_CUstream *spread = &stream->spread[slot - 1];
	gm_CUevent *joined = &stream->joined[slot - 1];
	int rc = 0;
	if (!*joined)
		rc = dma_result(stream->device,
				cu->cuEventCreate(joined, GM_CU_EVENT_DISABLE_TIMING),
				"cuEventCreate");
	if (rc == 0 && !*spread)
		rc = dma_result(stream->device,
				cu->cuStreamCreate(spread, GM_CU_STREAM_NON_BLOCKING),
				"cuStreamCreate");
	if (rc == 0 && n <= SPREAD_STREAMS)
		rc = dma_result(stream->device, cu->cuStreamWaitEvent(*spread, stream->forked, 0),
				"cuStreamWaitEvent");
	*handle = *spread;
	return rc;
}

static int copy_spread(struct dma_stream *stream, gm_CUdeviceptr to, gm_CUdeviceptr from,
		       uint64_t bytes)
{
	gm_CUstream handle;
	int rc = spread_stream(stream, &handle);

	if (rc < 0)
		return rc;
	stream->n_spread++;
	return copy_on(stream, handle, to, from, bytes);
}

/* A copy on stream, the stream of either device, ordered with the work enqueued on both. */
static int copy_between(struct dma_stream *stream, struct dma_stream *peer, gm_CUdeviceptr to,
			gm_CUdeviceptr from, uint64_t bytes)
{
	int rc = dma_order(peer, stream);
	if (rc == 0)
		rc = dma_context_use(stream->device);
	if (rc == 0)
		rc = copy_direct(stream, to, from, bytes);
	if (rc == 0)
		rc = dma_order(stream, peer);
	return rc;
}

enum route { ROUTE_READ, ROUTE_WRITE, ROUTE_STAGE };

/* A device can copy memory to which it has access: the target's device reads from the source, or
 * the source's device writes to the target. The target of a move is new memory, to which peers get
 * access last; so only access to the source is worth waiting for. copy.c has pushed bytes that the
 * CPU stored through the source's BAR into memory (access_end_store), so that a peer sees them. */
static enum route route_between(struct cuda_chunk *to, struct cuda_chunk *from)
{
	if (!cuda_device(to->base.device)->peer[from->base.device->slot])
		return ROUTE_STAGE;
	if (peers_granted(&from->peers))
		return ROUTE_READ;
	if (peers_granted(&to->peers))
		return ROUTE_WRITE;
	if (peers_need(from))
		return ROUTE_READ;
	return peers_need(to) ? ROUTE_WRITE : ROUTE_STAGE;
}

int cuda_dma_across(struct copier *base, struct chunk *to, uint64_t to_offset, struct chunk *from,
		    uint64_t from_offset, uint64_t bytes)
{
	struct cuda_copier *copier = cuda_copier(base);
	gm_CUdeviceptr to_address = 0, from_address = 0;

	scoped_lock(&copier->lock);
	struct dma_stream *to_stream = NULL, *from_stream = NULL;
	bool inside = to->device == from->device;
	int rc = cuda_chunk_need(cuda_chunk(to)) ?: cuda_chunk_need(cuda_chunk(from));
	if (rc == 0)
		rc = (inside ? stream_use : dma_stream_use)(copier, cuda_device(to->device),
							    &to_stream);
	if (rc == 0 && !inside)
		rc = dma_stream_use(copier, cuda_device(from->device), &from_stream);
	if (rc == 0)
		rc = chunk_address(to, to_offset, bytes, &to_address);
	if (rc == 0)
		rc = chunk_address(from, from_offset, bytes, &from_address);
	if (rc < 0)
		return rc;
	if (inside)
		return copy_spread(to_stream, to_address, from_address, bytes);
	switch (route_between(cuda_chunk(to), cuda_chunk(from))) {
	case ROUTE_READ:
		return copy_between(to_stream, from_stream, to_address, from_address, bytes);
	case ROUTE_WRITE:
		return copy_between(from_stream, to_stream, to_address, from_address, bytes);
	default:
		return dma_stage_across(copier, to_stream, to_address, from_stream, from_address,
					bytes);
	}
}

static void processor_yield(int64_t waited)
{
	if (waited > NAP_AFTER_NS)
		nanosleep(&(struct timespec){.tv_nsec = NAP_NS}, NULL);
	else if (waited > YIELD_AFTER_NS)
		sched_yield();
}

static int stream_wait(struct dma_stream *stream)
{
	const struct cuda_driver *cu = &stream->device->cuda->cu;

	int rc = dma_context_use(stream->device);
	if (rc < 0)
		return rc;
	rc = spread_join(stream);
	if (rc < 0)
		return rc;
	int64_t start = clock_ns();
	gm_CUresult result;
	while ((result = cu->cuStreamQuery(stream->stream)) == GM_CUDA_ERROR_NOT_READY)
		processor_yield(clock_ns() - start);
	return dma_result(stream->device, result, "waiting for copies");
}

int dma_wait(struct cuda_copier *copier)
{
	int error = copier->error;

	for (unsigned i = 0; i < copier->base.backend->n_devices; i++) {
		struct dma_stream *stream = &copier->streams[i];
		if (!stream->busy)
			continue;
		int rc = stream_wait(stream);
		if (error == 0)
			error = rc;
		stream->busy = false;
	}
	for (unsigned i = 0; i < STAGE_SLOTS; i++)
		copier->slots[i].user = NULL; /* all streams are complete, or failed */
	copier->error = 0;
	return error;
}

/* A copier's thread may wait for its copies much later than they end. */
static bool stream_is_busy(struct cuda_copier *copier, struct dma_stream *stream)
{
	if (!stream->busy || stream->n_spread)
		return stream->busy;
	int rc = dma_context_use(stream->device);
	gm_CUresult result =
	    rc < 0 ? GM_CUDA_SUCCESS : stream->device->cuda->cu.cuStreamQuery(stream->stream);

	if (result == GM_CUDA_ERROR_NOT_READY)
		return true;
	if (rc == 0)
		rc = dma_result(stream->device, result, "copies");
	if (copier->error == 0)
		copier->error = rc;
	stream->busy = false;
	return false;
}

static bool copier_is_busy(struct cuda_copier *copier)
{
	for (unsigned i = 0; i < copier->base.backend->n_devices; i++)
		if (stream_is_busy(copier, &copier->streams[i]))
			return true;
	for (unsigned i = 0; i < STAGE_SLOTS; i++)
		if (copier->slots[i].user)
			return true;
	return false;
}

int dma_leave(struct cuda_copier *copier, struct cuda_device *device)
{
	if (copier_is_busy(copier))
		return -EBUSY;
	dma_stage_close(copier, device);
	dma_unregister(copier, device);
	stream_destroy(&copier->streams[device->base.slot]);
	return 0;
}

/* For a copier that is always busy when cuda_idle_release looks. Until this the copier's resources
 * keep the context alive. */
static void copier_leave_requested(struct cuda_copier *copier)
{
	struct backend *backend = copier->base.backend;
	uint64_t leave = atomic_exchange(&copier->leave, 0);

	for (unsigned i = 0; i < backend->n_devices; i++)
		if (leave & 1ULL << i)
			dma_leave(copier, cuda_device(backend->devices[i]));
}

int cuda_wait(struct copier *base)
{
	struct cuda_copier *copier = cuda_copier(base);

	scoped_lock(&copier->lock);
	int rc = dma_wait(copier);
	if (atomic_load_explicit(&copier->leave, memory_order_relaxed))
		copier_leave_requested(copier);
	return rc;
}

int cuda_copier_new(struct backend *backend, struct copier **copier)
{
	struct copiers *copiers = &cuda_of(backend)->copiers;
	struct cuda_copier *new_copier = cacheline_calloc(sizeof(*new_copier));
	if (!new_copier)
		return -ENOMEM;
	new_copier->base.backend = backend;
	pthread_mutex_init(&new_copier->lock, NULL);
	scoped_lock(&copiers->lock);
	DL_APPEND(copiers->list, new_copier);
	*copier = &new_copier->base;
	return 0;
}

void cuda_copier_free(struct copier *base)
{
	struct cuda_copier *copier = cuda_copier(base);
	struct copiers *copiers = &cuda_of(base->backend)->copiers;

	cuda_wait(base);
	/* Held to the end: otherwise cuda_idle_release could miss resources that are left, and
	 * release their context. */
	pthread_mutex_lock(&copiers->lock);
	DL_DELETE(copiers->list, copier);
	dma_stage_close(copier, NULL);
	dma_unpin_all(copier);
	for (unsigned i = 0; i < base->backend->n_devices; i++)
		stream_destroy(&copier->streams[i]);
	pthread_mutex_unlock(&copiers->lock);
	pthread_mutex_destroy(&copier->lock);
	free(copier);
}
