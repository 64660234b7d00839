/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
#include "fs/trace/observe.h"

#include <inttypes.h>
#include <limits.h>
#include <stdio.h>

#include "fs/ops/ops.h"
#include "fs/trace/access_log.h"
#include "fs/trace/trace.h"
#include "fs/tree/tree.h"

/* An inode's path, and a name below it. */
struct place {
	char path[PATH_MAX + NAME_MAX + 2];
};

static const char *place_of(struct fs *fs, struct inode *inode, const char *name,
			    struct place *place)
{
	if (!inode)
		return "";
	int length = tree_path(fs, inode, place->path, PATH_MAX);

	if (length < 0)
		length = snprintf(place->path, PATH_MAX, "inode %" PRIu64, inode->ino);
	if (name)
		snprintf(place->path + length, sizeof(place->path) - (size_t)length, "%s%s",
			 place->path[length - 1] == '/' ? "" : "/", name);
	return place->path;
}

static void log_access(const struct op *op, int64_t result, int64_t latency)
{
	const struct fuse_ctx *caller = fuse_req_ctx(op->req);
	struct place place, to;
	struct access_entry entry = {
	    .pid = caller->pid,
	    .uid = caller->uid,
	    .operation = stats_op_name(op->kind),
	    .offset = op->offset,
	    .length = op->bytes,
	    .result = result,
	    .latency = latency,
	    .path = place_of(op->fs, op->inode, op->name, &place),
	    .to = op->to ? place_of(op->fs, op->to, op->to_name, &to) : NULL,
	};

	clock_gettime(CLOCK_REALTIME, &entry.time);
	access_log_add(op->fs->access_log, &entry);
}

static bool is_traced(struct fs *fs)
{
	return atomic_load_explicit(&fs->observers, memory_order_relaxed) & OBSERVE_TRACE;
}

static _Thread_local struct {
	int64_t bytes;
	uint64_t ino; /* the last one */
} memory;

int64_t observe_begin(void)
{
	memory.bytes = 0;
	return observe_now();
}

void observe_memory(struct fs *fs, uint64_t ino, int64_t bytes)
{
	if (!is_traced(fs))
		return;
	memory.bytes += bytes;
	memory.ino = ino;
}

/* What the volumes hold now. */
static void trace_volumes(struct fs *fs)
{
	for (unsigned i = 0; i < fs->n_volumes; i++) {
		struct volume *volume = &fs->volumes[i];
		struct trace_event event = {.at = observe_now(), .name = volume->name};
		struct volume_usage usage;

		if (volume->device) {
			struct pool_usage pool = pool_usage(volume->pool);

			event.bytes = (int64_t)pool.span_bytes;
			/* They are not counted at one time. */
			if (pool.chunk_bytes > pool.span_bytes)
				event.other = (int64_t)(pool.chunk_bytes - pool.span_bytes);
		} else if (volume_usage(volume, &usage) == 0) {
			event.bytes = (int64_t)usage.held;
		}
		trace_add(fs->trace, &event);
	}
}

/* Tells what the thread took or gave back, if anything. */
static void trace_memory(struct fs *fs, struct trace_event *event, const char *path)
{
	if (!memory.bytes)
		return;
	event->bytes = memory.bytes;
	event->ino = memory.ino;
	event->other = -1;
	memory.bytes = 0;
	trace_path(event, path);
	trace_add(fs->trace, event);
	trace_volumes(fs);
}

static void trace_op(const struct op *op, int64_t latency)
{
	const struct fuse_ctx *caller = fuse_req_ctx(op->req);
	struct inode *inode = op->to && !op->to_name ? op->to : op->inode;
	struct trace_event event = {
	    .at = op->began,
	    .lasted = latency,
	    .name = stats_op_name(op->kind),
	    .pid = caller->pid,
	    .uid = caller->uid,
	};
	struct place place;

	if (memory.bytes)
		trace_memory(op->fs, &event, place_of(op->fs, inode, op->name, &place));
}

void observe_background(struct fs *fs, const char *operation)
{
	struct trace_event event = {.at = observe_now(), .lasted = -1, .name = operation};

	trace_memory(fs, &event, "");
}

void observe_volumes(struct fs *fs)
{
	if (is_traced(fs))
		trace_volumes(fs);
}

int observe_trace(struct fs *fs, bool on)
{
	if (!on) {
		atomic_fetch_and(&fs->observers, ~(unsigned)OBSERVE_TRACE);
		return 0;
	}
	int error = trace_start(fs->trace);

	if (error)
		return error;
	trace_volumes(fs);
	atomic_fetch_or(&fs->observers, OBSERVE_TRACE);
	return 0;
}

void observe(struct op *op, int64_t result)
{
	int64_t latency = observe_now() - op->began;

	if (op->observers & OBSERVE_LATENCY)
		stats_latency(op->worker->stats, op->kind, (uint64_t)latency);
	if (op->observers & OBSERVE_ACCESS)
		log_access(op, result, latency);
	if (op->observers & OBSERVE_TRACE)
		trace_op(op, latency);
}
