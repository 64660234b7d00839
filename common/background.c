/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
#include "common/background.h"

#include <errno.h>

#include "common/cleanup.h"
#include "common/clock.h"

static void *background_main(void *pointer)
{
	struct background *background = pointer;

	background->work(background);
	return NULL;
}

int background_start(struct background *background, void (*work)(struct background *),
		     void *context)
{
	background->work = work;
	background->context = context;
	background->woken = false;
	atomic_store(&background->stopping, false);
	pthread_mutex_init(&background->lock, NULL);
	pthread_cond_init(&background->changed, NULL);
	atomic_store(&background->running, true);
	int error = pthread_create(&background->thread, NULL, background_main, background);

	if (error)
		atomic_store(&background->running, false);
	return -error;
}

bool background_wait(struct background *background, int ms)
{
	int64_t deadline = clock_ns() + ms * CLOCK_MS;
	int rc = 0;

	scoped_lock(&background->lock);
	while (!background->woken && !atomic_load(&background->stopping) && rc != ETIMEDOUT)
		rc = ms < 0 ? pthread_cond_wait(&background->changed, &background->lock)
			    : clock_cond_wait(&background->changed, &background->lock, deadline);
	background->woken = false;
	return !atomic_load(&background->stopping);
}

void background_wake(struct background *background)
{
	if (!atomic_load(&background->running))
		return;
	scoped_lock(&background->lock);
	background->woken = true;
	pthread_cond_signal(&background->changed);
}

/* The lock and the condition stay valid: another thread may be about to wake this one. */
void background_stop(struct background *background)
{
	if (!atomic_load(&background->running))
		return;
	pthread_mutex_lock(&background->lock);
	atomic_store(&background->stopping, true);
	pthread_cond_signal(&background->changed);
	pthread_mutex_unlock(&background->lock);
	pthread_join(background->thread, NULL);
	atomic_store(&background->running, false);
}
