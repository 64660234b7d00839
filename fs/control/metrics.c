/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* .gpumem/metrics: the counters in Prometheus' text format. gpumem(7) documents the names, as
 * users' dashboards and alerts depend on them. */
#include <fuse_lowlevel.h>
#include <inttypes.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "common/text/utf8.h"
#include "fs/control/facts.h"
#include "fs/control/texts.h"
#include "fs/core/fs.h"
#include "fs/core/version.h"
#include "fs/volume/volume.h"

#define PREFIX "gpumemfs_"

#define NS 1e9

/* Every line has the mount as a label, because a machine may have several mounts. */
struct page {
	FILE *out;
	char mount[UTF8_ESCAPED_BYTES(PATH_MAX)];
};

static void write_head(FILE *out, const char *name, const char *type, const char *help)
{
	fprintf(out, "# HELP " PREFIX "%s %s\n# TYPE " PREFIX "%s %s\n", name, help, name, type);
}

/* Escapes the value, which may hold any characters. */
static void write_label(FILE *out, const char *name, const char *value)
{
	fprintf(out, "%s=\"", name);
	for (; *value; value++) {
		if (*value == '\n')
			fputs("\\n", out);
		else if (*value == '"' || *value == '\\')
			fprintf(out, "\\%c", *value);
		else
			fputc(*value, out);
	}
	fputc('"', out);
}

/* Writes a line up to its first label; further labels begin with a comma. */
static void write_line_begin(const struct page *page, const char *name)
{
	fprintf(page->out, PREFIX "%s{", name);
	write_label(page->out, "mount", page->mount);
}

static void write_line_end(const struct page *page, uint64_t value)
{
	fprintf(page->out, "} %" PRIu64 "\n", value);
}

static void write_build_info(struct fs *fs, const struct page *page)
{
	FILE *out = page->out;

	write_head(out, "build_info", "gauge", "Always 1; the labels name the running version.");
	write_line_begin(page, "build_info");
	fputc(',', out);
	write_label(out, "version", GPUMEMFS_VERSION);
	fputc(',', out);
	write_label(out, "backend", fs->backend->name);
	fputc(',', out);
	write_label(out, "driver", fs->backend->version);
	fputc(',', out);
	write_label(out, "libfuse", fuse_pkgversion());
	write_line_end(page, 1);
}

static void write_transport_info(struct fs *fs, const struct page *page)
{
	write_head(page->out, "transport_info", "gauge",
		   "Always 1: how requests come from the kernel.");
	write_line_begin(page, "transport_info");
	fprintf(page->out, ",transport=\"%s\",threads=\"%u\",passthrough=\"%s\"",
		fs->can.io_uring.on ? "io_uring" : "dev_fuse", fs->can.threads,
		fs->can.passthrough.on ? "on" : "off");
	write_line_end(page, 1);
}

static void write_per_operation(const struct page *page, const char *name, const char *help,
				const uint64_t *values)
{
	write_head(page->out, name, "counter", help);
	for (int op = 0; op < STAT_OPS; op++) {
		write_line_begin(page, name);
		fprintf(page->out, ",operation=\"%s\"", stats_op_name((enum stat_op)op));
		write_line_end(page, values[op]);
	}
}

static void write_histogram(const struct page *page, const char *operation, const uint64_t *counts,
			    uint64_t sum_ns)
{
	uint64_t count = 0;

	for (unsigned i = 0; i < STATS_BUCKETS; i++) {
		char end[32] = "+Inf";

		count += counts[i];
		if (i < STATS_BUCKETS - 1)
			snprintf(end, sizeof(end), "%g", (double)stats_bucket_ns[i] / NS);
		write_line_begin(page, "request_duration_seconds_bucket");
		fprintf(page->out, ",operation=\"%s\",le=\"%s\"", operation, end);
		write_line_end(page, count);
	}
	write_line_begin(page, "request_duration_seconds_sum");
	fprintf(page->out, ",operation=\"%s\"} %.9f\n", operation, (double)sum_ns / NS);
	write_line_begin(page, "request_duration_seconds_count");
	fprintf(page->out, ",operation=\"%s\"", operation);
	write_line_end(page, count);
}

/* Of the operations that were requested at least once. */
static void write_durations(const struct page *page, const struct stats_totals *totals)
{
	write_head(page->out, "request_duration_seconds", "histogram",
		   "Time from a request to its answer, of one request in 16 of each operation.");
	_Static_assert(STATS_SAMPLE == 16, "the help says so");
	for (int op = 0; op < STAT_OPS; op++)
		if (totals->ops[op])
			write_histogram(page, stats_op_name((enum stat_op)op),
					totals->latencies[op], totals->latency_ns[op]);
}

/* The GPU's labels are the labels of NVIDIA's DCGM exporter, so that queries can join both. */
static void write_volume_labels(FILE *out, const struct volume *volume)
{
	fprintf(out, ",volume=\"%s\"", volume->name);
	if (volume->device) {
		fprintf(out, ",gpu=\"%u\",", volume->device->index);
		write_label(out, "UUID", volume->device->uuid);
	}
}

static void write_subject_labels(FILE *out, const struct fact_subject *subject,
				 enum fact_scope scope)
{
	if (subject->volume)
		write_volume_labels(out, subject->volume);
	if (scope == FACT_GPU_PLACE || scope == FACT_SPILL)
		fprintf(out, ",place=\"%s\"", memory_place_name(subject->place));
}

static const char *metric_type(const char *name)
{
	size_t length = strlen(name), end = strlen("_total");

	return length > end && strcmp(name + length - end, "_total") == 0 ? "counter" : "gauge";
}

static void write_fact(const struct page *page, const struct fact_group *group,
		       const struct fact *fact, const struct fact_readings *readings)
{
	write_head(page->out, fact->metric, metric_type(fact->metric), fact->help);
	for (unsigned i = 0; i < readings->count; i++) {
		write_line_begin(page, fact->metric);
		write_subject_labels(page->out, &readings->subjects[i], group->scope);
		write_line_end(page, fact_value(fact, fact_numbers(group, readings, i)));
	}
}

static int write_facts(struct fs *fs, const struct fact_group *group, void *context)
{
	const struct page *page = context;
	struct fact_readings readings;
	int error = facts_read(fs, group, &readings);

	if (error)
		return error;
	for (size_t i = 0; i < group->count; i++)
		if (group->facts[i].metric)
			write_fact(page, group, &group->facts[i], &readings);
	free(readings.numbers);
	return 0;
}

int control_metrics(struct fs *fs, uid_t uid, FILE *out)
{
	struct stats_totals totals;
	struct page page = {.out = out};

	(void)uid;
	stats_sum(&fs->stats, &totals);
	utf8_escape(fs->options.mountpoint, "\\", page.mount, sizeof(page.mount));
	write_build_info(fs, &page);
	write_transport_info(fs, &page);
	write_per_operation(&page, "requests_total", "Requests served, by operation.", totals.ops);
	write_per_operation(&page, "request_errors_total", "Requests answered with an error.",
			    totals.errors);
	write_durations(&page, &totals);
	return facts_each(fs, write_facts, &page);
}
