/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* Several threads on one target at once. */
#ifndef TESTS_BENCH_LANES_H
#define TESTS_BENCH_LANES_H

#include "tests/bench/bench.h"

/* One thread's part: 0 or -errno. All threads enter it together. */
typedef int (*lane_work)(void *context, struct target *target, unsigned lane);

/* 0, or the first lane's error. */
int lanes_run(struct target *target, unsigned lanes, lane_work work, void *context);

#endif
