/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* The processor time that streams cost, in the bench and in the target's daemon together. */
#include <stdio.h>
#include <string.h>

#include "tests/bench/cases.h"
#include "tests/bench/stream.h"

#define STREAM_BYTES (1ULL << 20)
#define STREAMS	     16

static void run(struct bench *bench, const struct point *point, unsigned n, struct target *target,
		struct figure *figure)
{
	struct stream stream = {.bench = bench, .point = point};
	int error = stream_run(&stream, target);
	double moved = 0;

	(void)n;
	for (unsigned lane = 0; lane < point->lanes; lane++)
		moved += (double)stream.lanes[lane].done;
	figure->verified = !error && bench->rep == 0;
	if (error)
		figure_wrong(figure, "%s", strerror(-error));
	else
		figure_good(figure, stream.processor / moved * (1 << 30), 0);
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
