/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
#include "tests/bench/measure.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

double measure_now(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (double)now.tv_sec + (double)now.tv_nsec / 1e9;
}

static int ascending(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

double measure_median(double *values, size_t n)
{
	qsort(values, n, sizeof(*values), ascending);
	return n % 2 ? values[n / 2] : (values[n / 2 - 1] + values[n / 2]) / 2;
}

double measure_percentile(double *values, size_t n, double fraction)
{
	double exact = fraction * (double)n;
	size_t rank = (size_t)exact;

	qsort(values, n, sizeof(*values), ascending);
	if ((double)rank < exact || rank < 1)
		rank++;
	return values[(rank > n ? n : rank) - 1];
}

double measure_rate(const struct stretch *stretches, size_t n)
{
	double begun = stretches[0].begun, ended = stretches[0].ended, done = 0;

	for (size_t i = 0; i < n; i++) {
		done += (double)stretches[i].done;
		begun = stretches[i].begun < begun ? stretches[i].begun : begun;
		ended = stretches[i].ended > ended ? stretches[i].ended : ended;
	}
	return done / (ended - begun);
}

int samples_open(struct samples *samples, size_t room)
{
	*samples = (struct samples){.at = malloc(room * sizeof(double)), .room = room};
	if (!samples->at)
		return -ENOMEM;
	memset(samples->at, 0, room * sizeof(double)); /* faulted in */
	return 0;
}

void samples_close(struct samples *samples)
{
	free(samples->at);
	*samples = (struct samples){0};
}
