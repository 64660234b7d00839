/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* Fills pages of a file ahead of a program that reads a mapping from front to back. The kernel's
 * own readahead allocates the pages in the thread that reads: on the reference machine memcpy(3)
 * then gets 5.2 GB/s out of a mapping, and 6.8 if another thread allocates them (tmpfs: 7.8).
 *
 * A thread of the daemon asks the kernel for these pages by process_madvise(2) on the reader's
 * mapping. It opens no file of the mount: a thread that waits for an answer of its own daemon
 * cannot be killed. The call needs CAP_SYS_NICE, and CAP_SYS_PTRACE for processes of other users;
 * without them only the kernel reads ahead. */
#ifndef FS_FUSE_PREFETCH_H
#define FS_FUSE_PREFETCH_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "common/background.h"

struct session;

/* A range of a file, for a process that maps the file. */
struct prefetch_job {
	uint64_t ino;
	uint64_t from, to;
	pid_t reader; /* a thread of the process */
};

/* A range that a program has read from its start on, without gaps. */
struct prefetch_stream {
	uint64_t ino;
	uint64_t start, end;
	uint64_t filled;	 /* pages were asked for up to here */
	uint64_t used;		 /* the greater, the later */
	struct prefetch_job job; /* to == 0: none waits */
};

#define PREFETCH_STREAMS 8

struct prefetch {
	struct background background;
	pthread_mutex_t lock;
	struct prefetch_stream streams[PREFETCH_STREAMS]; /* lock */
	uint64_t clock;					  /* lock */
	bool stopping;					  /* lock */
	_Atomic pid_t thread;				  /* 0: there is none */
	_Atomic uint64_t answered; /* bytes of requests that the thread caused */
};

void prefetch_start(struct session *session);
/* To be called while requests are served, or after the end of the mount. */
void prefetch_stop(struct session *session);

/* Notes a request that fills pages of a file of so many bytes. True: the stream has a new job. The
 * caller holds the lock. */
bool prefetch_note(struct prefetch *prefetch, const struct prefetch_job *request, uint64_t size);

#endif
