/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* A background thread that works from time to time, until the thread is stopped. */
#ifndef FS_CORE_BACKGROUND_H
#define FS_CORE_BACKGROUND_H

#include <pthread.h>
#include <stdbool.h>

struct background {
	void (*work)(struct background *); /* NULL: no thread */
	void *context;			   /* for work */
	int stop_fd;
	pthread_t thread;
};

/* Starts a thread that calls work once; work returns when background_wait gives false. 0 or -errno.
 */
int background_start(struct background *background, void (*work)(struct background *),
		     void *context);
/* For work: waits. False: the thread must end. */
bool background_wait(const struct background *background, int ms);
/* Waits for the thread's end; no effect without a thread. */
void background_stop(struct background *background);

#endif
