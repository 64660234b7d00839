/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* copy_file_range, compared with a raw copy. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/cleanup.h"
#include "tests/bench/cases.h"
#include "tests/bench/content.h"
#include "tests/bench/measure.h"
#include "tests/bench/raw.h"
#include "tests/bench/targets.h"
#include "tests/bench/whole.h"

enum place { SAME_GPU, OTHER_GPU };

static void points(struct bench *bench)
{
	static const char *const labels[] = {"inside a GPU", "to another GPU"};

	for (unsigned i = SAME_GPU; i <= OTHER_GPU; i++) {
		struct point point = {.bytes = targets_file_bytes(bench),
				      .lanes = 1,
				      .variant = i,
				      .unit = UNIT_RATE};

		snprintf(point.label, sizeof(point.label), "%s", labels[i]);
		point_add(bench, &point);
	}
}

static int copy_files(int from, int to, uint64_t bytes)
{
	loff_t from_at = 0, to_at = 0;

	while ((uint64_t)from_at < bytes) {
		ssize_t n =
		    copy_file_range(from, &from_at, to, &to_at, bytes - (uint64_t)from_at, 0);
		if (n <= 0)
			return n < 0 ? -errno : -EIO;
	}
	return 0;
}

/* Copies the target's file of data, once. */
struct copy {
	struct target *target;
	const struct point *point;
	int to; /* the file to copy to, for targets with files */
};

static int once(const struct copy *copy)
{
	if (target_is_raw(copy->target))
		return copy->target->raw->across(copy->target->raw, copy->point->variant,
						 copy->point->bytes);
	return copy_files(copy->target->fd, copy->to, copy->point->bytes);
}

static int read_back(const struct copy *copy, void *to, uint64_t bytes, uint64_t offset)
{
	struct raw *raw = copy->target->raw;

	if (target_is_raw(copy->target))
		return raw->read_copy(raw, copy->point->variant, to, bytes, offset);
	ssize_t n = pread(copy->to, to, bytes, (off_t)offset);

	return n == (ssize_t)bytes ? 0 : n < 0 ? -errno : -EIO;
}

static int verify(const struct bench *bench, const struct copy *copy)
{
	const struct data *data = &bench->data;

	for (uint64_t at = 0; at < copy->point->bytes; at += data->block) {
		uint64_t rest = copy->point->bytes - at;
		size_t piece = rest < data->block ? rest : data->block;
		unsigned lane = (unsigned)(at / data->region);
		char *sink = data_sink(data, lane);

		data_poison(sink, piece);
		int error = read_back(copy, sink, piece, at);

		if (!error && !data_is_right(data, lane, at % data->region, sink, piece))
			error = -EILSEQ;
		if (error)
			return error;
	}
	return 0;
}

static void time_copies(struct bench *bench, const struct copy *copy, struct figure *figure)
{
	int error = once(copy); /* not timed: allocates memory and gives the GPUs access */

	if (!error && bench->rep == 0) {
		error = verify(bench, copy);
		figure->verified = !error;
	}
	if (error == -ENOTSUP || error == -EXDEV || error == -EOPNOTSUPP || error == -ENOSYS) {
		figure_skip(figure, "copy_file_range: %s", strerror(-error));
		return;
	}
	double start = measure_now(), now = start;
	uint64_t done = 0;

	for (; !error && now < start + bench->window; now = measure_now()) {
		error = once(copy);
		done += copy->point->bytes;
	}
	if (error)
		whole_explain(figure, "copying", error);
	else
		figure_good(figure, (double)done / (now - start), 0);
}

static void run(struct bench *bench, const struct point *point, unsigned n, struct target *target,
		struct figure *figure)
{
	const char *dir = point->variant == OTHER_GPU ? target->other : target->dir;
	struct copy copy = {.target = target, .point = point, .to = -1};
	char path[PATH_MAX_];

	(void)n;
	if (target->kind == TARGET_RAW_BAR) {
		figure_skip(figure, "a CPU copies nothing inside a GPU");
		return;
	}
	if (target->kind == TARGET_RAW_COPY) {
		if (target->raw->across(target->raw, point->variant, DATA_PAGE) == -ENOTSUP) {
			figure_skip(figure, "there is no second GPU that is a peer");
			return;
		}
	} else if (!*dir) {
		figure_skip(figure, "there is one device only");
		return;
	}
	int error = content_ensure(bench, target);

	if (!error && !target_is_raw(target)) {
		whole_path(path, dir, "copied");
		copy.to = open(path, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
		error = copy.to < 0 ? -errno : 0;
	}
	if (error)
		whole_explain(figure, "preparing", error);
	else
		time_copies(bench, &copy, figure);
	if (copy.to >= 0) {
		close(copy.to);
		unlink(path);
	}
}

const struct bench_case case_copy = {
    .name = "copy",
    .about =
	"copy_file_range of a whole file over one that is there (its memory is allocated); raw: "
	"the GPU's copy, waited for",
    .points = points,
    .run = run,
};
