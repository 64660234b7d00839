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
#include "common/utf8.h"

#define CUT "..."

int trace_new(struct trace **made)
{
	struct trace *trace = calloc(1, sizeof(*trace));

	if (!trace)
		return -ENOMEM;
	pthread_mutex_init(&trace->lock, NULL);
	*made = trace;
	return 0;
}

void trace_free(struct trace *trace)
{
	free(trace->events);
	pthread_mutex_destroy(&trace->lock);
	free(trace);
}

static int64_t ns(const struct timespec *time)
{
	return (int64_t)time->tv_sec * 1000000000 + time->tv_nsec;
}

int trace_start(struct trace *trace)
{
	struct timespec now;

	scoped_lock(&trace->lock);
	if (!trace->events)
		trace->events = calloc(TRACE_EVENTS, sizeof(*trace->events));
	if (!trace->events)
		return -ENOMEM;
	clock_gettime(CLOCK_MONOTONIC, &now);
	clock_gettime(CLOCK_REALTIME, &trace->started);
	trace->began = ns(&now);
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
	utf8_clean(event->path);
}

void trace_add(struct trace *trace, const struct trace_event *event)
{
	scoped_lock(&trace->lock);
	if (trace->events)
		trace->events[trace->count++ % TRACE_EVENTS] = *event;
}

/* text is UTF-8. */
static void write_string(FILE *out, const char *text)
{
	json_t *string = json_string(text);
	AUTO_FREE char *json = json_dumps(string, JSON_ENCODE_ANY);

	utf8_write_json(json ? json : "\"\"", out);
	json_decref(string);
}

/* Timestamps are in microseconds. A request may have begun before the trace did. */
static void write_time(FILE *out, const char *name, int64_t time)
{
	if (time < 0)
		time = 0;
	fprintf(out, ",\"%s\":%" PRId64 ".%03" PRId64, name, time / 1000, time % 1000);
}

static void write_volume(FILE *out, const struct trace_event *event)
{
	fprintf(out, ",\"args\":{\"files\":%" PRId64 ",\"other\":%" PRId64 "}}", event->bytes,
		event->other);
}

static void write_memory(FILE *out, const struct trace_event *event)
{
	fprintf(out,
		",\"cat\":\"%s\",\"tid\":%d,\"args\":{\"bytes\":%" PRId64 ",\"inode\":%" PRIu64
		",\"uid\":%u,\"path\":",
		event->bytes > 0 ? "taken" : "given back", event->pid, event->bytes, event->ino,
		event->uid);
	write_string(out, event->path);
	fputs("}}", out);
}

static void write_event(FILE *out, const struct trace_event *event, int64_t began)
{
	bool volume = event->other >= 0;

	fprintf(out, ",\n{\"name\":\"%s%s\",\"pid\":1,\"ph\":\"%s\"", event->name,
		volume ? " bytes" : "",
		volume		     ? "C"
		: event->lasted >= 0 ? "X"
				     : "i\",\"s\":\"t");
	write_time(out, "ts", event->at - began);
	if (event->lasted >= 0 && !volume)
		write_time(out, "dur", event->lasted);
	if (volume)
		write_volume(out, event);
	else
		write_memory(out, event);
}

int trace_write(struct trace *trace, const char *title, FILE *out)
{
	struct trace_event *events AUTO_FREE = malloc(TRACE_EVENTS * sizeof(*events));
	char name[TRACE_PATH_BYTES];

	if (!events)
		return -ENOMEM;
	pthread_mutex_lock(&trace->lock);
	struct trace now = *trace;

	if (now.events)
		memcpy(events, now.events, TRACE_EVENTS * sizeof(*events));
	pthread_mutex_unlock(&trace->lock);

	uint64_t first = now.count > TRACE_EVENTS ? now.count - TRACE_EVENTS : 0;

	snprintf(name, sizeof(name), "gpumemfs %s", title);
	utf8_clean(name);
	fprintf(out,
		"{\"displayTimeUnit\":\"ms\",\"otherData\":{\"started\":%" PRId64
		",\"lost\":%" PRIu64 "},\"traceEvents\":[\n"
		"{\"name\":\"process_name\",\"ph\":\"M\",\"pid\":1,\"args\":{\"name\":",
		(int64_t)now.started.tv_sec, first);
	write_string(out, name);
	fputs("}}", out);
	for (uint64_t i = first; i < now.count; i++)
		write_event(out, &events[i % TRACE_EVENTS], now.began);
	fputs("\n]}\n", out);
	return 0;
}
