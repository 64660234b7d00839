/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* The most recent events of memory, as .gpumem/trace.json shows them: which request took or gave
 * back how much of which file, and what each volume held afterwards. Thread-safe. */
#ifndef FS_TRACE_TRACE_H
#define FS_TRACE_TRACE_H

#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/types.h>
#include <time.h>

#define TRACE_EVENTS	 8192 /* that are kept */
#define TRACE_PATH_BYTES 160  /* of a longer path the end is kept */

struct trace_event {
	int64_t at, lasted; /* ns of CLOCK_MONOTONIC; lasted < 0: has no length */
	const char *name;   /* the operation, or the volume; for the life of the trace */
	int64_t bytes;	    /* taken, or below 0 given back; of a volume: held in files */
	int64_t other;	    /* of a volume: held besides; else -1 */
	uint64_t ino;
	pid_t pid;
	uid_t uid;
	char path[TRACE_PATH_BYTES];
};

struct trace {
	pthread_mutex_t lock;	    /* of all below */
	struct trace_event *events; /* a ring; NULL: never started */
	uint64_t count;		    /* that there were since the start */
	int64_t began;		    /* CLOCK_MONOTONIC */
	struct timespec started;    /* CLOCK_REALTIME */
};

/* -ENOMEM. */
int trace_new(struct trace **made);
void trace_free(struct trace *trace);

/* Forgets what there was: 0 or -ENOMEM. Whether anything is added then is up to the caller. */
int trace_start(struct trace *trace);

void trace_path(struct trace_event *event, const char *path);
/* Of a trace that was started. */
void trace_add(struct trace *trace, const struct trace_event *event);

/* A JSON object in the Chrome trace event format: 0 or -ENOMEM. */
int trace_write(struct trace *trace, const char *title, FILE *out);

#endif
