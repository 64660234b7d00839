/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* Runs several threads on a target at the same time. */
#ifndef TESTS_BENCH_LANES_H
#define TESTS_BENCH_LANES_H

#include "tests/bench/bench.h"

/* A thread's part: 0 or -errno. All threads enter the function together. */
typedef int (*lane_work)(void *context, struct target *target, unsigned lane);

/* 0, or the error of the lowest lane that failed. */
int lanes_run(struct target *target, unsigned lanes, lane_work work, void *context);

#endif
