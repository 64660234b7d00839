/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* Time and statistics. */
#ifndef TESTS_BENCH_MEASURE_H
#define TESTS_BENCH_MEASURE_H

#include <stddef.h>
#include <stdint.h>

double measure_now(void); /* seconds, monotonic */

/* Median of n >= 1 values; for an even n the mean of the two middle values. Sorts the values. */
double measure_median(double *values, size_t n);

/* The smallest of the values that is not exceeded by at least a fraction (0..1) of the values
 * (nearest rank). Sorts the values. */
double measure_percentile(double *values, size_t n, double fraction);

/* The bytes or other units done by a thread of several that work side by side. */
struct stretch {
	uint64_t done;
	double begun, ended; /* measure_now */
};

/* The sum of n >= 1 stretches in a second, from the first begin to the last end. The threads' own
 * rates must not be added: threads that end first count bytes for which the threads behind them in
 * a device's queue still wait (16 threads of 16 MiB in 20 ms: a tenth more than the link moves). */
double measure_rate(const struct stretch *stretches, size_t n);

/* Times of single operations. Samples beyond the capacity are dropped: no allocation while timing.
 */
struct samples {
	double *at;
	size_t n, room;
};

int samples_open(struct samples *samples, size_t room); /* 0 or -ENOMEM */
void samples_close(struct samples *samples);

static inline void samples_add(struct samples *samples, double seconds)
{
	if (samples->n < samples->room)
		samples->at[samples->n++] = seconds;
}

#endif
