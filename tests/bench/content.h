/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* The content of a target's file of data. */
#ifndef TESTS_BENCH_CONTENT_H
#define TESTS_BENCH_CONTENT_H

#include "tests/bench/bench.h"

/* Writes the whole file, all regions, unless it holds the sources' data already: 0 or -errno. */
int content_ensure(struct bench *bench, struct target *target);

/* Reads bytes of a region, from offset, and compares them with the expected bytes: 0, -EILSEQ if
 * they differ, or another -errno. For raw BAR stores the bytes are read by a copy of the driver.
 * The calling thread has entered the target. */
int content_check(struct bench *bench, struct target *target, unsigned lane, uint64_t offset,
		  uint64_t bytes);

/* As content_check, for the first bytes of the regions of the first lanes, by a thread each. */
int content_check_all(struct bench *bench, struct target *target, unsigned lanes, uint64_t bytes);

#endif
