/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
#include <errno.h>
#include <jansson.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "fs/core/version.h"
#include "tests/bench/raw.h"
#include "tests/bench/report.h"

static json_t *figures(const struct result *result, enum unit unit)
{
	json_t *values = json_array();
	json_t *object = json_pack("{s:f, s:f, s:f, s:b}", unit == UNIT_SECONDS ? "p50" : "median",
				   result->value, "p10_of_repetitions", result->p10,
				   "p90_of_repetitions", result->p90, "verified", result->verified);

	if (unit == UNIT_SECONDS)
		json_object_set_new(object, "p99", json_real(result->p99));
	for (unsigned i = 0; i < result->n; i++)
		json_array_append_new(values, json_real(result->values[i]));
	json_object_set_new(object, "repetitions", values);
	return object;
}

static json_t *result_object(const struct result *result, enum unit unit)
{
	switch (result->state) {
	case FIGURE_GOOD:
		return figures(result, unit);
	case FIGURE_SKIPPED:
		return json_pack("{s:s}", "skipped", result->why);
	case FIGURE_WRONG:
		return json_pack("{s:s}", "failed", result->why);
	default:
		return json_pack("{s:s}", "skipped", "not run");
	}
}

static json_t *point_object(const struct bench *bench, const struct case_report *report,
			    unsigned index)
{
	const struct point *point = &report->points[index];
	json_t *results = json_object();

	for (unsigned i = 0; i < bench->n_targets; i++)
		json_object_set_new(
		    results, bench->targets[i].name,
		    result_object(&report->results[index * bench->n_targets + i], point->unit));
	return json_pack("{s:s, s:I, s:i, s:s, s:o}", "label", point->label, "bytes",
			 (json_int_t)point->bytes, "threads", (int)point->lanes, "unit",
			 report_unit_name(point->unit), "results", results);
}

static json_t *case_object(const struct bench *bench, const struct case_report *report)
{
	json_t *points = json_array();

	for (unsigned i = 0; i < report->n_points; i++)
		json_array_append_new(points, point_object(bench, report, i));
	return json_pack("{s:s, s:s, s:f, s:o}", "name", report->of->name, "about",
			 report->of->about, "seconds", report->seconds, "points", points);
}

static json_t *target_object(const struct target *target)
{
	return json_pack("{s:s, s:s}", "name", target->name, *target->absent ? "absent" : "about",
			 *target->absent ? target->absent : target->about);
}

static json_t *run_object(const struct bench *bench)
{
	static const char *const forms[] = {"quick", "default", "long"};
	char machine[256], date[32];
	time_t now = time(NULL);
	struct tm utc;

	strftime(date, sizeof(date), "%Y-%m-%dT%H:%M:%SZ", gmtime_r(&now, &utc));
	return json_pack(
	    "{s:s, s:s, s:s, s:s, s:s, s:i, s:f, s:I, s:i}", "gpumemfs", GPUMEMFS_VERSION, "date",
	    date, "machine", report_machine(machine, sizeof(machine)), "device",
	    bench->raw ? bench->raw->device : "", "form", forms[bench->options.form], "repetitions",
	    (int)bench->reps, "window_seconds", bench->window, "thread_bytes",
	    (json_int_t)bench->data.region, "failures", (int)bench_failures(bench));
}

int report_json(const struct bench *bench, const char *path)
{
	json_t *root = run_object(bench), *targets = json_array(), *cases = json_array();

	for (unsigned i = 0; i < bench->n_targets; i++)
		json_array_append_new(targets, target_object(&bench->targets[i]));
	for (unsigned i = 0; i < bench->n_reports; i++)
		json_array_append_new(cases, case_object(bench, &bench->reports[i]));
	json_object_set_new(root, "targets", targets);
	json_object_set_new(root, "cases", cases);
	int error = json_dump_file(root, path, JSON_INDENT(1) | JSON_REAL_PRECISION(6));

	json_decref(root);
	if (error)
		fprintf(stderr, "bench: %s: %s\n", path, strerror(errno));
	return error ? -1 : 0;
}
