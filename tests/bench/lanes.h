/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* Several threads that work on a target together. */
#ifndef TESTS_BENCH_LANES_H
#define TESTS_BENCH_LANES_H

#include "tests/bench/bench.h"

/* A thread's part: 0 or -errno. All threads enter the function together. */
typedef int (*lane_work)(void *context, struct target *target, unsigned lane);

/* 0, or the first lane's error. */
int lanes_run(struct target *target, unsigned lanes, lane_work work, void *context);

#endif
