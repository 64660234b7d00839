/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* The content of a target's file of data. */
#ifndef TESTS_BENCH_CONTENT_H
#define TESTS_BENCH_CONTENT_H

#include "tests/bench/bench.h"

/* Writes the whole file, all regions, unless the file holds the sources' data already: 0 or -errno.
 */
int content_ensure(struct bench *bench, struct target *target);

/* Reads bytes of a region, from offset, and compares them: 0, -EILSEQ for wrong bytes, or another
 * -errno. After raw BAR stores content_check reads by a copy of the driver. The calling thread has
 * entered the target. */
int content_check(struct bench *bench, struct target *target, unsigned lane, uint64_t offset,
		  uint64_t bytes);

/* Like content_check, for the first bytes of the regions of the first lanes, with a thread for each
 * lane. */
int content_check_all(struct bench *bench, struct target *target, unsigned lanes, uint64_t bytes);

#endif
