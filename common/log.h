/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* One line per event, to the terminal until the mount is ready and to syslog from then on.
 * Thread-safe. Lines end without a newline; the logger adds it. The first who notices logs. */
#ifndef COMMON_LOG_H
#define COMMON_LOG_H

#include <stdbool.h>
#include <sys/types.h>

enum log_level { LOG_LEVEL_ERROR, LOG_LEVEL_WARN, LOG_LEVEL_INFO, LOG_LEVEL_DEBUG };

enum log_target {
	/* stderr, prefixed "gpumemfs: "; where that is systemd's journal, with the level as "<6>"
	 * instead, which the journal takes off again */
	LOG_TO_TERMINAL = 1,
	LOG_TO_SYSLOG = 2, /* facility daemon, with the level as priority */
};

/* Sets what is logged (this level and the more serious ones) and where (log_target bits). */
void log_setup(enum log_level level, unsigned targets);

/* What is logged from now on, and at present. */
void log_level_set(enum log_level level);
enum log_level log_level_get(void);

/* Level by its option name (error, warn, info, debug): 0, or -EINVAL. */
int log_level_parse(const char *name, enum log_level *level);
const char *log_level_name(enum log_level level);
bool log_enabled(enum log_level level);

/* The user whose request a thread serves, and whose warnings are limited (log_limit.h). Warnings of
 * a thread that serves none are not. */
struct log_caller {
	bool known;
	uid_t uid;
};
/* For the calling thread from now on; the one before. */
struct log_caller log_caller_change(struct log_caller caller);
void log_caller_set(uid_t uid);

void log_write(enum log_level level, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* The same for an error that the thread's caller can bring about again and again, such as a disk
 * that is full: as limited as warnings are. */
void log_caller_error(const char *format, ...) __attribute__((format(printf, 1, 2)));

#define log_error(...) log_write(LOG_LEVEL_ERROR, __VA_ARGS__)
#define log_warn(...)  log_write(LOG_LEVEL_WARN, __VA_ARGS__)
#define log_info(...)  log_write(LOG_LEVEL_INFO, __VA_ARGS__)
#define log_debug(...)                                                                             \
	do {                                                                                       \
		if (log_enabled(LOG_LEVEL_DEBUG))                                                  \
			log_write(LOG_LEVEL_DEBUG, __VA_ARGS__);                                   \
	} while (0)

#endif
