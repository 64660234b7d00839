/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
#include "tests/bench/content.h"

#include <errno.h>

#include "tests/bench/lanes.h"

#define FILL_BYTES (1U << 20)

static int fill_region(void *context, struct target *target, unsigned lane)
{
	struct bench *bench = context;
	const struct data *data = &bench->data;
	size_t piece = data->block < FILL_BYTES ? data->block : FILL_BYTES;

	for (uint64_t at = 0; at < data->region; at += piece) {
		ssize_t n =
		    target->ops->write(target, lane, data_source(data, lane) + at % data->block,
				       piece, lane * data->region + at);
		if (n != (ssize_t)piece)
			return n < 0 ? (int)n : -EIO;
	}
	return 0;
}

int content_ensure(struct bench *bench, struct target *target)
{
	if (target->content == bench->data.generation)
		return 0;
	int error = lanes_run(target, bench->data.lanes, fill_region, bench);

	if (!error)
		target->content = bench->data.generation;
	return error;
}

/* The raw targets share their memory, and the driver's copy is the most trusted reader. */
static struct target *reader_of(struct bench *bench, struct target *target)
{
	if (target->kind != TARGET_RAW_BAR)
		return target;
	for (unsigned i = 0; i < bench->n_targets; i++)
		if (bench->targets[i].kind == TARGET_RAW_COPY)
			return &bench->targets[i];
	return target;
}

int content_check(struct bench *bench, struct target *target, unsigned lane, uint64_t offset,
		  uint64_t bytes)
{
	const struct data *data = &bench->data;
	struct target *reader = reader_of(bench, target);
	char *sink = data_sink(data, lane);

	while (bytes) {
		uint64_t rest = data->period - offset % data->period;
		size_t piece = bytes < rest ? bytes : rest;

		data_poison(sink, piece);
		ssize_t n =
		    reader->ops->read(reader, lane, sink, piece, lane * data->region + offset);
		if (n != (ssize_t)piece)
			return n < 0 ? (int)n : -EIO;
		if (!data_is_right(data, lane, offset, sink, piece))
			return -EILSEQ;
		offset += piece;
		bytes -= piece;
	}
	return 0;
}

struct check {
	struct bench *bench;
	uint64_t bytes;
};

static int check_region(void *context, struct target *target, unsigned lane)
{
	struct check *check = context;

	return content_check(check->bench, target, lane, 0, check->bytes);
}

int content_check_all(struct bench *bench, struct target *target, unsigned lanes, uint64_t bytes)
{
	struct check check = {.bench = bench, .bytes = bytes};

	return lanes_run(target, lanes, check_region, &check);
}
