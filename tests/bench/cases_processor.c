/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* The processor time that streams cost, in the bench and in the target's daemon together. */
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "tests/bench/cases.h"
#include "tests/bench/process.h"
#include "tests/bench/report.h"
#include "tests/bench/stream.h"

#define STREAM_BYTES (1ULL << 20)
#define STREAMS	     16

static double used_for(const struct target *target)
{
	struct timespec own;

	clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &own);
	return (double)own.tv_sec + (double)own.tv_nsec / 1e9 +
	       (target->daemon ? process_use(target->daemon).seconds : 0);
}

static void run(struct bench *bench, const struct point *point, unsigned n, struct target *target,
		struct figure *figure)
{
	struct stream stream = {.bench = bench, .point = point};
	/* Fills the file and compares bytes before the time is taken. */
	int error = stream_run(&stream, target);
	unsigned rep = bench->rep;
	double before = used_for(target), moved = 0;

	(void)n;
	figure->verified = !error && rep == 0;
	bench->rep = rep + 1; /* no comparison again */
	if (!error)
		error = stream_run(&stream, target);
	bench->rep = rep;
	for (unsigned lane = 0; lane < point->lanes; lane++)
		moved += (double)stream.lanes[lane].done;
	if (error)
		figure_wrong(figure, "%s", strerror(-error));
	else
		figure_good(figure, (used_for(target) - before) / moved * (1 << 30), 0);
}

static void points(struct bench *bench)
{
	unsigned lanes = bench->data.lanes < STREAMS ? bench->data.lanes : STREAMS;

	for (enum direction direction = READS; direction <= WRITES; direction++) {
		struct point point = {.bytes = STREAM_BYTES,
				      .lanes = lanes,
				      .variant = direction,
				      .unit = UNIT_ELAPSED};

		snprintf(point.label, sizeof(point.label), "%s 1 GiB, %u threads",
			 direction == READS ? "read" : "write", lanes);
		point_add(bench, &point);
	}
}

const struct bench_case case_processor = {
    .name = "processor",
    .about = "processor time of all threads, the daemon's too, for a GiB in operations of 1 MiB, "
	     "each thread in its own part of the large file",
    .transports = true,
    .points = points,
    .run = run,
};
