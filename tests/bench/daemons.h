/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* The targets with a daemon that the bench starts: the null daemons, and gpumemfs. */
#ifndef TESTS_BENCH_DAEMONS_H
#define TESTS_BENCH_DAEMONS_H

#include "tests/bench/bench.h"

/* A daemon that does not mount leaves a target with the reason. */
void daemons_open(struct bench *bench);

#endif
