/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* Rates of sequential reads and writes, and latencies of random reads and writes. */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "tests/bench/cases.h"
#include "tests/bench/content.h"
#include "tests/bench/lanes.h"
#include "tests/bench/measure.h"
#include "tests/bench/report.h"
#include "tests/bench/stream.h"

#define SAMPLES	    (1U << 17)
#define CHECKED_OPS 64

static void explain(struct figure *figure, int error)
{
	if (error == -EILSEQ)
		figure_wrong(figure, "the bytes are not those that were written");
	else
		figure_wrong(figure, "%s", strerror(-error));
}

static void run_stream(struct bench *bench, const struct point *point, unsigned n,
		       struct target *target, struct figure *figure)
{
	struct stream stream = {.bench = bench, .point = point};
	int error = stream_run(&stream, target);

	(void)n;
	figure->verified = !error && bench->rep == 0;
	if (error)
		explain(figure, error);
	else
		figure_good(figure, measure_rate(stream.lanes, point->lanes), 0);
}

static void stream_point(struct bench *bench, enum direction direction, unsigned threads,
			 uint64_t bytes)
{
	struct point point = {
	    .bytes = bytes, .lanes = threads, .variant = direction, .unit = UNIT_RATE};
	char size[FIGURE_TEXT_MAX];

	if (bytes > bench->data.block || threads > bench->data.lanes)
		return;
	snprintf(point.label, sizeof(point.label), "%s, %u thread%s", report_size(bytes, size),
		 threads, threads == 1 ? "" : "s");
	point_add(bench, &point);
}

static void add_streams(struct bench *bench, enum direction direction)
{
	static const uint64_t sizes[] = {4 << 10, 64 << 10, 128 << 10, 1 << 20, 16 << 20};
	static const unsigned threads[] = {1, 4, 16};

	for (unsigned t = 0; t < sizeof(threads) / sizeof(threads[0]); t++)
		for (unsigned s = 0; s < sizeof(sizes) / sizeof(sizes[0]); s++)
			stream_point(bench, direction, threads[t], sizes[s]);
	stream_point(bench, direction, 32, 1 << 20);
}

static void read_points(struct bench *bench)
{
	add_streams(bench, READS);
}

static void write_points(struct bench *bench)
{
	add_streams(bench, WRITES);
}

/* New bytes at every point, so that bytes written at an earlier point cannot pass for the bytes of
 * this point. */
static void stamp(struct bench *bench, const struct point *points)
{
	(void)points;
	data_stamp(&bench->data);
}

const struct bench_case case_read = {
    .name = "read",
    .about =
	"sequential read(2) of one large file that is there, each thread in its own part, over "
	"and over: direct on FUSE, from the page cache on tmpfs",
    .transports = true,
    .points = read_points,
    .run = run_stream,
};

const struct bench_case case_write = {
    .name = "write",
    .about =
	"sequential write(2) over one large file whose memory is allocated, each thread in its "
	"own part, over and over: direct on FUSE, into the page cache on tmpfs; no fsync "
	"(nothing here has one to wait for)",
    .transports = true,
    .points = write_points,
    .prepare = stamp,
    .run = run_stream,
};

/* --- random */

/* A place in the first lane's region; the moved bytes do not cross a block. */
static uint64_t random_offset(const struct bench *bench, uint64_t *state, uint64_t bytes)
{
	return data_random(state) % (bench->data.region / bytes) * bytes;
}

static int check_reads(struct bench *bench, const struct point *point, struct target *target,
		       unsigned lane)
{
	uint64_t state = 1;

	for (unsigned i = 0; i < CHECKED_OPS; i++) {
		int error = content_check(bench, target, lane,
					  random_offset(bench, &state, point->bytes), point->bytes);
		if (error)
			return error;
	}
	return 0;
}

/* Writes fresh random bytes, reads the bytes back for comparison, and then writes the file's own
 * bytes again. */
static int check_writes(struct bench *bench, const struct point *point, struct target *target)
{
	uint64_t state = 2;

	for (unsigned i = 0; i < CHECKED_OPS; i++) {
		uint64_t offset = random_offset(bench, &state, point->bytes);
		char *place = data_source(&bench->data, 0) + offset % bench->data.block;
		char kept[DATA_PAGE];

		memcpy(kept, place, point->bytes);
		data_fill_random(place, point->bytes, data_random(&state));
		ssize_t n = stream_move(bench, target, WRITES, 0, offset, point->bytes);
		int error = n == (ssize_t)point->bytes ? 0 : n < 0 ? (int)n : -EIO;

		if (!error)
			error = content_check(bench, target, 0, offset, point->bytes);
		memcpy(place, kept, point->bytes);
		if (!error && stream_move(bench, target, WRITES, 0, offset, point->bytes) < 0)
			error = -EIO;
		if (error)
			return error;
	}
	return 0;
}

static int time_random(struct bench *bench, const struct point *point, struct target *target,
		       struct samples *samples)
{
	uint64_t state = bench->rep + 3;
	double end = measure_now() + bench->window, before, after = 0;

	while (samples->n < samples->room && after < end) {
		uint64_t offset = random_offset(bench, &state, point->bytes);

		before = measure_now();
		ssize_t n = stream_move(bench, target, (enum direction)point->variant, 0, offset,
					point->bytes);
		after = measure_now();
		if (n != (ssize_t)point->bytes)
			return n < 0 ? (int)n : -EIO;
		samples_add(samples, after - before);
	}
	return 0;
}

struct random_run {
	struct bench *bench;
	const struct point *point;
	struct samples samples;
};

static int random_lane(void *context, struct target *target, unsigned lane)
{
	struct random_run *run = context;
	int error = 0;

	(void)lane;
	if (run->bench->rep == 0)
		error = run->point->variant == READS
			    ? check_reads(run->bench, run->point, target, 0)
			    : check_writes(run->bench, run->point, target);
	return error ? error : time_random(run->bench, run->point, target, &run->samples);
}

static void run_random(struct bench *bench, const struct point *point, unsigned n,
		       struct target *target, struct figure *figure)
{
	struct random_run run = {.bench = bench, .point = point};
	int error = content_ensure(bench, target);

	(void)n;
	if (!error)
		error = samples_open(&run.samples, SAMPLES);
	if (!error)
		error = lanes_run(target, 1, random_lane, &run);
	figure->verified = !error && bench->rep == 0;
	if (error)
		explain(figure, error);
	else
		figure_good(figure, measure_percentile(run.samples.at, run.samples.n, 0.5),
			    measure_percentile(run.samples.at, run.samples.n, 0.99));
	samples_close(&run.samples);
}

/* --- random, by many threads: a rate */

static int storm_lane(void *context, struct target *target, unsigned lane)
{
	struct stream *stream = context;
	const struct point *point = stream->point;
	struct bench *bench = stream->bench;
	uint64_t state = bench->rep * LANES_MAX + lane + 4, done = 0;
	int error = bench->rep == 0 ? check_reads(bench, point, target, lane) : 0;
	double start = measure_now(), now = start, end = start + bench->window;

	for (; !error && now < end; now = measure_now()) {
		ssize_t n = stream_move(bench, target, READS, lane,
					random_offset(bench, &state, point->bytes), point->bytes);
		if (n != (ssize_t)point->bytes)
			return n < 0 ? (int)n : -EIO;
		done++;
	}
	stream->lanes[lane] = (struct stretch){done, start, now};
	return error;
}

static void run_storm(struct bench *bench, const struct point *point, unsigned n,
		      struct target *target, struct figure *figure)
{
	struct stream stream = {.bench = bench, .point = point};
	int error = content_ensure(bench, target);

	(void)n;
	if (!error)
		error = lanes_run(target, point->lanes, storm_lane, &stream);
	figure->verified = !error && bench->rep == 0;
	if (error)
		explain(figure, error);
	else
		figure_good(figure, measure_rate(stream.lanes, point->lanes), 0);
}

static void storm_points(struct bench *bench)
{
	for (unsigned lanes = 1; lanes <= bench->data.lanes && lanes <= 16; lanes *= 4) {
		struct point point = {.bytes = 4096, .lanes = lanes, .unit = UNIT_OPS};

		snprintf(point.label, sizeof(point.label), "read 4 KiB, %u thread%s", lanes,
			 lanes == 1 ? "" : "s");
		point_add(bench, &point);
	}
}

const struct bench_case case_storm = {
    .name = "storm",
    .about = "random reads by many threads at once, each in its own part of the large file, "
	     "operations in a second",
    .transports = true,
    .points = storm_points,
    .run = run_storm,
};

static void random_points(struct bench *bench)
{
	static const struct {
		uint64_t bytes;
		enum direction direction;
		const char *label;
	} wanted[] = {
	    {64, READS, "read 64 B"},
	    {64, WRITES, "write 64 B"},
	    {4096, READS, "read 4 KiB"},
	    {4096, WRITES, "write 4 KiB"},
	};

	for (unsigned i = 0; i < sizeof(wanted) / sizeof(wanted[0]); i++) {
		struct point point = {.bytes = wanted[i].bytes,
				      .lanes = 1,
				      .variant = wanted[i].direction,
				      .unit = UNIT_SECONDS};

		snprintf(point.label, sizeof(point.label), "%s", wanted[i].label);
		point_add(bench, &point);
	}
}

const struct bench_case case_random = {
    .name = "random",
    .about = "one read(2) or write(2) at a time at random places of one thread's part of the large "
	     "file, p50 and p99",
    .transports = true,
    .points = random_points,
    .run = run_random,
};
