/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
#include "tests/bench/report.h"

#include <stdio.h>
#include <string.h>
#include <sys/sysinfo.h>
#include <sys/utsname.h>

#include "tests/bench/raw.h"

#define COLUMN	     20
#define NAMED_POINTS 4

const char *report_machine(char *text, size_t size)
{
	struct utsname kernel;

	uname(&kernel);
	snprintf(text, size, "%d processors, %s %s", get_nprocs(), kernel.sysname, kernel.release);
	return text;
}

void report_head(const struct bench *bench)
{
	char machine[256];

	printf("%s; %s\n", bench->raw ? bench->raw->device : "no raw target",
	       report_machine(machine, sizeof(machine)));
	printf("%u repetition%s of %.0f ms, interleaved; %u x %llu MiB a file\n", bench->reps,
	       bench->reps == 1 ? "" : "s", bench->window * 1e3, bench->data.lanes,
	       (unsigned long long)bench->data.region >> 20);
	if (bench->reps > 1)
		printf("medians; %%: from the repetitions' 10th to their 90th percentile, of the "
		       "median\n");
	if (bench->options.form == FORM_QUICK)
		printf("quick: shows that the cases work; the figures mean little\n");
	for (unsigned i = 0; i < bench->n_targets; i++) {
		const struct target *target = &bench->targets[i];

		printf("  %-10s %s%s\n", target->name, *target->absent ? "not here: " : "",
		       *target->absent ? target->absent : target->about);
	}
	fflush(stdout);
}

static const struct result *result_of(const struct bench *bench, const struct case_report *report,
				      unsigned point, unsigned target)
{
	return &report->results[point * bench->n_targets + target];
}

/* Whether a target has a figure or a reason in a case. */
static bool takes_part(const struct bench *bench, const struct case_report *report, unsigned target)
{
	for (unsigned i = 0; i < report->n_points; i++)
		if (result_of(bench, report, i, target)->state != FIGURE_SKIPPED)
			return true;
	return false;
}

static void cell(const struct point *point, const struct result *result)
{
	char p50[FIGURE_TEXT_MAX], p99[FIGURE_TEXT_MAX], text[3 * FIGURE_TEXT_MAX];

	if (result->state == FIGURE_WRONG)
		snprintf(text, sizeof(text), "FAILED");
	else if (result->state != FIGURE_GOOD)
		snprintf(text, sizeof(text), "-");
	else if (point->unit == UNIT_SECONDS)
		snprintf(text, sizeof(text), "%s/%s", report_value(point->unit, result->value, p50),
			 report_value(point->unit, result->p99, p99));
	else
		report_value(point->unit, result->value, text);
	/* Print the unit only once if both units are the same. */
	char *first = strchr(text, ' '), *slash = strchr(text, '/');
	char *second = slash ? strchr(slash, ' ') : NULL;

	if (point->unit == UNIT_SECONDS && first && second &&
	    slash - first == (int)strlen(second) && memcmp(first, second, strlen(second)) == 0)
		memmove(first, slash, strlen(slash) + 1);
	if (result->state == FIGURE_GOOD && result->n > 1 && result->value > 0)
		snprintf(text + strlen(text), FIGURE_TEXT_MAX, " %.0f%%",
			 (result->p90 - result->p10) / result->value * 100);
	printf(" %*s", COLUMN - 1, text);
}

/* The common reason why a target has no figure in a case; NULL if the target has a figure, or
 * several reasons. */
static const char *whole_reason(const struct bench *bench, const struct case_report *report,
				unsigned target)
{
	const char *why = result_of(bench, report, 0, target)->why;

	for (unsigned i = 0; i < report->n_points; i++) {
		const struct result *result = result_of(bench, report, i, target);

		if (result->state != FIGURE_SKIPPED || strcmp(result->why, why) != 0)
			return NULL;
	}
	return why;
}

/* Prints "a, b: skipped: why", once for each reason. */
static void whole_reasons(const struct bench *bench, const struct case_report *report)
{
	bool said[TARGETS_MAX] = {false};

	for (unsigned i = 0; i < bench->n_targets; i++) {
		const char *why = whole_reason(bench, report, i);

		if (!why || said[i])
			continue;
		printf("  %s", bench->targets[i].name);
		for (unsigned j = i + 1; j < bench->n_targets; j++) {
			const char *other = whole_reason(bench, report, j);

			if (!other || strcmp(other, why) != 0)
				continue;
			said[j] = true;
			printf(", %s", bench->targets[j].name);
		}
		printf(": skipped: %s\n", why);
	}
}

static bool same_reason(const struct result *a, const struct result *b)
{
	return a->state == b->state && strcmp(a->why, b->why) == 0;
}

/* Prints the points with the same reason: the names of up to NAMED_POINTS points, else the number.
 */
static void say_points(const struct bench *bench, const struct case_report *report, unsigned target,
		       unsigned first)
{
	const struct result *result = result_of(bench, report, first, target);
	unsigned n = 0;

	for (unsigned i = first; i < report->n_points; i++)
		n += same_reason(result, result_of(bench, report, i, target));
	if (n > NAMED_POINTS) {
		printf("%u of %u points", n, report->n_points);
		return;
	}
	for (unsigned i = first; i < report->n_points; i++)
		if (same_reason(result, result_of(bench, report, i, target)))
			printf("%s%s", i > first ? "; " : "", report->points[i].label);
}

/* Prints "a: point; point: skipped: why", once for each reason, for a target that also has figures.
 */
static void reasons(const struct bench *bench, const struct case_report *report, unsigned target)
{
	for (unsigned i = 0; i < report->n_points; i++) {
		const struct result *result = result_of(bench, report, i, target);
		bool first = true;

		if (result->state == FIGURE_GOOD && !result->verified)
			printf("  %s, %s: NOT VERIFIED\n", bench->targets[target].name,
			       report->points[i].label);
		if (result->state != FIGURE_SKIPPED && result->state != FIGURE_WRONG)
			continue;
		for (unsigned j = 0; j < i; j++)
			first &= !same_reason(result, result_of(bench, report, j, target));
		if (!first)
			continue;
		printf("  %s, ", bench->targets[target].name);
		say_points(bench, report, target, i);
		printf(": %s: %s\n", result->state == FIGURE_WRONG ? "FAILED" : "skipped",
		       result->why);
	}
}

static void table(const struct bench *bench, const struct case_report *report)
{
	printf("  %-26s", "");
	for (unsigned i = 0; i < bench->n_targets; i++)
		if (takes_part(bench, report, i))
			printf(" %*s", COLUMN - 1, bench->targets[i].name);
	printf("\n");
	for (unsigned point = 0; point < report->n_points; point++) {
		printf("  %-26s", report->points[point].label);
		for (unsigned i = 0; i < bench->n_targets; i++)
			if (takes_part(bench, report, i))
				cell(&report->points[point], result_of(bench, report, point, i));
		printf("\n");
	}
}

void report_case(const struct bench *bench, const struct case_report *report)
{
	bool anybody = false;

	printf("\n%s: %s (%.1f s)\n", report->of->name, report->of->about, report->seconds);
	if (!report->n_points)
		return;
	for (unsigned i = 0; i < bench->n_targets; i++)
		anybody |= takes_part(bench, report, i);
	if (anybody)
		table(bench, report);
	for (unsigned i = 0; i < bench->n_targets; i++)
		if (!whole_reason(bench, report, i))
			reasons(bench, report, i);
	whole_reasons(bench, report);
	fflush(stdout);
}

unsigned report_end(const struct bench *bench)
{
	unsigned measured = 0, skipped = 0, failed = bench_failures(bench);

	for (unsigned i = 0; i < bench->n_reports; i++)
		for (unsigned j = 0; j < bench->reports[i].n_points * bench->n_targets; j++) {
			measured += bench->reports[i].results[j].state == FIGURE_GOOD;
			skipped += bench->reports[i].results[j].state == FIGURE_SKIPPED;
		}
	printf("\n%u measured, %u failed, %u not for this target or machine%s\n", measured, failed,
	       skipped, bench_interrupted ? "; interrupted" : "");
	return failed;
}
