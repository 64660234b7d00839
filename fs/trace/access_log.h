/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* The lines of .gpumem/accesslog: a ring of text for all readers. Each reader gets every line since
 * its open. The ring exists while there are readers. A reader that falls behind by more than the
 * ring holds gets a notice with the number of lost lines. Thread-safe. */
#ifndef FS_TRACE_ACCESS_LOG_H
#define FS_TRACE_ACCESS_LOG_H

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>
#include <time.h>

#include "fs/core/fs.h"

#define ACCESS_RING_BYTES (1U << 20)

/* Over io_uring a waiting read keeps an entry of the 8 that a processor has in libfuse's ring: with
 * as many readers, no other request would be served. */
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
	uint64_t at;	/* the position in the stream of bytes */
	uint64_t lines; /* lines before at */
	bool in_line;	/* the last byte that the reader got was not a newline */
	char notice[48];
	size_t notice_at, notice_length;
};

struct access_log {
	pthread_mutex_t lock; /* of all below */
	pthread_cond_t changed;
	char *ring;	       /* ACCESS_RING_BYTES; NULL without readers */
	uint64_t tail, head;   /* the part of the stream that the ring holds: whole lines */
	uint64_t lines_before; /* lines before tail */
	uint64_t changes;      /* counted for access_log_wait */
	unsigned n_readers;
	struct access_reader readers[ACCESS_READERS_MAX];
};

static inline FS_STATE(struct access_log, access_log_of, FS_ACCESS_LOG)

    /* 0 or -ENOMEM. */
    int access_log_new(struct access_log **new_log);
void access_log_free(struct access_log *log);

/* 0, -ENFILE with too many readers, or -ENOMEM. */
int access_log_open(struct access_log *log, struct access_reader **reader);
/* Whether the reader was the last. */
bool access_log_close(struct access_log *log, struct access_reader *reader);

/* Without readers the entry is dropped. */
void access_log_add(struct access_log *log, const struct access_entry *entry);
/* The reader's next bytes, whole lines or not; 0: no bytes yet. */
size_t access_log_take(struct access_log *log, struct access_reader *reader, char *to,
		       size_t bytes);

/* Returns when changes differs from *changes_seen, which is then updated, or after ms; ms < 0:
 * waits without an end. access_log_wake is a change. */
void access_log_wait(struct access_log *log, uint64_t *changes_seen, int ms);
void access_log_wake(struct access_log *log);

#endif
