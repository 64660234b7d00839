/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* A background thread that works from time to time, or when there is work, until it is stopped. */
#ifndef COMMON_BACKGROUND_H
#define COMMON_BACKGROUND_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>

/* Zeroed memory has no thread. */
struct background {
	void (*work)(struct background *);
	void *context; /* for work */
	pthread_t thread;
	atomic_bool running; /* the thread is to be joined */
	atomic_bool stopping;
	pthread_mutex_t lock;
	pthread_cond_t changed;
	bool woken; /* lock: since the last wait */
};

/* Starts a thread that calls work once; work returns when background_wait gives false. 0 or -errno.
 */
int background_start(struct background *background, void (*work)(struct background *),
		     void *context);
/* For work: waits for so long (-1: without end), or until background_wake. False: the thread must
 * end. */
bool background_wait(struct background *background, int ms);
/* Any thread, also while another stops it; no effect without a thread. */
void background_wake(struct background *background);
/* Waits for the thread's end; no effect without a thread. */
void background_stop(struct background *background);

#endif
