/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* Streams. Each stream has a queue of operations and a thread that runs the operations, so that
 * tests find a program that forgets to wait. */
#include <stdlib.h>
#include <unistd.h>

#include "tests/driver/standin.h"

struct stream {
	uint64_t id;
	struct context *context;
	bool blocking; /* ordered with the context's default stream */
	atomic_uint references;
	pthread_mutex_t lock;
	pthread_cond_t changed;
	/* The next three fields are under lock. */
	struct op *first, *last;
	uint64_t submitted, done;
	CUresult error; /* of an operation that ended no device; the next waiting call returns the
			   error */
	bool retiring;
};

static struct {
	pthread_mutex_t lock;
	pthread_cond_t changed;
	unsigned threads; /* of destroyed streams with operations still queued */
} retired = {PTHREAD_MUTEX_INITIALIZER, PTHREAD_COND_INITIALIZER, 0};

unsigned stream_device(const struct stream *stream)
{
	return stream->context->device;
}

const struct context *stream_context(const struct stream *stream)
{
	return stream->context;
}

void stream_put(struct stream *stream)
{
	if (atomic_fetch_sub_explicit(&stream->references, 1, memory_order_acq_rel) != 1)
		return;
	pthread_mutex_destroy(&stream->lock);
	pthread_cond_destroy(&stream->changed);
	free(stream);
}

static CUresult execute(const struct op *op, const struct context *context)
{
	CUresult result = CUDA_SUCCESS;

	switch (op->kind) {
	case OP_COPY:
	case OP_SET:
	case OP_KERNEL:
		result = fault_device(context->device);
		if (result == CUDA_SUCCESS)
			result = device_state(context->device);
		if (result == CUDA_SUCCESS)
			result = op->kind == OP_KERNEL ? kernel_execute(op, context)
						       : copy_execute(op, context);
		/* With the real driver an illegal address ends every context of the process. */
		if (result == CUDA_ERROR_ILLEGAL_ADDRESS && !device_state(context->device))
			for (unsigned i = 0; i < settings.gpus; i++)
				device_fail(i, result, false);
		break;
	case OP_WORD_WRITE:
	case OP_WORD_WAIT:
		result = word_execute(op, context);
		break;
	case OP_RECORD:
		event_done(op->event, op->sequence);
		event_put(op->event);
		break;
	case OP_WAIT:
		event_wait(op->event, op->sequence);
		event_put(op->event);
		break;
	}
	return result;
}

/* The next operation, or NULL when the stream retires and has none left. */
static struct op *next_op(struct stream *stream)
{
	struct op *op;

	pthread_mutex_lock(&stream->lock);
	while (!stream->first && !stream->retiring)
		pthread_cond_wait(&stream->changed, &stream->lock);
	op = stream->first;
	if (op)
		stream->first = op->next;
	pthread_mutex_unlock(&stream->lock);
	return op;
}

static void finish_op(struct stream *stream, CUresult result)
{
	pthread_mutex_lock(&stream->lock);
	stream->done++;
	if (stream->error == CUDA_SUCCESS)
		stream->error = result;
	pthread_cond_broadcast(&stream->changed);
	pthread_mutex_unlock(&stream->lock);
}

static void operation_wait(void)
{
	if (settings.delay_us)
		usleep(settings.delay_us);
	while (settings.hold_path && access(settings.hold_path, F_OK) == 0)
		usleep(1000);
}

static void *work(void *argument)
{
	struct stream *stream = argument;
	struct op *op;

	while ((op = next_op(stream))) {
		CUresult result;

		operation_wait();
		result = execute(op, stream->context);
		free(op);
		finish_op(stream, result);
	}
	stream_put(stream);
	pthread_mutex_lock(&retired.lock);
	retired.threads--;
	pthread_cond_broadcast(&retired.changed);
	pthread_mutex_unlock(&retired.lock);
	return NULL;
}

struct stream *stream_new(struct context *context, unsigned flags)
{
	struct stream *stream = calloc(1, sizeof(*stream));
	pthread_t thread;

	if (!stream)
		return NULL;
	stream->context = context;
	stream->blocking = !(flags & CU_STREAM_NON_BLOCKING);
	atomic_init(&stream->references, 2); /* the references of the table and of the thread */
	pthread_mutex_init(&stream->lock, NULL);
	pthread_cond_init(&stream->changed, NULL);
	if (pthread_create(&thread, NULL, work, stream)) {
		free(stream);
		return NULL;
	}
	pthread_detach(thread);
	return stream;
}

void stream_retire(struct stream *stream)
{
	pthread_mutex_lock(&retired.lock);
	retired.threads++;
	pthread_mutex_unlock(&retired.lock);
	pthread_mutex_lock(&stream->lock);
	stream->retiring = true;
	pthread_cond_broadcast(&stream->changed);
	pthread_mutex_unlock(&stream->lock);
	stream_put(stream);
}

/* The work of retired streams is part of their context's work too. */
void streams_wait_retired(void)
{
	pthread_mutex_lock(&retired.lock);
	while (retired.threads)
		pthread_cond_wait(&retired.changed, &retired.lock);
	pthread_mutex_unlock(&retired.lock);
}

/* Call under standin.lock, exclusive. */
static CUresult null_stream(struct context *context, struct stream **stream)
{
	if (!context->null_stream)
		context->null_stream = stream_new(context, CU_STREAM_DEFAULT);
	*stream = context->null_stream;
	if (!*stream)
		return CUDA_ERROR_OUT_OF_MEMORY;
	atomic_fetch_add_explicit(&(*stream)->references, 1, memory_order_relaxed);
	return CUDA_SUCCESS;
}

/* With a reference, whatever the state of the stream's device. */
static CUresult stream_find(CUstream handle, struct stream **stream)
{
	if (!handle || handle == CU_STREAM_LEGACY) {
		STANDIN_LOCKED(EXCLUSIVE);
		return null_stream(context_current(), stream);
	}
	STANDIN_LOCKED(SHARED);
	*stream = table_at(&standin.streams, (uintptr_t)handle);
	if (!*stream)
		return CUDA_ERROR_INVALID_HANDLE;
	atomic_fetch_add_explicit(&(*stream)->references, 1, memory_order_relaxed);
	return CUDA_SUCCESS;
}

CUresult stream_get(CUstream handle, struct stream **stream)
{
	CUresult result = stream_find(handle, stream);

	if (result != CUDA_SUCCESS)
		return result;
	result = device_state((*stream)->context->device);
	if (result != CUDA_SUCCESS)
		stream_put(*stream);
	return result;
}

static void wait_done(struct stream *stream)
{
	uint64_t goal;

	pthread_mutex_lock(&stream->lock);
	goal = stream->submitted;
	while (stream->done < goal)
		pthread_cond_wait(&stream->changed, &stream->lock);
	pthread_mutex_unlock(&stream->lock);
}

CUresult stream_wait(struct stream *stream)
{
	CUresult error;

	wait_done(stream);
	pthread_mutex_lock(&stream->lock);
	error = stream->error;
	stream->error = CUDA_SUCCESS;
	pthread_mutex_unlock(&stream->lock);
	if (device_state(stream->context->device) != CUDA_SUCCESS)
		return device_state(stream->context->device);
	return error;
}

enum which { ALL_STREAMS, BLOCKING_STREAMS, NULL_STREAM };

/* Waits for the context's streams and keeps references to the streams meanwhile. Do not call under
 * standin.lock. */
static void wait_streams(const struct context *context, enum which which)
{
	struct stream **found;
	size_t n = 0;

	pthread_rwlock_rdlock(&standin.lock);
	found = calloc(standin.streams.count + 1, sizeof(struct stream *));
	if (!found)
		abort();
	for (size_t i = 0; which != NULL_STREAM && i < standin.streams.count; i++) {
		struct stream *stream = standin.streams.entries[i].object;

		if (stream->context == context && (which == ALL_STREAMS || stream->blocking))
			found[n++] = stream;
	}
	if (context->null_stream && which != BLOCKING_STREAMS)
		found[n++] = context->null_stream;
	for (size_t i = 0; i < n; i++)
		atomic_fetch_add_explicit(&found[i]->references, 1, memory_order_relaxed);
	pthread_rwlock_unlock(&standin.lock);

	for (size_t i = 0; i < n; i++) {
		wait_done(found[i]);
		stream_put(found[i]);
	}
	free(found);
}

void streams_wait_context(const struct context *context)
{
	wait_streams(context, ALL_STREAMS);
	streams_wait_retired();
}

void streams_wait_all(void)
{
	struct context **contexts;
	size_t n = 0;

	pthread_rwlock_rdlock(&standin.lock);
	contexts = calloc(standin.contexts.count + 1, sizeof(struct context *));
	for (size_t i = 0; contexts && i < standin.contexts.count; i++)
		contexts[n++] = standin.contexts.entries[i].object;
	pthread_rwlock_unlock(&standin.lock);
	for (size_t i = 0; i < n; i++)
		streams_wait_context(contexts[i]);
	free(contexts);
}

CUresult stream_submit(struct stream *stream, const struct op *op)
{
	struct op *queued = malloc(sizeof(*queued));

	if (!queued)
		return CUDA_ERROR_OUT_OF_MEMORY;
	/* The context's default stream and its blocking streams run one after the other. */
	if (!stream->id)
		wait_streams(stream->context, BLOCKING_STREAMS);
	else if (stream->blocking)
		wait_streams(stream->context, NULL_STREAM);

	*queued = *op;
	queued->next = NULL;
	pthread_mutex_lock(&stream->lock);
	if (stream->first)
		stream->last->next = queued;
	else
		stream->first = queued;
	stream->last = queued;
	stream->submitted++;
	pthread_cond_broadcast(&stream->changed);
	pthread_mutex_unlock(&stream->lock);
	return CUDA_SUCCESS;
}

void streams_forget_context(const struct context *context)
{
	struct context *owner = table_at(&standin.contexts, context->id);

	for (size_t i = standin.streams.count; i-- > 0;) {
		struct stream *stream = standin.streams.entries[i].object;

		if (stream->context != context)
			continue;
		if (device_state(context->device) == CUDA_SUCCESS)
			standin_violation("a context goes with a stream still in it");
		table_remove(&standin.streams, stream->id);
		stream_retire(stream);
	}
	if (owner->null_stream)
		stream_retire(owner->null_stream);
	owner->null_stream = NULL;
}

STANDIN_API CUresult cuStreamCreate(CUstream *handle, unsigned int flags)
{
	struct stream *stream;

	ENTER(NEEDS_CONTEXT);
	if (!handle || flags > CU_STREAM_NON_BLOCKING)
		return CUDA_ERROR_INVALID_VALUE;
	stream = stream_new(context_current(), flags);
	if (!stream)
		return CUDA_ERROR_OUT_OF_MEMORY;
	STANDIN_LOCKED(EXCLUSIVE);
	stream->id = standin_new_handle();
	table_add(&standin.streams, stream->id, 1, stream);
	*handle = (CUstream)(uintptr_t)stream->id;
	return CUDA_SUCCESS;
}

/* Returns at once: the stream's thread still runs the queued operations. */
STANDIN_API CUresult cuStreamDestroy_v2(CUstream handle)
{
	CUresult entered = standin_enter(__func__, NEEDS_INIT, ANY_DEVICE);
	struct stream *stream;

	if (standin_refused(entered))
		return entered;
	STANDIN_LOCKED(EXCLUSIVE);
	stream = table_at(&standin.streams, (uintptr_t)handle);
	if (!stream)
		return CUDA_ERROR_INVALID_HANDLE;
	if (entered == CUDA_SUCCESS)
		entered = device_state(stream->context->device);
	table_remove(&standin.streams, stream->id);
	stream_retire(stream);
	return entered;
}

STANDIN_API CUresult cuStreamSynchronize(CUstream handle)
{
	struct stream *stream;
	CUresult result;

	ENTER(NEEDS_CONTEXT);
	result = stream_find(handle, &stream);
	if (result != CUDA_SUCCESS)
		return result;
	result = stream_wait(stream);
	stream_put(stream);
	return result;
}

STANDIN_API CUresult cuStreamQuery(CUstream handle)
{
	struct stream *stream;
	CUresult result;

	ENTER(NEEDS_CONTEXT);
	result = stream_find(handle, &stream);
	if (result != CUDA_SUCCESS)
		return result;
	result = device_state(stream->context->device);
	pthread_mutex_lock(&stream->lock);
	if (result == CUDA_SUCCESS)
		result = stream->done < stream->submitted ? CUDA_ERROR_NOT_READY : stream->error;
	pthread_mutex_unlock(&stream->lock);
	stream_put(stream);
	return result;
}
