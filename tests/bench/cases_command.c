/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* The commands dd, cp and cat, as started from a shell. */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "tests/bench/cases.h"
#include "tests/bench/measure.h"
#include "tests/bench/process.h"
#include "tests/bench/targets.h"
#include "tests/bench/whole.h"

enum command { DD_IN, CP_IN, DD_OUT, CAT_OUT };

struct paths {
	char source[PATH_MAX_], file[PATH_MAX_], out[PATH_MAX_];
};

static void points(struct bench *bench)
{
	static const char *const labels[] = {"dd bs=1M into a new file", "cp to a new file",
					     "dd bs=1M out of it", "cat it"};

	for (unsigned i = DD_IN; i <= CAT_OUT; i++) {
		struct point point = {.bytes = targets_file_bytes(bench),
				      .lanes = 1,
				      .variant = i,
				      .unit = UNIT_RATE};

		snprintf(point.label, sizeof(point.label), "%s", labels[i]);
		point_add(bench, &point);
	}
}

/* Writes new data to the source file. */
static void prepare(struct bench *bench, const struct point *points_)
{
	char path[PATH_MAX_];

	data_stamp(&bench->data);
	whole_path(path, bench->scratch, "source");
	if (whole_make(bench, path, points_->bytes))
		fprintf(stderr, "bench: %s: cannot be written\n", path);
}

/* The command's exit status or -errno. out: target of the command's output; NULL: discarded. */
static int run_command(enum command command, struct paths *paths, const char *out)
{
	char from[PATH_MAX_ + 8], to[PATH_MAX_ + 8];
	bool in = command == DD_IN;

	snprintf(from, sizeof(from), "if=%s", in ? paths->source : paths->file);
	snprintf(to, sizeof(to), "of=%s", in ? paths->file : out ? out : "/dev/null");
	char *dd[] = {"dd", from, to, "bs=1M", "status=none", NULL};
	char *cp[] = {"cp", paths->source, paths->file, NULL};
	char *cat[] = {"cat", paths->file, NULL};

	return process_run(command == CP_IN	? cp
			   : command == CAT_OUT ? cat
						: dd,
			   command == CAT_OUT ? out : NULL);
}

/* The output is compared in a run of its own without timing, because writing the output takes time.
 */
static int verify(struct bench *bench, const struct point *point, struct paths *paths)
{
	bool in = point->variant == DD_IN || point->variant == CP_IN;
	int status = in ? 0 : run_command((enum command)point->variant, paths, paths->out);

	if (status)
		return status < 0 ? status : -EIO;
	return whole_check(bench, in ? paths->file : paths->out, point->bytes);
}

static void run(struct bench *bench, const struct point *point, unsigned n, struct target *target,
		struct figure *figure)
{
	bool in = point->variant == DD_IN || point->variant == CP_IN;
	struct paths paths;
	int error;

	(void)n;
	if (target_is_raw(target)) {
		figure_skip(figure, "no filesystem");
		return;
	}
	whole_path(paths.source, bench->scratch, "source");
	whole_path(paths.file, target->dir, "command");
	whole_path(paths.out, bench->scratch, "out");
	error = in ? 0 : whole_make(bench, paths.file, point->bytes);
	if (error) {
		whole_explain(figure, "preparing", error);
		return;
	}
	double start = measure_now();
	int status = run_command((enum command)point->variant, &paths, NULL);
	double seconds = measure_now() - start;

	if (status == -ENOENT) {
		figure_skip(figure, "the program is not installed");
	} else if (status) {
		figure_wrong(figure, "the program ended with status %d", status);
	} else {
		error = bench->rep == 0 ? verify(bench, point, &paths) : 0;
		figure->verified = bench->rep == 0;
		figure_good(figure, (double)point->bytes / seconds, 0);
		if (error)
			whole_explain(figure, "verifying", error);
	}
	unlink(paths.file);
	unlink(paths.out);
}

const struct bench_case case_command = {
    .name = "command",
    .about =
	"whole commands, from start to exit: in from a file in tmpfs to a new file (allocation "
	"and zeroing count), out to /dev/null",
    .points = points,
    .prepare = prepare,
    .run = run,
};
