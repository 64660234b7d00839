/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
#include "fs/trace/access_log.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/cleanup.h"
#include "common/clock.h"
#include "common/text/utf8.h"

/* A longer path is cut. */
#define PATH_ROOM  8192
#define CUT_SHORT  "..."
#define LINE_BYTES (2 * PATH_ROOM + 512)

int access_log_new(struct access_log **new_log)
{
	struct access_log *log = calloc(1, sizeof(*log));

	if (!log)
		return -ENOMEM;
	pthread_mutex_init(&log->lock, NULL);
	pthread_cond_init(&log->changed, NULL);
	*new_log = log;
	return 0;
}

void access_log_free(struct access_log *log)
{
	free(log->ring);
	pthread_cond_destroy(&log->changed);
	pthread_mutex_destroy(&log->lock);
	free(log);
}

int access_log_open(struct access_log *log, struct access_reader **opened)
{
	struct access_reader *reader = log->readers;

	scoped_lock(&log->lock);
	if (log->n_readers == ACCESS_READERS_MAX)
		return -ENFILE;
	if (!log->ring)
		log->ring = malloc(ACCESS_RING_BYTES);
	if (!log->ring)
		return -ENOMEM;
	while (reader->open)
		reader++;
	/* A new reader gets no line that is in the ring already. */
	uint64_t lines = log->lines_before;

	for (uint64_t at = log->tail; at != log->head; at++)
		lines += log->ring[at % ACCESS_RING_BYTES] == '\n';
	*reader = (struct access_reader){.open = true, .at = log->head, .lines = lines};
	log->n_readers++;
	*opened = reader;
	return 0;
}

bool access_log_close(struct access_log *log, struct access_reader *reader)
{
	scoped_lock(&log->lock);
	reader->open = false;
	if (--log->n_readers)
		return false;
	free(log->ring);
	log->ring = NULL;
	log->tail = log->head = log->lines_before = 0;
	return true;
}

/* --- writing */

struct line {
	char text[LINE_BYTES];
	size_t length;
};

/* Paths are escaped as in /proc/mounts: characters that would end a field or a line, and characters
 * that a terminal obeys, in octal. */
static void line_add_path(struct line *line, const char *name, const char *path, size_t room)
{
	line->length += (size_t)sprintf(line->text + line->length, " %s=", name);
	path = utf8_escape(path, " \\", line->text + line->length, room + 1);
	line->length += strlen(line->text + line->length);
	if (*path)
		line->length += (size_t)sprintf(line->text + line->length, CUT_SHORT);
}

static void line_add_result(struct line *line, int64_t result)
{
	const char *error = result < 0 ? strerrorname_np((int)-result) : NULL;
	char *end = line->text + line->length;

	if (error)
		line->length += (size_t)sprintf(end, " result=%s", error);
	else
		line->length += (size_t)sprintf(end, " result=%" PRId64, result);
}

static void line_make(struct line *line, const struct access_entry *entry)
{
	line->length = (size_t)sprintf(
	    line->text, "time=%lld.%09ld pid=%d uid=%u op=%s offset=%" PRIu64 " length=%" PRIu64,
	    (long long)entry->time.tv_sec, entry->time.tv_nsec, entry->pid, entry->uid,
	    entry->operation, entry->offset, entry->length);
	line_add_result(line, entry->result);
	line->length += (size_t)sprintf(line->text + line->length, " latency=%lld.%09lld",
					(long long)(entry->latency / 1000000000),
					(long long)(entry->latency % 1000000000));
	line_add_path(line, "path", entry->path, PATH_ROOM);
	if (entry->to)
		line_add_path(line, "to", entry->to, PATH_ROOM);
	line->text[line->length++] = '\n';
}

/* Drops the oldest line. */
static void ring_drop_line(struct access_log *log)
{
	while (log->ring[log->tail++ % ACCESS_RING_BYTES] != '\n')
		;
	log->lines_before++;
}

static void ring_put(struct access_log *log, const char *text, size_t length)
{
	size_t at = log->head % ACCESS_RING_BYTES;
	size_t first = length < ACCESS_RING_BYTES - at ? length : ACCESS_RING_BYTES - at;

	memcpy(log->ring + at, text, first);
	memcpy(log->ring, text + first, length - first);
	log->head += length;
}

void access_log_add(struct access_log *log, const struct access_entry *entry)
{
	struct line line;

	line_make(&line, entry);
	scoped_lock(&log->lock);
	if (!log->ring)
		return;
	while (log->head + line.length - log->tail > ACCESS_RING_BYTES)
		ring_drop_line(log);
	ring_put(log, line.text, line.length);
	log->changes++;
	pthread_cond_signal(&log->changed);
}

/* --- reading */

/* log->lock is held: a reader that fell behind the ring goes on with the oldest line in the ring,
 * and gets a notice first. */
static void reader_catch_up(struct access_log *log, struct access_reader *reader)
{
	if (reader->at >= log->tail || reader->notice_length)
		return;
	reader->notice_length =
	    (size_t)snprintf(reader->notice, sizeof(reader->notice), "%slost=%" PRIu64 "\n",
			     reader->in_line ? "\n" : "", log->lines_before - reader->lines);
	reader->notice_at = 0;
	reader->in_line = false;
	reader->at = log->tail;
	reader->lines = log->lines_before;
}

static size_t reader_take_notice(struct access_reader *reader, char *to, size_t bytes)
{
	size_t remaining = reader->notice_length - reader->notice_at;

	if (bytes > remaining)
		bytes = remaining;
	memcpy(to, reader->notice + reader->notice_at, bytes);
	reader->notice_at += bytes;
	if (reader->notice_at == reader->notice_length)
		reader->notice_at = reader->notice_length = 0;
	return bytes;
}

static size_t reader_take_lines(struct access_log *log, struct access_reader *reader, char *to,
				size_t bytes)
{
	size_t at = reader->at % ACCESS_RING_BYTES;

	if (bytes > log->head - reader->at)
		bytes = log->head - reader->at;
	size_t first = bytes < ACCESS_RING_BYTES - at ? bytes : ACCESS_RING_BYTES - at;

	memcpy(to, log->ring + at, first);
	memcpy(to + first, log->ring, bytes - first);
	for (size_t i = 0; i < bytes; i++)
		reader->lines += to[i] == '\n';
	reader->at += bytes;
	if (bytes)
		reader->in_line = to[bytes - 1] != '\n';
	return bytes;
}

size_t access_log_take(struct access_log *log, struct access_reader *reader, char *to, size_t bytes)
{
	scoped_lock(&log->lock);
	reader_catch_up(log, reader);
	if (reader->notice_length)
		return reader_take_notice(reader, to, bytes);
	return reader_take_lines(log, reader, to, bytes);
}

void access_log_wait(struct access_log *log, uint64_t *changes_seen, int ms)
{
	int64_t deadline = clock_ns() + ms * CLOCK_MS;
	int error = 0;

	scoped_lock(&log->lock);
	while (log->changes == *changes_seen && !error)
		error = ms < 0 ? pthread_cond_wait(&log->changed, &log->lock)
			       : clock_cond_wait(&log->changed, &log->lock, deadline);
	*changes_seen = log->changes;
}

void access_log_wake(struct access_log *log)
{
	scoped_lock(&log->lock);
	log->changes++;
	pthread_cond_signal(&log->changed);
}
