/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* The most recent events of memory, as .gpumem/trace.json shows them: how much memory of which file
 * a request allocated or freed, and how much each volume held afterwards. Thread-safe. */
#ifndef FS_TRACE_TRACE_H
#define FS_TRACE_TRACE_H

#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/types.h>
#include <time.h>

#include "backend/backend.h"
#include "fs/core/control_file.h"
#include "fs/core/fs.h"

#define TRACE_EVENTS	 8192 /* the number of events that the ring holds */
#define TRACE_PATH_BYTES 160  /* a longer path loses its beginning */

struct trace_event {
	int64_t at, lasted;  /* ns of CLOCK_MONOTONIC; lasted < 0: has no length */
	const char *name;    /* of the operation or the volume; must live as long as the trace */
	int64_t bytes;	     /* allocated, or below 0 freed; of a volume: held in files */
	int64_t other_bytes; /* of a volume: held without a file; else -1 */
	/* The part of bytes that is in each place from PLACE_HOST on. Of a volume: in addition to
	 * bytes, and -1 without the place. */
	int64_t in[PLACES];
	uint64_t ino;
	pid_t pid;
	uid_t uid;
	char path[TRACE_PATH_BYTES];
};

struct trace {
	pthread_mutex_t lock;	    /* of all below */
	struct trace_event *events; /* a ring; NULL: never started */
	uint64_t count;		    /* events since the start */
	int64_t began;		    /* CLOCK_MONOTONIC */
	struct timespec started;    /* CLOCK_REALTIME */
};

static inline FS_STATE(struct trace, trace_of, FS_TRACE)

    /* trace.json; ends with a file without a name. */
    extern const struct control_file trace_files[];

/* 0 or -ENOMEM. */
int trace_new(struct trace **new_trace);
void trace_free(struct trace *trace);

/* Forgets all events: 0 or -ENOMEM. The caller decides whether events are added from then on. */
int trace_start(struct trace *trace);

void trace_path(struct trace_event *event, const char *path);
/* The trace was started before. */
void trace_add(struct trace *trace, const struct trace_event *event);

/* A JSON object in the Chrome trace event format: 0 or -ENOMEM. */
int trace_write(struct trace *trace, const char *title, FILE *out);

#endif
