/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
#include "fs/trace/observe.h"

#include <limits.h>
#include <stdio.h>
#include <string.h>

#include "backend/pool.h"
#include "common/clock.h"
#include "fs/core/fs.h"
#include "fs/core/worker.h"
#include "fs/trace/access_log.h"
#include "fs/trace/trace.h"
#include "fs/tree/inode.h"
#include "fs/tree/tree.h"
#include "fs/volume/volume.h"

/* An inode's path, with a name below the inode. */
struct place {
	char path[PATH_MAX + NAME_MAX + 2];
};

static const char *place_path(struct fs *fs, struct inode *inode, const char *name,
			      struct place *place)
{
	if (!inode)
		return "";
	int length = tree_path_text(fs, inode, place->path, PATH_MAX);

	if (name)
		snprintf(place->path + length, sizeof(place->path) - (size_t)length, "%s%s",
			 place->path[length - 1] == '/' ? "" : "/", name);
	return place->path;
}

static void log_access(struct fs *fs, const struct request_info *request, int64_t latency)
{
	struct place place, to;
	struct access_entry entry = {
	    .pid = request->pid,
	    .uid = request->uid,
	    .operation = stats_op_name(request->kind),
	    .offset = request->offset,
	    .length = request->bytes,
	    .result = request->result,
	    .latency = latency,
	    .path = place_path(fs, request->inode, request->name, &place),
	    .to = request->to ? place_path(fs, request->to, request->to_name, &to) : NULL,
	};

	clock_gettime(CLOCK_REALTIME, &entry.time);
	access_log_add(access_log_of(fs), &entry);
}

static bool trace_is_on(struct fs *fs)
{
	return atomic_load_explicit(&fs->observers, memory_order_relaxed) & OBSERVE_TRACE;
}

int64_t observe_begin(void)
{
	worker_memory_take();
	return clock_ns();
}

/* -1: the volume does not have the place. */
static int64_t volume_bytes_in(const struct volume *volume, enum memory_place place)
{
	struct pool *pool = volume_pool(volume, place);

	return pool ? (int64_t)pool_usage(pool).span_bytes : -1;
}

/* Adds the memory of all volumes to the trace. */
static void trace_volumes(struct fs *fs)
{
	for (unsigned i = 0; i < fs->n_volumes; i++) {
		struct volume *volume = &fs->volumes[i];
		struct trace_event event = {.at = clock_ns(), .name = volume->name};
		struct volume_usage usage;
		enum memory_place place;

		if (volume->device) {
			struct pool_usage pool = pool_usage(volume->pool);

			event.bytes = (int64_t)pool.span_bytes;
			/* The pool reads its two counters one after the other. */
			if (pool_usage_unused(&pool))
				event.other_bytes = (int64_t)pool_usage_unused(&pool);
		} else if (volume_usage(volume, &usage) == 0) {
			event.bytes = (int64_t)usage.held;
		}
		for (place = PLACE_HOST; place < PLACES; place++)
			event.in[place] = volume_bytes_in(volume, place);
		trace_add(trace_of(fs), &event);
	}
}

static bool memory_is_changed(const struct worker_memory *memory)
{
	static const int64_t unchanged[PLACES];

	return memory->bytes || memcmp(memory->in, unchanged, sizeof(unchanged)) != 0;
}

static void trace_memory(struct fs *fs, struct trace_event *event,
			 const struct worker_memory *memory, const char *path)
{
	event->bytes = memory->bytes;
	memcpy(event->in, memory->in, sizeof(event->in));
	event->ino = memory->ino;
	event->other_bytes = -1;
	trace_path(event, path);
	trace_add(trace_of(fs), event);
	trace_volumes(fs);
}

static void trace_request(struct fs *fs, const struct request_info *request, int64_t latency)
{
	struct inode *inode = request->to && !request->to_name ? request->to : request->inode;
	struct worker_memory memory = worker_memory_take();
	struct trace_event event = {
	    .at = request->began,
	    .lasted = latency,
	    .name = stats_op_name(request->kind),
	    .pid = request->pid,
	    .uid = request->uid,
	};
	struct place place;

	if (memory_is_changed(&memory))
		trace_memory(fs, &event, &memory, place_path(fs, inode, request->name, &place));
}

void observe_background(struct fs *fs, const char *operation)
{
	struct worker_memory memory = worker_memory_take();
	struct trace_event event = {.at = clock_ns(), .lasted = -1, .name = operation};

	if (memory_is_changed(&memory))
		trace_memory(fs, &event, &memory, "");
}

void observe_work_begin(struct fs *fs, struct observed_work *work)
{
	*work = (struct observed_work){0};
	if (!trace_is_on(fs))
		return;
	work->began = clock_ns();
	work->previous = worker_memory_take();
}

void observe_work_end(struct fs *fs, const struct observed_work *work, const char *operation,
		      struct inode *inode)
{
	struct trace_event event = {
	    .at = work->began, .name = operation, .uid = atomic_load(&inode->uid)};
	struct worker_memory memory;
	struct place place;

	if (!work->began)
		return;
	memory = worker_memory_take();
	event.lasted = clock_ns() - work->began;
	if (memory_is_changed(&memory))
		trace_memory(fs, &event, &memory, place_path(fs, inode, NULL, &place));
	worker_memory_put_back(&work->previous);
}

void observe_volumes(struct fs *fs)
{
	if (trace_is_on(fs))
		trace_volumes(fs);
}

int observe_trace(struct fs *fs, bool enable)
{
	if (!enable) {
		atomic_fetch_and(&fs->observers, ~(unsigned)OBSERVE_TRACE);
		return 0;
	}
	int error = trace_start(trace_of(fs));

	if (error)
		return error;
	trace_volumes(fs);
	atomic_fetch_or(&fs->observers, OBSERVE_TRACE);
	return 0;
}

void observe(struct fs *fs, struct stats_block *stats, unsigned observers,
	     const struct request_info *request)
{
	int64_t latency = clock_ns() - request->began;

	if (observers & OBSERVE_LATENCY)
		stats_latency(stats, request->kind, (uint64_t)latency);
	if (observers & OBSERVE_ACCESS)
		log_access(fs, request, latency);
	if (observers & OBSERVE_TRACE)
		trace_request(fs, request, latency);
}
