/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* The time of a file as one number, in memory, in the journal and in the spool's records. Within
 * FILE_TIME_EXACT seconds of 1970, until July of 2261, the number is nanoseconds; later and earlier
 * times are whole seconds beyond that limit, up to 730 million years. The order of times is the
 * order of numbers. */
#ifndef FS_CORE_FILE_TIME_H
#define FS_CORE_FILE_TIME_H

#include <stdbool.h>
#include <stdint.h>
#include <time.h>

#include "common/clock.h"

#define FILE_TIME_EXACT	   INT64_C(9200000000)
#define FILE_TIME_EXACT_NS (FILE_TIME_EXACT * CLOCK_SECOND)
#define FILE_TIME_MAX	   (FILE_TIME_EXACT + (INT64_MAX - 1 - FILE_TIME_EXACT_NS))

/* Earlier versions stored these numbers, in nanoseconds, for all times that did not fit. */
static inline bool file_time_is_clamped(int64_t time)
{
	return time == INT64_MAX || time == INT64_MIN;
}

static inline bool file_time_fits(const struct timespec *spec)
{
	return spec->tv_sec <= FILE_TIME_MAX && spec->tv_sec >= -FILE_TIME_MAX;
}

/* A time that fits; rounds down. */
static inline int64_t file_time_from_spec(const struct timespec *spec)
{
	int64_t seconds = spec->tv_sec;

	if (seconds >= FILE_TIME_EXACT)
		return FILE_TIME_EXACT_NS + (seconds - FILE_TIME_EXACT);
	if (seconds < -FILE_TIME_EXACT)
		return -FILE_TIME_EXACT_NS + (seconds + FILE_TIME_EXACT);
	return seconds * CLOCK_SECOND + spec->tv_nsec;
}

static inline struct timespec file_time_to_spec(int64_t time)
{
	if (!file_time_is_clamped(time) && time >= FILE_TIME_EXACT_NS)
		return (struct timespec){.tv_sec = FILE_TIME_EXACT + (time - FILE_TIME_EXACT_NS)};
	if (!file_time_is_clamped(time) && time < -FILE_TIME_EXACT_NS)
		return (struct timespec){.tv_sec = -FILE_TIME_EXACT + (time + FILE_TIME_EXACT_NS)};

	struct timespec spec = {.tv_sec = time / CLOCK_SECOND, .tv_nsec = time % CLOCK_SECOND};

	if (spec.tv_nsec < 0) {
		spec.tv_nsec += CLOCK_SECOND;
		spec.tv_sec--;
	}
	return spec;
}

#endif
