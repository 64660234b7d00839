/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* Measures how long a daemon takes to replace an earlier daemon, step by step, and writes a line to
 * the log. */
#ifndef FS_CORE_TIMELINE_H
#define FS_CORE_TIMELINE_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

/* The step that ends at each mark, in order. The keeper sets the first two marks. */
enum timeline_mark {
	TIMELINE_SEEN,	   /* the earlier daemon's connection to the keeper closed */
	TIMELINE_REAPED,   /* the earlier daemon's process is gone */
	TIMELINE_PROCESS,  /* the new daemon runs */
	TIMELINE_DRIVER,   /* the backend is open */
	TIMELINE_PREPARED, /* everything else without files is prepared */
	TIMELINE_GO,	   /* the keeper told the daemon to go on */
	TIMELINE_JOURNAL,  /* names and attributes are restored */
	TIMELINE_MEMORY,   /* chunks and objects are restored */
	TIMELINE_SERVING,  /* threads read requests */
	TIMELINE_ANSWERED, /* the first waiting request is answered */
	TIMELINE_MARKS
};

struct timeline {
	int64_t at[TIMELINE_MARKS]; /* CLOCK_MONOTONIC, us; 0: unknown */
	bool idle;		    /* no request waited when threads began to read requests */
	atomic_bool logged;	    /* the line was written, or no line is needed */
};

void timeline_mark(struct timeline *timeline, enum timeline_mark mark);
/* Called before any thread reads requests, when no request waits: ends the takeover and writes the
 * line if there was an earlier daemon. Later requests do not wait for the takeover. */
void timeline_idle(struct timeline *timeline, const char *mountpoint);
/* Called by any thread after the first reply if requests waited: writes the line. */
void timeline_answer(struct timeline *timeline, const char *mountpoint);

static inline void timeline_answered(struct timeline *timeline, const char *mountpoint)
{
	if (!atomic_load_explicit(&timeline->logged, memory_order_relaxed))
		timeline_answer(timeline, mountpoint);
}

/* The text of the line, for tests. */
#define TIMELINE_TEXT 400
void timeline_write(const struct timeline *timeline, char text[TIMELINE_TEXT]);

#endif
