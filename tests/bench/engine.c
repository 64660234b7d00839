/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* The interleaving: repetition r goes over all targets, then r + 1 in another order, so that no
 * target always runs after the same neighbour. The median counts. */
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/cleanup.h"
#include "tests/bench/bench.h"
#include "tests/bench/measure.h"

volatile bool bench_interrupted;

static void say(struct figure *figure, enum figure_state state, const char *format, va_list args)
{
	figure->state = state;
	vsnprintf(figure->why, sizeof(figure->why), format, args);
}

void figure_good(struct figure *figure, double value, double p99)
{
	figure->state = FIGURE_GOOD;
	figure->value = value;
	figure->p99 = p99;
}

void figure_skip(struct figure *figure, const char *format, ...)
{
	va_list args;

	va_start(args, format);
	say(figure, FIGURE_SKIPPED, format, args);
	va_end(args);
}

void figure_wrong(struct figure *figure, const char *format, ...)
{
	va_list args;

	va_start(args, format);
	say(figure, FIGURE_WRONG, format, args);
	va_end(args);
}

static struct case_report *current(struct bench *bench)
{
	return &bench->reports[bench->n_reports - 1];
}

static void *grown(void *array, size_t n, size_t size)
{
	void *more = realloc(array, n * size);

	if (!more) {
		fprintf(stderr, "bench: no memory\n");
		exit(2);
	}
	return more;
}

/* A case that measures its points together needs all of them. */
static bool is_asked_for(const struct options *options, const struct bench_case *of,
			 const char *label)
{
	if (of->rounds == CASE_TOGETHER)
		return true;
	for (unsigned i = 0; i < options->n_points; i++)
		if (strcmp(options->points[i], label) == 0)
			return true;
	return !options->n_points;
}

void point_add(struct bench *bench, const struct point *point)
{
	struct case_report *report = current(bench);

	if (!is_asked_for(&bench->options, report->of, point->label))
		return;
	report->points = grown(report->points, report->n_points + 1, sizeof(*report->points));
	report->points[report->n_points++] = *point;
}

static struct case_report *report_new(struct bench *bench, const struct bench_case *of)
{
	bench->reports = grown(bench->reports, bench->n_reports + 1, sizeof(*bench->reports));
	bench->reports[bench->n_reports++] = (struct case_report){.of = of};
	of->points(bench);

	struct case_report *report = current(bench);
	size_t n = (size_t)report->n_points * bench->n_targets;

	report->results = grown(NULL, n ? n : 1, sizeof(*report->results));
	for (size_t i = 0; i < n; i++)
		report->results[i] = (struct result){.point = (unsigned)(i / bench->n_targets),
						     .target = (unsigned)(i % bench->n_targets)};
	return report;
}

static void take(struct result *result, const struct figure *figure)
{
	if (figure->state != FIGURE_GOOD) {
		result->state = figure->state;
		memcpy(result->why, figure->why, sizeof(result->why));
		return;
	}
	if (!isfinite(figure->value)) {
		result->state = FIGURE_WRONG;
		snprintf(result->why, sizeof(result->why), "measured nothing");
		return;
	}
	result->state = FIGURE_GOOD;
	result->verified |= figure->verified;
	result->values[result->n] = figure->value;
	result->p99s[result->n++] = figure->p99;
}

static bool still_wanted(const struct result *results, unsigned n, unsigned stride)
{
	for (unsigned i = 0; i < n; i++)
		if (results[i * stride].state == FIGURE_NONE ||
		    results[i * stride].state == FIGURE_GOOD)
			return true;
	return false;
}

/* A repetition on a target. */
static void round_of(struct bench *bench, struct case_report *report, unsigned first, unsigned n,
		     unsigned index)
{
	struct result *results = &report->results[first * bench->n_targets + index];
	struct target *target = &bench->targets[index];
	AUTO_FREE struct figure *figures = calloc(n, sizeof(*figures));

	if (!figures || !still_wanted(results, n, bench->n_targets))
		return;
	if (*target->absent) {
		for (unsigned i = 0; i < n; i++)
			figure_skip(&figures[i], "%s", target->absent);
	} else if (!report->of->transports &&
		   (target->kind == TARGET_STOCK || target->kind == TARGET_RING)) {
		for (unsigned i = 0; i < n; i++)
			figure_skip(&figures[i], "not for the transports");
	} else if (measure_now() > bench->deadline || bench_interrupted) {
		for (unsigned i = 0; i < n; i++)
			if (results[i * bench->n_targets].n)
				figures[i].state = FIGURE_NONE;
			else
				figure_skip(&figures[i], bench_interrupted
							     ? "interrupted"
							     : "no time left (--budget)");
	} else {
		report->of->run(bench, &report->points[first], n, target, figures);
	}
	for (unsigned i = 0; i < n; i++)
		if (figures[i].state != FIGURE_NONE)
			take(&results[i * bench->n_targets], &figures[i]);
}

static void conclude(struct result *result)
{
	double values[REPS_MAX];

	if (result->state != FIGURE_GOOD || !result->n)
		return;
	memcpy(values, result->values, sizeof(values));
	result->value = measure_median(values, result->n);
	result->p10 = measure_percentile(values, result->n, 0.1);
	result->p90 = measure_percentile(values, result->n, 0.9);
	memcpy(values, result->p99s, sizeof(values));
	result->p99 = measure_median(values, result->n);
}

static void shuffle(unsigned *order, unsigned n, uint64_t seed)
{
	for (unsigned i = 0; i < n; i++) {
		unsigned other = (unsigned)(data_random(&seed) % (i + 1));

		order[i] = order[other];
		order[other] = i;
	}
}

static void run_repetitions(struct bench *bench, struct case_report *report, unsigned first,
			    unsigned n)
{
	unsigned order[TARGETS_MAX];

	for (bench->rep = 0; bench->rep < bench->reps; bench->rep++) {
		shuffle(order, bench->n_targets, first * REPS_MAX + bench->rep);
		for (unsigned i = 0; i < bench->n_targets; i++)
			round_of(bench, report, first, n, order[i]);
	}
}

void bench_run_case(struct bench *bench, const struct bench_case *of)
{
	double start = measure_now();
	struct case_report *report = report_new(bench, of);
	unsigned step = of->rounds == CASE_TOGETHER ? report->n_points : 1;

	for (unsigned first = 0; first < report->n_points; first += step) {
		if (of->prepare)
			of->prepare(bench, &report->points[first]);
		run_repetitions(bench, report, first, step);
	}
	for (unsigned i = 0; i < report->n_points * bench->n_targets; i++)
		conclude(&report->results[i]);
	report->seconds = measure_now() - start;
}

/* Targets that the bench brings itself must exist. A way to the BAR, tmpfs, peers and io_uring may
 * be missing. */
static bool is_missing(const struct target *target)
{
	return *target->absent && !target->over_ring &&
	       (target->kind == TARGET_RAW_COPY || target->kind == TARGET_NULL ||
		target->kind == TARGET_STOCK || target_is_gpumemfs(target));
}

unsigned bench_failures(const struct bench *bench)
{
	unsigned failures = 0;

	for (unsigned i = 0; i < bench->n_targets; i++)
		failures += is_missing(&bench->targets[i]);
	for (unsigned i = 0; i < bench->n_reports; i++) {
		const struct case_report *report = &bench->reports[i];

		for (unsigned j = 0; j < report->n_points * bench->n_targets; j++) {
			const struct result *result = &report->results[j];

			failures += result->state == FIGURE_WRONG ||
				    (result->state == FIGURE_GOOD && !result->verified);
		}
	}
	return failures;
}
