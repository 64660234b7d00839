/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* A background thread that works from time to time, or when there is work, until it is stopped. */
#ifndef FS_CORE_BACKGROUND_H
#define FS_CORE_BACKGROUND_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>

struct background {
	void (*work)(struct background *); /* NULL: no thread */
	void *context;			   /* for work */
	atomic_bool stopping;
	int wake_fd; /* an eventfd */
	pthread_t thread;
};

/* Starts a thread that calls work once; work returns when background_wait gives false. 0 or -errno.
 */
int background_start(struct background *background, void (*work)(struct background *),
		     void *context);
/* For work: waits for so long (-1: without end), or until background_wake. False: the thread must
 * end. */
bool background_wait(struct background *background, int ms);
/* Any thread; no effect without a thread. */
void background_wake(struct background *background);
/* Waits for the thread's end; no effect without a thread. */
void background_stop(struct background *background);

#endif
