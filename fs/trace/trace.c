/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
#include "fs/trace/trace.h"

#include <errno.h>
#include <inttypes.h>
#include <jansson.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "common/cleanup.h"
#include "common/clock.h"
#include "common/text/utf8.h"

#define CUT "..."

int trace_new(struct trace **new_trace)
{
	struct trace *trace = calloc(1, sizeof(*trace));

	if (!trace)
		return -ENOMEM;
	pthread_mutex_init(&trace->lock, NULL);
	*new_trace = trace;
	return 0;
}

void trace_free(struct trace *trace)
{
	free(trace->events);
	pthread_mutex_destroy(&trace->lock);
	free(trace);
}

int trace_start(struct trace *trace)
{
	scoped_lock(&trace->lock);
	if (!trace->events)
		trace->events = calloc(TRACE_EVENTS, sizeof(*trace->events));
	if (!trace->events)
		return -ENOMEM;
	clock_gettime(CLOCK_REALTIME, &trace->started);
	trace->began = clock_ns();
	trace->count = 0;
	return 0;
}

void trace_path(struct trace_event *event, const char *path)
{
	size_t length = strlen(path);
	const char *cut = "";

	if (length >= sizeof(event->path)) {
		path += length - (sizeof(event->path) - sizeof(CUT));
		cut = CUT;
	}
	snprintf(event->path, sizeof(event->path), "%s%s", cut, path);
}

void trace_add(struct trace *trace, const struct trace_event *event)
{
	scoped_lock(&trace->lock);
	if (trace->events)
		trace->events[trace->count++ % TRACE_EVENTS] = *event;
}

/* In microseconds. A request may have begun before the trace did. */
static double trace_us(int64_t ns)
{
	return ns > 0 ? (double)ns / 1000 : 0;
}

static json_t *volume_json(const struct trace_event *event, int64_t began)
{
	json_t *args = json_pack("{s:I, s:I}", "files", (json_int_t)event->bytes, "other",
				 (json_int_t)event->other_bytes);

	for (enum memory_place place = PLACE_HOST; place < PLACES; place++)
		if (event->in[place] >= 0)
			json_object_set_new(args, memory_place_name(place),
					    json_integer(event->in[place]));
	return json_pack("{s:s+, s:i, s:s, s:f, s:o}", "name", event->name, " bytes", "pid", 1,
			 "ph", "C", "ts", trace_us(event->at - began), "args", args);
}

static json_t *text_json(const char *text)
{
	char escaped[UTF8_ESCAPED_BYTES(TRACE_PATH_BYTES)];

	utf8_escape(text, "\\", escaped, sizeof(escaped));
	return json_string(escaped);
}

static json_t *memory_json(const struct trace_event *event, int64_t began)
{
	bool lasts = event->lasted >= 0;
	json_t *args = json_pack("{s:I, s:I, s:I, s:o}", "bytes", (json_int_t)event->bytes, "inode",
				 (json_int_t)event->ino, "uid", (json_int_t)event->uid, "path",
				 text_json(event->path));

	for (enum memory_place place = PLACE_HOST; place < PLACES; place++)
		if (event->in[place])
			json_object_set_new(args, memory_place_name(place),
					    json_integer(event->in[place]));
	return json_pack("{s:s, s:i, s:s, s:s*, s:f, s:o*, s:s, s:i, s:o}", "name", event->name,
			 "pid", 1, "ph", lasts ? "X" : "i", "s", lasts ? NULL : "t", "ts",
			 trace_us(event->at - began), "dur",
			 lasts ? json_real(trace_us(event->lasted)) : NULL, "cat",
			 event->bytes > 0   ? "taken"
			 : event->bytes < 0 ? "given back"
					    : "moved",
			 "tid", event->pid, "args", args);
}

/* Takes the reference to json. 0 or -ENOMEM. */
static int json_write(FILE *out, const char *prefix, json_t *json)
{
	AUTO_FREE char *text = json_dumps(json, JSON_COMPACT | JSON_REAL_PRECISION(15));

	json_decref(json);
	if (!text)
		return -ENOMEM;
	fputs(prefix, out);
	utf8_write_json(text, out);
	return 0;
}

static int title_write(FILE *out, const char *title)
{
	char name[TRACE_PATH_BYTES];

	snprintf(name, sizeof(name), "gpumemfs %s", title);
	return json_write(out, "\n",
			  json_pack("{s:s, s:s, s:i, s:{s:o}}", "name", "process_name", "ph", "M",
				    "pid", 1, "args", "name", text_json(name)));
}

int trace_write(struct trace *trace, const char *title, FILE *out)
{
	struct trace_event *events AUTO_FREE = malloc(TRACE_EVENTS * sizeof(*events));

	if (!events)
		return -ENOMEM;
	pthread_mutex_lock(&trace->lock);
	struct trace now = *trace;

	if (now.events)
		memcpy(events, now.events, TRACE_EVENTS * sizeof(*events));
	pthread_mutex_unlock(&trace->lock);

	uint64_t first = now.count > TRACE_EVENTS ? now.count - TRACE_EVENTS : 0;

	fprintf(out,
		"{\"displayTimeUnit\":\"ms\",\"otherData\":{\"started\":%" PRId64
		",\"lost\":%" PRIu64 "},\"traceEvents\":[",
		(int64_t)now.started.tv_sec, first);
	int error = title_write(out, title);

	for (uint64_t i = first; i < now.count && !error; i++) {
		const struct trace_event *event = &events[i % TRACE_EVENTS];

		error = json_write(out, ",\n",
				   event->other_bytes >= 0 ? volume_json(event, now.began)
							   : memory_json(event, now.began));
	}
	fputs("\n]}\n", out);
	return error;
}

static int trace_file_write(struct fs *fs, uid_t uid, FILE *out)
{
	(void)uid;
	return trace_write(trace_of(fs), fs->options.mountpoint, out);
}

const struct control_file trace_files[] = {
    {7, "trace.json", 0400, trace_file_write, NULL, NULL},
    {0},
};
