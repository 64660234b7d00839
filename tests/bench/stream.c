/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
#include "tests/bench/stream.h"

#include <errno.h>
#include <time.h>

#include "tests/bench/content.h"
#include "tests/bench/lanes.h"
#include "tests/bench/process.h"

#define VERIFY_BYTES (1ULL << 20) /* per lane; at least a single operation */

ssize_t stream_move(struct bench *bench, struct target *target, enum direction direction,
		    unsigned lane, uint64_t offset, size_t bytes)
{
	const struct data *data = &bench->data;
	uint64_t in_file = lane * data->region + offset, in_block = offset % data->period;

	if (direction == READS)
		return target->ops->read(target, lane, data_sink(data, lane) + in_block, bytes,
					 in_file);
	return target->ops->write(target, lane, data_source(data, lane) + in_block, bytes, in_file);
}

static int stream_lane(void *context, struct target *target, unsigned lane)
{
	struct stream *stream = context;
	const struct point *point = stream->point;
	uint64_t done = 0, region = stream->bench->data.region;
	double start = measure_now(), now = start, end = start + stream->bench->window;

	for (; now < end; now = measure_now()) {
		ssize_t n = stream_move(stream->bench, target, (enum direction)point->variant, lane,
					done % region, point->bytes);
		if (n != (ssize_t)point->bytes)
			return n < 0 ? (int)n : -EIO;
		done += point->bytes;
	}
	stream->lanes[lane] = (struct stretch){done, start, now};
	return 0;
}

static uint64_t verified_bytes(const struct point *point)
{
	return point->bytes > VERIFY_BYTES ? point->bytes : VERIFY_BYTES;
}

static uint64_t least_done(const struct stream *stream)
{
	uint64_t least = verified_bytes(stream->point);

	for (unsigned lane = 0; lane < stream->point->lanes; lane++)
		if (stream->lanes[lane].done < least)
			least = stream->lanes[lane].done;
	return least;
}

static double processor_seconds(const struct target *target)
{
	struct timespec own;

	clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &own);
	return (double)own.tv_sec + (double)own.tv_nsec / 1e9 +
	       (target->daemon ? process_use(target->daemon).seconds : 0);
}

static int run_lanes(struct stream *stream, struct target *target)
{
	double before = processor_seconds(target);
	int error = lanes_run(target, stream->point->lanes, stream_lane, stream);

	stream->processor = processor_seconds(target) - before;
	return error;
}

static int run_reads(struct stream *stream, struct target *target)
{
	struct bench *bench = stream->bench;
	uint64_t checked = verified_bytes(stream->point);
	int error = content_ensure(bench, target);

	if (!error && bench->rep == 0)
		error =
		    content_check_all(bench, target, stream->point->lanes,
				      checked < bench->data.region ? checked : bench->data.region);
	bench->data.period = stream->point->bytes;
	if (!error)
		error = run_lanes(stream, target);
	return error;
}

static int run_writes(struct stream *stream, struct target *target)
{
	struct bench *bench = stream->bench;

	target->content = 0;
	bench->data.period = stream->point->bytes;
	int error = run_lanes(stream, target);

	if (!error && bench->rep == 0)
		error = content_check_all(bench, target, stream->point->lanes, least_done(stream));
	return error;
}

int stream_run(struct stream *stream, struct target *target)
{
	int error = stream->point->variant == READS ? run_reads(stream, target)
						    : run_writes(stream, target);

	stream->bench->data.period = stream->bench->data.block;
	return error;
}
