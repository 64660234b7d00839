/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* What the programs that take times here have in common. */
#ifndef TESTS_GPU_TIMING_H
#define TESTS_GPU_TIMING_H

#include <stdlib.h>
#include <time.h>

static inline double seconds(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (double)now.tv_sec + (double)now.tv_nsec / 1e9;
}

static inline int timing_compare(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

/* They are in order afterwards. */
static inline double median(double *times, size_t n)
{
	qsort(times, n, sizeof(times[0]), timing_compare);
	return times[n / 2];
}

#endif
