/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* The state of a session and the functions that session.c and mount.c share. */
#ifndef FS_FUSE_INTERNAL_H
#define FS_FUSE_INTERNAL_H

#include <fuse_lowlevel.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdatomic.h>
#include <stdbool.h>

#include "common/background.h"
#include "common/cacheline.h"
#include "fs/fuse/page_drop.h"
#include "fs/fuse/prefetch.h"
#include "fs/fuse/session.h"

struct crew;
struct fuse_init;

/* The type of the mount in /proc/self/mountinfo. */
#define FSTYPE "fuse.gpumemfs"

/* A thread polls for a request instead of sleeping while at most this many threads serve requests
 * or poll: max_awake is 0 if none may. */
struct busy_poll {
	unsigned max_awake;
	atomic_uint awake;
};

struct session {
	struct fs *fs;
	struct session_table table;
	struct fuse_session *fuse;
	pthread_t *threads;
	unsigned n_threads;
	struct crew *crew;
	int *channels; /* the workers' devices, open until no reply is sent any more */
	atomic_uint n_channels;
	atomic_uint running;
	atomic_bool ending;
	int ended_fd; /* an eventfd: the last thread has ended */
	int signal_fd;
	sem_t answered;	     /* posted when INIT is being served or all threads have ended */
	atomic_bool greeted; /* INIT was served */
	dev_t device;	     /* the mount's device number; 0: unknown */
	int fuse_fd;	     /* with recovery=transparent: a second descriptor of the mount, beside
				libfuse's; else -1 */
	struct background lookup_gc; /* only if an earlier daemon had the mount */
	struct page_drop page_drop;
	struct prefetch prefetch;
	_Alignas(CACHELINE_ALIGN) struct busy_poll busy_poll;  /* changed by all threads */
	_Alignas(CACHELINE_ALIGN) struct fuse_init *fuse_init; /* NULL without a keeper */
};

/* The functions of mount.c. Each returns 0, or -errno after a line in the log. */
int session_fuse_new(struct session *session);
/* Finds the mount of an earlier daemon with recovery=transparent, and prepares to serve the mount
 * without any effect on the mount. */
int session_find_earlier_mount(struct session *session);
/* Mounts, or connects libfuse to the mount that session_find_earlier_mount found. */
int session_mount(struct session *session);

#endif
