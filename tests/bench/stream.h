/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* Reads or writes of one size by some threads, each in its own part of a target's file, for the
 * bench's window of time. */
#ifndef TESTS_BENCH_STREAM_H
#define TESTS_BENCH_STREAM_H

#include "tests/bench/bench.h"
#include "tests/bench/measure.h"

enum direction { READS, WRITES }; /* the variant of a point */

struct stream {
	struct bench *bench;
	const struct point *point;
	struct stretch lanes[LANES_MAX]; /* count bytes, or operations */
	double processor;		 /* seconds, of the threads and of the target's daemon */
};

/* The point's stream, with a comparison of bytes in the first repetition: 0, -EILSEQ for wrong
 * bytes, or another -errno. Each thread uses one buffer of the operation's size, again and again,
 * as dd and cp do. */
int stream_run(struct stream *stream, struct target *target);

/* An operation at an offset of the lane's region: the bytes moved, or -errno. */
ssize_t stream_move(struct bench *bench, struct target *target, enum direction direction,
		    unsigned lane, uint64_t offset, size_t bytes);

#endif
