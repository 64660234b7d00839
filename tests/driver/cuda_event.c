/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* Events: the sequence number of the last recording, and of the last recording that the stream
 * reached. */
#include <stdlib.h>

#include "tests/driver/standin.h"

struct event {
	uint64_t id;
	const struct context *context;
	atomic_uint references;
	pthread_mutex_t lock;
	pthread_cond_t changed;
	uint64_t recorded, done; /* under lock */
};

void event_put(struct event *event)
{
	if (atomic_fetch_sub_explicit(&event->references, 1, memory_order_acq_rel) != 1)
		return;
	pthread_mutex_destroy(&event->lock);
	pthread_cond_destroy(&event->changed);
	free(event);
}

CUresult event_get(CUevent handle, struct event **event)
{
	STANDIN_LOCKED(SHARED);
	*event = table_at(&standin.events, (uintptr_t)handle);
	if (!*event)
		return CUDA_ERROR_INVALID_HANDLE;
	atomic_fetch_add_explicit(&(*event)->references, 1, memory_order_relaxed);
	return CUDA_SUCCESS;
}

void event_done(struct event *event, uint64_t sequence)
{
	pthread_mutex_lock(&event->lock);
	if (event->done < sequence)
		event->done = sequence;
	pthread_cond_broadcast(&event->changed);
	pthread_mutex_unlock(&event->lock);
}

void event_wait(struct event *event, uint64_t sequence)
{
	pthread_mutex_lock(&event->lock);
	while (event->done < sequence)
		pthread_cond_wait(&event->changed, &event->lock);
	pthread_mutex_unlock(&event->lock);
}

static uint64_t recorded(struct event *event)
{
	uint64_t sequence;

	pthread_mutex_lock(&event->lock);
	sequence = event->recorded;
	pthread_mutex_unlock(&event->lock);
	return sequence;
}

STANDIN_API CUresult cuEventCreate(CUevent *handle, unsigned int flags)
{
	struct event *event;

	ENTER(NEEDS_CONTEXT);
	if (!handle || flags > 7 ||
	    ((flags & CU_EVENT_INTERPROCESS) && !(flags & CU_EVENT_DISABLE_TIMING)))
		return CUDA_ERROR_INVALID_VALUE;
	event = calloc(1, sizeof(*event));
	if (!event)
		return CUDA_ERROR_OUT_OF_MEMORY;
	event->context = context_current();
	atomic_init(&event->references, 1);
	pthread_mutex_init(&event->lock, NULL);
	pthread_cond_init(&event->changed, NULL);

	STANDIN_LOCKED(EXCLUSIVE);
	event->id = standin_new_handle();
	table_add(&standin.events, event->id, 1, event);
	*handle = (CUevent)(uintptr_t)event->id;
	return CUDA_SUCCESS;
}

STANDIN_API CUresult cuEventDestroy_v2(CUevent handle)
{
	CUresult entered = standin_enter(__func__, NEEDS_INIT, ANY_DEVICE);
	struct event *event;

	if (standin_refused(entered))
		return entered;
	STANDIN_LOCKED(EXCLUSIVE);
	event = table_at(&standin.events, (uintptr_t)handle);
	if (!event)
		return CUDA_ERROR_INVALID_HANDLE;
	if (entered == CUDA_SUCCESS)
		entered = device_state(event->context->device);
	table_remove(&standin.events, event->id);
	event_put(event);
	return entered;
}

/* Takes over a reference to event. */
static CUresult submit(struct stream *stream, enum op_kind kind, struct event *event,
		       uint64_t sequence)
{
	struct op op = {.kind = kind, .event = event, .sequence = sequence};
	CUresult result = stream_submit(stream, &op);

	if (result != CUDA_SUCCESS)
		event_put(event);
	return result;
}

STANDIN_API CUresult cuEventRecord(CUevent handle, CUstream on)
{
	struct stream *stream;
	struct event *event;
	uint64_t sequence;
	CUresult result;

	ENTER(NEEDS_CONTEXT);
	result = event_get(handle, &event);
	if (result != CUDA_SUCCESS)
		return result;
	result = stream_get(on, &stream);
	if (result != CUDA_SUCCESS) {
		event_put(event);
		return result;
	}
	if (stream_context(stream) != event->context) {
		event_put(event);
		stream_put(stream);
		return CUDA_ERROR_INVALID_HANDLE;
	}
	pthread_mutex_lock(&event->lock);
	sequence = ++event->recorded;
	pthread_mutex_unlock(&event->lock);
	result = submit(stream, OP_RECORD, event, sequence);
	stream_put(stream);
	return result;
}

STANDIN_API CUresult cuStreamWaitEvent(CUstream on, CUevent handle, unsigned int flags)
{
	struct stream *stream;
	struct event *event;
	CUresult result;

	ENTER(NEEDS_CONTEXT);
	if (flags > 1)
		return CUDA_ERROR_INVALID_VALUE;
	result = event_get(handle, &event);
	if (result != CUDA_SUCCESS)
		return result;
	result = stream_get(on, &stream);
	if (result != CUDA_SUCCESS) {
		event_put(event);
		return result;
	}
	result = submit(stream, OP_WAIT, event, recorded(event));
	stream_put(stream);
	return result;
}

STANDIN_API CUresult cuEventQuery(CUevent handle)
{
	struct event *event;
	CUresult result;

	ENTER(NEEDS_CONTEXT);
	result = event_get(handle, &event);
	if (result != CUDA_SUCCESS)
		return result;
	pthread_mutex_lock(&event->lock);
	result = event->done < event->recorded ? CUDA_ERROR_NOT_READY
					       : device_state(event->context->device);
	pthread_mutex_unlock(&event->lock);
	event_put(event);
	return result;
}

STANDIN_API CUresult cuEventSynchronize(CUevent handle)
{
	struct event *event;
	CUresult result;

	ENTER(NEEDS_CONTEXT);
	result = event_get(handle, &event);
	if (result != CUDA_SUCCESS)
		return result;
	event_wait(event, recorded(event));
	result = device_state(event->context->device);
	event_put(event);
	return result;
}
