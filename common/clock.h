/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* The time as a number: CLOCK_MONOTONIC in nanoseconds, microseconds, milliseconds or seconds, and
 * any other clock in nanoseconds. */
#ifndef COMMON_CLOCK_H
#define COMMON_CLOCK_H

#include <pthread.h>
#include <stdint.h>
#include <time.h>

#define CLOCK_SECOND INT64_C(1000000000)
#define CLOCK_MS     INT64_C(1000000)

static inline int64_t clock_ns_of(clockid_t clock)
{
	struct timespec now;

	clock_gettime(clock, &now);
	return now.tv_sec * CLOCK_SECOND + now.tv_nsec;
}

static inline int64_t clock_ns(void)
{
	return clock_ns_of(CLOCK_MONOTONIC);
}

static inline int64_t clock_us(void)
{
	return clock_ns() / 1000;
}

static inline int64_t clock_ms(void)
{
	return clock_ns() / CLOCK_MS;
}

static inline int64_t clock_seconds(void)
{
	return clock_ns() / CLOCK_SECOND;
}

/* The wall-clock time of a time of clock_ns, in seconds since the epoch. */
static inline int64_t clock_epoch_seconds(int64_t ns)
{
	return (clock_ns_of(CLOCK_REALTIME) - (clock_ns() - ns)) / CLOCK_SECOND;
}

/* Waits on the condition until a time of clock_ns: 0, or ETIMEDOUT. */
static inline int clock_cond_wait(pthread_cond_t *condition, pthread_mutex_t *lock,
				  int64_t deadline)
{
	struct timespec time = {.tv_sec = deadline / CLOCK_SECOND,
				.tv_nsec = deadline % CLOCK_SECOND};

	return pthread_cond_clockwait(condition, lock, CLOCK_MONOTONIC, &time);
}

#endif
