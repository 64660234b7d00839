/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
#include "common/log.h"

#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <syslog.h>
#include <unistd.h>

#include "common/cleanup.h"
#include "common/clock.h"
#include "common/text/utf8.h"

#define PREFIX	  "gpumemfs: "
#define CUT_SHORT "..."

/* Room for the longest path and some words. */
#define LINE_BYTES (PATH_MAX + 512)

/* What a line costs, in ns. */
#define COST ((int64_t)LOG_LIMIT_SECONDS * 1000000000)

static _Atomic enum log_level log_threshold = LOG_LEVEL_INFO;
static atomic_uint log_targets = LOG_TO_TERMINAL;
static atomic_bool on_journal;

/* Keeps the lines of threads apart: a write may not be atomic (long lines to a pipe). */
static pthread_mutex_t terminal_lock = PTHREAD_MUTEX_INITIALIZER;

static _Thread_local struct log_caller thread_caller;

static struct {
	pthread_mutex_t lock;
	struct log_limit limit;
} caller_limit = {.lock = PTHREAD_MUTEX_INITIALIZER};

static const struct {
	const char *name;
	int priority;
} log_levels[] = {
    [LOG_LEVEL_ERROR] = {"error", LOG_ERR},
    [LOG_LEVEL_WARN] = {"warn", LOG_WARNING},
    [LOG_LEVEL_INFO] = {"info", LOG_INFO},
    [LOG_LEVEL_DEBUG] = {"debug", LOG_DEBUG},
};

#define LEVELS (sizeof(log_levels) / sizeof(log_levels[0]))

/* $JOURNAL_STREAM is device:inode of the stream to systemd's journal that this process got as
 * stdout or stderr. stderr may have been redirected since. */
static bool stderr_is_journal(void)
{
	const char *stream = getenv("JOURNAL_STREAM");
	char identity[48];
	struct stat st;

	if (!stream || fstat(STDERR_FILENO, &st))
		return false;
	snprintf(identity, sizeof(identity), "%ju:%ju", (uintmax_t)st.st_dev, (uintmax_t)st.st_ino);
	return strcmp(stream, identity) == 0;
}

void log_setup(enum log_level level, unsigned targets)
{
	on_journal = stderr_is_journal();
	if (targets & LOG_TO_SYSLOG)
		openlog("gpumemfs", LOG_PID, LOG_DAEMON);
	log_threshold = level;
	log_targets = targets;
}

void log_level_set(enum log_level level)
{
	log_threshold = level;
}

enum log_level log_level_get(void)
{
	return log_threshold;
}

int log_level_parse(const char *name, enum log_level *level)
{
	for (size_t i = 0; i < LEVELS; i++) {
		if (strcmp(name, log_levels[i].name) == 0) {
			*level = (enum log_level)i;
			return 0;
		}
	}
	return -EINVAL;
}

const char *log_level_name(enum log_level level)
{
	return (size_t)level < LEVELS ? log_levels[level].name : "unknown";
}

bool log_enabled(enum log_level level)
{
	return level <= atomic_load_explicit(&log_threshold, memory_order_relaxed);
}

struct log_caller log_caller_change(struct log_caller next)
{
	struct log_caller previous = thread_caller;

	thread_caller = next;
	return previous;
}

void log_caller_set(uid_t uid)
{
	log_caller_change((struct log_caller){true, uid});
}

static struct log_limit_user *user_of(struct log_limit *limit, uid_t uid, int64_t now)
{
	struct log_limit_user *oldest = &limit->users[0];

	for (unsigned i = 0; i < LOG_LIMIT_USERS; i++) {
		struct log_limit_user *user = &limit->users[i];

		if (user->used && user->uid == uid)
			return user;
		if (oldest->used && (!user->used || user->last_line_ns < oldest->last_line_ns))
			oldest = user;
	}
	*oldest = (struct log_limit_user){.used = true, .uid = uid, .paid_until = now};
	return oldest;
}

bool log_limit_take(struct log_limit *limit, uid_t uid, int64_t now, uint64_t *left_out)
{
	struct log_limit_user *user = user_of(limit, uid, now);

	user->last_line_ns = now;
	if (user->paid_until < now)
		user->paid_until = now;
	if (user->paid_until + COST > now + LOG_LIMIT_BURST * COST) {
		user->left_out++;
		return false;
	}
	user->paid_until += COST;
	*left_out = user->left_out;
	user->left_out = 0;
	return true;
}

/* Whether the thread's user may log another line. */
static bool caller_may_log(uint64_t *left_out)
{
	if (!thread_caller.has_uid)
		return true;
	scoped_lock(&caller_limit.lock);
	return log_limit_take(&caller_limit.limit, thread_caller.uid, clock_ns(), left_out);
}

static void left_out_append(char *text, uint64_t left_out)
{
	char told[96];
	size_t length = strlen(text);
	int bytes = snprintf(told, sizeof(told), " (%" PRIu64 " lines caused by uid %u left out)",
			     left_out, thread_caller.uid);

	/* If the line is too long, cuts the text, not the number. */
	if (length > LINE_BYTES - 1 - (size_t)bytes)
		length = LINE_BYTES - 1 - (size_t)bytes;
	strcpy(text + length, told);
}

/* Escapes the text: a name that a user chose must not forge a second line or control a terminal. */
static void line_format(char text[LINE_BYTES], const char *format, va_list args)
{
	char raw[LINE_BYTES];
	bool cut = vsnprintf(raw, sizeof(raw), format, args) >= LINE_BYTES;

	if (*utf8_escape(raw, "", text, LINE_BYTES - sizeof(CUT_SHORT)) || cut)
		strcat(text, CUT_SHORT);
}

static void line_write(enum log_level level, uint64_t left_out, const char *format, va_list args)
{
	int saved_errno = errno;
	/* A byte more than the text may use, for the newline. */
	char line[sizeof(PREFIX) + LINE_BYTES + 1] = PREFIX;

	if (on_journal)
		snprintf(line, sizeof(line), "<%d>", log_levels[level].priority);
	char *text = line + strlen(line);
	line_format(text, format, args);
	if (left_out)
		left_out_append(text, left_out);

	unsigned targets = log_targets;
	if (targets & LOG_TO_SYSLOG)
		syslog(log_levels[level].priority, "%s", text);
	if (targets & LOG_TO_TERMINAL) {
		size_t bytes = strlen(line);
		line[bytes++] = '\n';
		scoped_lock(&terminal_lock);
		/* A failure cannot be reported anywhere. */
		ssize_t ignored = write(STDERR_FILENO, line, bytes);
		(void)ignored;
	}
	errno = saved_errno;
}

/* Errors are always logged: no user can cause errors at will. */
void log_write(enum log_level level, const char *format, ...)
{
	uint64_t left_out = 0;
	va_list args;

	if (!log_enabled(level) || (level == LOG_LEVEL_WARN && !caller_may_log(&left_out)))
		return;
	va_start(args, format);
	line_write(level, left_out, format, args);
	va_end(args);
}

void log_caller_error(const char *format, ...)
{
	uint64_t left_out = 0;
	va_list args;

	if (!caller_may_log(&left_out))
		return;
	va_start(args, format);
	line_write(LOG_LEVEL_ERROR, left_out, format, args);
	va_end(args);
}
