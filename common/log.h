/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* The log: a line per event, to the terminal until the mount is ready and to syslog from then on.
 * Thread-safe. The text has no newline at its end. The function that notices an error first logs
 * the error; callers do not log again. */
#ifndef COMMON_LOG_H
#define COMMON_LOG_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

enum log_level { LOG_LEVEL_ERROR, LOG_LEVEL_WARN, LOG_LEVEL_INFO, LOG_LEVEL_DEBUG };

enum log_target {
	/* stderr, with the prefix "gpumemfs: "; if stderr is systemd's journal, with the level as
	   "<6>" instead, which the journal removes */
	LOG_TO_TERMINAL = 1,
	LOG_TO_SYSLOG = 2, /* facility daemon; the level is the priority */
};

/* Sets the least serious level that is logged, and the targets (bits of enum log_target). */
void log_setup(enum log_level level, unsigned targets);

/* The least serious level that is logged. */
void log_level_set(enum log_level level);
enum log_level log_level_get(void);

/* The level by its option name (error, warn, info, debug): 0, or -EINVAL. */
int log_level_parse(const char *name, enum log_level *level);
const char *log_level_name(enum log_level level);
bool log_enabled(enum log_level level);

/* The user with the request that the thread serves. A user's warnings are limited (struct
 * log_limit); warnings of a thread without a request are not. */
struct log_caller {
	bool has_uid;
	uid_t uid;
};
/* Sets the calling thread's user, and returns the former user. */
struct log_caller log_caller_change(struct log_caller caller);
void log_caller_set(uid_t uid);

void log_write(enum log_level level, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* For an error that a user can cause again and again, such as a full disk: as an error, but limited
 * like a warning. */
void log_caller_error(const char *format, ...) __attribute__((format(printf, 1, 2)));

#define log_error(...) log_write(LOG_LEVEL_ERROR, __VA_ARGS__)
#define log_warn(...)  log_write(LOG_LEVEL_WARN, __VA_ARGS__)
#define log_info(...)  log_write(LOG_LEVEL_INFO, __VA_ARGS__)
#define log_debug(...)                                                                             \
	do {                                                                                       \
		if (log_enabled(LOG_LEVEL_DEBUG))                                                  \
			log_write(LOG_LEVEL_DEBUG, __VA_ARGS__);                                   \
	} while (0)

/* Limits the warnings caused by a user's requests: a burst, then a line every few seconds, so a
 * loop of refused requests does not fill the disk or hide other lines. The caller locks. */
#define LOG_LIMIT_BURST	  20
#define LOG_LIMIT_SECONDS 3

/* With more users at a time, a new user takes the entry of the user with the oldest line. */
#define LOG_LIMIT_USERS 64

struct log_limit_user {
	bool used;
	uid_t uid;
	int64_t paid_until;   /* ns: each line costs LOG_LIMIT_SECONDS */
	int64_t last_line_ns; /* the user's latest line */
	uint64_t left_out;    /* since the last line that was logged */
};

struct log_limit {
	struct log_limit_user users[LOG_LIMIT_USERS];
};

/* Whether the user may log another line at this time (CLOCK_MONOTONIC, ns). *left_out: how many of
 * the user's lines were left out before. */
bool log_limit_take(struct log_limit *limit, uid_t uid, int64_t now, uint64_t *left_out);

#endif
