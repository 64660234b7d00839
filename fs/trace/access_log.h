/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* The lines of .gpumem/accesslog: one ring of text for all readers, each of whom gets every line
 * from when he came. The ring exists while there are readers; one that falls behind by more than it
 * holds is told how many lines he lost. Thread-safe. */
#ifndef FS_TRACE_ACCESS_LOG_H
#define FS_TRACE_ACCESS_LOG_H

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>
#include <time.h>

#define ACCESS_RING_BYTES (1U << 20)

/* Over io_uring a read that waits keeps one of the 8 entries that a processor has in libfuse's
 * ring: fewer than that, or the readers would keep all others out. */
#define ACCESS_READERS_MAX 4

struct access_entry {
	struct timespec time; /* CLOCK_REALTIME */
	pid_t pid;
	uid_t uid;
	const char *operation;
	uint64_t offset, length;
	int64_t result;	  /* 0 or more, or -errno */
	int64_t latency;  /* ns */
	const char *path; /* any bytes */
	const char *to;	  /* the second path, or NULL */
};

struct access_reader {
	bool open;
	uint64_t at;	/* in the stream of bytes */
	uint64_t lines; /* that lie before at */
	bool in_line;	/* the last byte that was given was no newline */
	char notice[48];
	size_t notice_at, notice_length;
};

struct access_log {
	pthread_mutex_t lock; /* of all below */
	pthread_cond_t changed;
	char *ring;	       /* ACCESS_RING_BYTES; NULL without readers */
	uint64_t tail, head;   /* the stream's bytes that the ring holds: whole lines */
	uint64_t lines_before; /* that lie before tail */
	uint64_t changes;      /* what access_log_wait waits for */
	unsigned n_readers;
	struct access_reader readers[ACCESS_READERS_MAX];
};

/* -ENOMEM. */
int access_log_new(struct access_log **made);
void access_log_free(struct access_log *log);

/* 0, -ENFILE where there are too many, -ENOMEM. */
int access_log_open(struct access_log *log, struct access_reader **reader);
/* Whether that was the last one. */
bool access_log_close(struct access_log *log, struct access_reader *reader);

/* Nothing where there are no readers. */
void access_log_add(struct access_log *log, const struct access_entry *entry);
/* The reader's next bytes, whole lines or not; 0: there are none yet. */
size_t access_log_take(struct access_log *log, struct access_reader *reader, char *to,
		       size_t bytes);

/* Returns when something changed since *seen, which is brought up to date, or after the time;
 * ms < 0: no time. access_log_wake is such a change. */
void access_log_wait(struct access_log *log, uint64_t *seen, int ms);
void access_log_wake(struct access_log *log);

#endif
