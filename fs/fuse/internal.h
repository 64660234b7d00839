/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* What session.c and session_mount.c have in common. */
#ifndef FS_FUSE_INTERNAL_H
#define FS_FUSE_INTERNAL_H

#define FUSE_USE_VERSION 318
#include <fuse_lowlevel.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdatomic.h>
#include <stdbool.h>

#include "fs/fuse/session.h"

struct fuse_init;
struct lookup_gc;

struct session {
	struct fs *fs;
	struct session_table table;
	struct fuse_session *fuse;
	pthread_t *threads;
	unsigned n_threads;
	int *channels; /* the threads', open until nobody answers any more */
	atomic_uint n_channels;
	atomic_uint running;
	atomic_bool ending;
	int ended_fd; /* eventfd: the last thread is done */
	int signal_fd;
	sem_t answered;		     /* INIT is being served, or never will be */
	atomic_bool greeted;	     /* INIT was served */
	dev_t device;		     /* of the mount; 0: not known */
	int fuse_fd;		     /* with recovery=transparent: the mount's, beside libfuse's */
	struct lookup_gc *lookup_gc; /* where a daemon before this one had the mount */
	struct fuse_init *fuse_init; /* where there is a keeper */
};

/* session_mount.c. Each is 0, or -errno after a line in the log. */
int session_fuse_new(struct session *session);
/* The mount that a daemon before this one made, where there is one that goes on: as far as can be
 * without touching it. */
int session_find_earlier_mount(struct session *session);
/* Mounts, or puts libfuse onto the mount that was taken. */
int session_mount(struct session *session);

#endif
