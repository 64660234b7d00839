/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* gpumem top: what a mount does, from counters that are read again and again. */
#ifndef CLIENT_CLI_TOP_TOP_H
#define CLIENT_CLI_TOP_TOP_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "client/cli/core/facts.h"

#define TOP_HISTORY 60
#define TOP_GPUS    65 /* and host/ */
#define TOP_FILES   512
#define TOP_SHARERS 256

struct top_bytes {
	double read, write, copy; /* per second */
};

struct top_counters {
	uint64_t read, write, copy, requests; /* since the daemon's start */
};

struct top_gpu {
	char name[16];
	uint64_t total, used, held, mapped;
	char health[16]; /* "ok", "resetting", "failed" */
	bool counted;	 /* a daemon of an older version does not count by GPU */
	struct top_counters counters;
	struct top_bytes rate;
	double request_rate;
	struct top_bytes seen;	     /* in this interval, of what the access log told */
	double history[TOP_HISTORY]; /* of all three, the latest last */
};

struct top_file {
	char *path; /* in the file system; escaped as the access log has it */
	struct top_bytes bytes, rate;
	uint64_t
	    recent; /* without the access log: what was moved lately, by the daemon's estimate */
};

struct top_sharer {
	struct sharer sharer; /* its path is ours */
	char *command;
};

struct top {
	const char *where;						/* the mount */
	uint64_t read_bytes, write_bytes, copy_bytes, requests, errors; /* since the start */
	struct top_bytes rate;
	double request_rate, error_rate;
	double time; /* of the last sample, seconds */
	unsigned samples;
	struct top_gpu gpus[TOP_GPUS];
	unsigned n_gpus;
	/* What is busy now, the busiest first. Needs the access log, which root alone may read. */
	int log;	  /* -1: there is none for us */
	char rest[16384]; /* the beginning of a line */
	size_t rest_length;
	struct top_file files[TOP_FILES];
	unsigned n_files;
	struct top_sharer sharers[TOP_SHARERS];
	unsigned n_sharers;
};

void top_open(struct top *top, const char *where);
void top_close(struct top *top);
/* Reads all again; the rates are those since the last time. 0 or -errno. */
int top_sample(struct top *top, double now);
/* The same from texts: for tests. */
void top_take_stats(struct top *top, const json_t *stats, double now);
void top_take_log(struct top *top, const char *text, size_t length);
void top_end_interval(struct top *top);

json_t *top_json(const struct top *top);
/* The text of a screen of so many lines and columns, line by line. */
void top_write(const struct top *top, unsigned lines, unsigned columns,
	       void (*put)(void *context, const char *line, bool strong), void *context);
/* On the terminal until q is pressed, or for count samples (0: no end): the exit status. */
int top_screen(struct top *top, double seconds, uint64_t count);

/* top_terminal.c: whether text can be placed anywhere on it. Curses starts on a terminal such as
 * "dumb", too, and then prints the screen as one line. */
bool top_terminal_places(void);

#endif
