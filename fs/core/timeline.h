/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* Where the time goes when a daemon takes over from one that died: a line in the log. */
#ifndef FS_CORE_TIMELINE_H
#define FS_CORE_TIMELINE_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

/* What is over at each mark, in order; the first two are the keeper's. */
enum timeline_mark {
	TIMELINE_SEEN,	   /* the daemon before ends: its line has closed */
	TIMELINE_REAPED,   /* nothing is left of it */
	TIMELINE_PROCESS,  /* this one runs */
	TIMELINE_DRIVER,   /* the backend is open */
	TIMELINE_PREPARED, /* all else that needs no files */
	TIMELINE_GO,	   /* the keeper's word has come */
	TIMELINE_JOURNAL,  /* names and attributes are there */
	TIMELINE_MEMORY,   /* so are chunks and objects */
	TIMELINE_SERVING,  /* requests are read */
	TIMELINE_ANSWERED, /* the first one that waited */
	TIMELINE_MARKS
};

struct timeline {
	int64_t at[TIMELINE_MARKS]; /* CLOCK_MONOTONIC, us; 0: unknown */
	bool idle;		    /* when requests were read, none waited */
	atomic_bool logged;	    /* or there is nothing to say */
};

void timeline_mark(struct timeline *timeline, enum timeline_mark mark);
/* No request waits, and that is when the takeover is over: writes the line, if there was a daemon
 * before. Requests that come later do not wait for it. Before any thread reads requests. */
void timeline_idle(struct timeline *timeline, const char *mountpoint);
/* Else the first request that was answered writes the line. Any thread. */
void timeline_answer(struct timeline *timeline, const char *mountpoint);

static inline void timeline_answered(struct timeline *timeline, const char *mountpoint)
{
	if (!atomic_load_explicit(&timeline->logged, memory_order_relaxed))
		timeline_answer(timeline, mountpoint);
}

/* The line's text, for the tests: how long each part took. */
#define TIMELINE_TEXT 400
void timeline_write(const struct timeline *timeline, char text[TIMELINE_TEXT]);

#endif
