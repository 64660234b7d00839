/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* gpumem top: computes the rates of a mount from counters that are read at intervals. */
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
#define TOP_PLACES  4

struct top_bytes {
	double read, write, copy; /* per second */
};

struct top_counters {
	uint64_t read, write, copy, requests; /* since the daemon's start */
};

/* A place for memory of a GPU's files. */
struct top_place {
	char name[16]; /* "gpu", "host", "disk" */
	uint64_t size, files;
	uint64_t moved; /* moved there since the daemon's start */
	double rate;	/* of moved */
};

struct top_gpu {
	char name[16];
	uint64_t total, used, held, mapped;
	char health[16]; /* "ok", "resetting", "failed" */
	bool counted;	 /* false: a daemon of an older version, which does not count by GPU */
	struct top_counters counters;
	struct top_bytes rate;
	double request_rate;
	struct top_bytes log_bytes;  /* in this interval, from the access log */
	double history[TOP_HISTORY]; /* of all three, the latest value last */
	struct top_place places[TOP_PLACES];
	unsigned n_places;
};

struct top_file {
	char *path; /* within the file system; escaped as in the access log */
	struct top_bytes bytes, rate;
	uint64_t recent; /* without the access log: recent bytes, as the daemon estimates */
};

struct top_sharer {
	struct sharer sharer; /* the path is allocated */
	char *command;
};

struct top {
	const char *mountpoint;
	uint64_t read_bytes, write_bytes, copy_bytes, requests, errors; /* since the start */
	struct top_bytes rate;
	double request_rate, error_rate;
	double time; /* of the last sample, seconds */
	unsigned samples;
	struct top_gpu gpus[TOP_GPUS];
	unsigned n_gpus;
	/* The busiest files first. Needs the access log, which root alone may read. */
	int log;	  /* -1: this user may not read the access log */
	char rest[16384]; /* the start of an incomplete line */
	size_t rest_length;
	struct top_file files[TOP_FILES];
	unsigned n_files;
	struct top_sharer sharers[TOP_SHARERS];
	unsigned n_sharers;
};

void top_open(struct top *top, const char *mountpoint);
void top_close(struct top *top);
/* Reads all counters again and computes the rates since the last sample. 0 or -errno. */
int top_sample(struct top *top, double now);
/* Take the counters and the access log from texts, for tests. */
void top_take_stats(struct top *top, const json_t *stats, double now);
void top_take_log(struct top *top, const char *text, size_t length);
void top_end_interval(struct top *top);

json_t *top_json(const struct top *top);
/* Writes a screen of so many lines and columns, line by line. */
void top_write(const struct top *top, unsigned lines, unsigned columns,
	       void (*put)(void *context, const char *line, bool strong), void *context);
/* Shows samples on the terminal until the user presses q, or count samples (0: no limit). Gives the
 * exit status. */
int top_screen(struct top *top, double seconds, uint64_t count);

/* terminal.c: whether the cursor can be placed on the terminal. On a terminal such as "dumb" curses
 * would print the screen as one line. */
bool top_terminal_places(void);

#endif
