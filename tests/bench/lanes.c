/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
#include "tests/bench/lanes.h"

#include <errno.h>
#include <pthread.h>

struct lane {
	pthread_t thread;
	struct crew *crew;
	unsigned index;
	int error;
};

struct crew {
	struct target *target;
	lane_work work;
	void *context;
	pthread_barrier_t begin;
	struct lane lanes[LANES_MAX];
};

static void *run(void *pointer)
{
	struct lane *lane = pointer;
	struct crew *crew = lane->crew;
	struct target *target = crew->target;

	lane->error = target->ops->enter(target, lane->index);
	pthread_barrier_wait(&crew->begin);
	if (!lane->error)
		lane->error = crew->work(crew->context, target, lane->index);
	return NULL;
}

/* Creates all threads, or ends the threads created so far with an error: the barrier never opens
 * for an incomplete crew. */
static int start(struct crew *crew, unsigned lanes)
{
	for (unsigned i = 0; i < lanes; i++) {
		crew->lanes[i] = (struct lane){.crew = crew, .index = i};
		int error = pthread_create(&crew->lanes[i].thread, NULL, run, &crew->lanes[i]);
		if (!error)
			continue;
		for (unsigned j = 0; j < i; j++) {
			pthread_cancel(crew->lanes[j].thread);
			pthread_join(crew->lanes[j].thread, NULL);
		}
		return -error;
	}
	return 0;
}

int lanes_run(struct target *target, unsigned lanes, lane_work work, void *context)
{
	struct crew crew = {.target = target, .work = work, .context = context};
	int error;

	if (lanes > LANES_MAX || pthread_barrier_init(&crew.begin, NULL, lanes))
		return -EINVAL;
	error = start(&crew, lanes);
	if (error)
		return error;
	for (unsigned i = 0; i < lanes; i++) {
		pthread_join(crew.lanes[i].thread, NULL);
		if (!error)
			error = crew.lanes[i].error;
	}
	pthread_barrier_destroy(&crew.begin);
	return error;
}
