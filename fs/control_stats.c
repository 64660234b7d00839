/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* The counters, for programs: as JSON and as Prometheus has it. */
#include <errno.h>
#include <inttypes.h>
#include <jansson.h>
#include <time.h>

#include "backend/bar_cache.h"
#include "fs/control_text.h"
#include "fs/fs.h"

static json_int_t integer(uint64_t value)
{
	return value > INT64_MAX ? INT64_MAX : (json_int_t)value;
}

static json_t *operations(const struct stats_totals *totals)
{
	json_t *all = json_object();

	for (int op = 0; op < STAT_OPS; op++)
		json_object_set_new(all, stats_op_name((enum stat_op)op),
				    json_pack("{s:I, s:I}", "requests", integer(totals->ops[op]),
					      "errors", integer(totals->errors[op])));
	return all;
}

static json_t *volume_json(struct volume *volume)
{
	struct volume_usage usage = {0};
	int error = volume_usage(volume, &usage);
	json_t *json =
	    json_pack("{s:s, s:I, s:I, s:I, s:I}", "name", volume->name, "total_bytes",
		      integer(usage.total), "free_bytes", integer(usage.free), "available_bytes",
		      integer(usage.available), "held_bytes", integer(usage.held));

	if (volume->device) {
		struct pool_usage pool = pool_usage(volume->pool);
		struct bar_usage bar = bar_usage(volume->device);

		json_object_set_new(json, "uuid", json_string(volume->device->uuid));
		json_object_set_new(json, "model", json_string(volume->device->name));
		json_object_set_new(json, "healthy",
				    json_boolean(!error && !volume->device->failed));
		json_object_set_new(json, "file_bytes", json_integer(integer(pool.span_bytes)));
		json_object_set_new(json, "chunks", json_integer(integer(pool.chunks)));
		json_object_set_new(json, "shared_chunks",
				    json_integer(integer(pool.shared_chunks)));
		json_object_set_new(json, "bar",
				    json_pack("{s:s, s:I, s:I, s:I, s:I}", "provider",
					      device_bar_name(volume->device), "mapped_bytes",
					      integer(bar.mapped), "budget_bytes",
					      integer(bar.budget), "maps", integer(bar.maps),
					      "evictions", integer(bar.evictions)));
	}
	return json;
}

int control_stats(struct fs *fs, FILE *out)
{
	struct stats_totals totals;
	json_t *volumes = json_array();

	stats_sum(&fs->stats, &totals);
	for (unsigned i = 0; i < fs->n_volumes; i++)
		json_array_append_new(volumes, volume_json(&fs->volumes[i]));
	json_t *all = json_pack("{s:s, s:I, s:I, s:o, s:I, s:I, s:I, s:o}", "backend",
				fs->backend->name, "started", (json_int_t)fs->started.tv_sec,
				"inodes", integer(inode_table_count(&fs->inodes)), "operations",
				operations(&totals), "read_bytes", integer(totals.read_bytes),
				"write_bytes", integer(totals.write_bytes), "copy_bytes",
				integer(totals.copy_bytes), "volumes", volumes);

	if (!all)
		return -ENOMEM;
	int error = json_dumpf(all, out, JSON_INDENT(2)) ? -ENOMEM : 0;

	json_decref(all);
	fputc('\n', out);
	return error;
}

static void head(FILE *out, const char *name, const char *type, const char *help)
{
	fprintf(out, "# HELP gpumemfs_%s %s\n# TYPE gpumemfs_%s %s\n", name, help, name, type);
}

static void one(FILE *out, const char *name, const char *type, const char *help, uint64_t value)
{
	head(out, name, type, help);
	fprintf(out, "gpumemfs_%s %" PRIu64 "\n", name, value);
}

static void per_operation(FILE *out, const char *name, const char *help, const uint64_t *values)
{
	head(out, name, "counter", help);
	for (int op = 0; op < STAT_OPS; op++)
		fprintf(out, "gpumemfs_%s{operation=\"%s\"} %" PRIu64 "\n", name,
			stats_op_name((enum stat_op)op), values[op]);
}

/* One gauge of all volumes. */
static void per_volume(struct fs *fs, FILE *out, const char *name, const char *help,
		       uint64_t (*value)(struct volume *volume))
{
	head(out, name, "gauge", help);
	for (unsigned i = 0; i < fs->n_volumes; i++) {
		struct volume *volume = &fs->volumes[i];

		fprintf(out, "gpumemfs_%s{volume=\"%s\",uuid=\"%s\"} %" PRIu64 "\n", name,
			volume->name, volume->device ? volume->device->uuid : "", value(volume));
	}
}

static struct volume_usage usage(struct volume *volume)
{
	struct volume_usage usage = {0};

	volume_usage(volume, &usage);
	return usage;
}

static uint64_t total(struct volume *volume)
{
	return usage(volume).total;
}

static uint64_t free_bytes(struct volume *volume)
{
	return usage(volume).free;
}

static uint64_t held(struct volume *volume)
{
	return usage(volume).held;
}

static uint64_t mapped(struct volume *volume)
{
	return volume->device ? bar_usage(volume->device).mapped : 0;
}

static uint64_t healthy(struct volume *volume)
{
	return volume->device ? !volume->device->failed : 1;
}

int control_metrics(struct fs *fs, FILE *out)
{
	struct stats_totals totals;

	stats_sum(&fs->stats, &totals);
	per_operation(out, "requests_total", "Requests served, by operation.", totals.ops);
	per_operation(out, "request_errors_total", "Requests answered with an error.",
		      totals.errors);
	one(out, "read_bytes_total", "counter", "Bytes read from files.", totals.read_bytes);
	one(out, "written_bytes_total", "counter", "Bytes written to files.", totals.write_bytes);
	one(out, "copied_bytes_total", "counter", "Bytes copied between files by the daemon.",
	    totals.copy_bytes);
	one(out, "inodes", "gauge", "Files, directories and other inodes.",
	    inode_table_count(&fs->inodes));
	one(out, "start_time_seconds", "gauge",
	    "When the daemon started, in seconds since the epoch.", (uint64_t)fs->started.tv_sec);
	per_volume(fs, out, "memory_total_bytes", "Memory of the device.", total);
	per_volume(fs, out, "memory_free_bytes", "Memory free on the device.", free_bytes);
	per_volume(fs, out, "memory_held_bytes", "Memory held by this mount.", held);
	per_volume(fs, out, "bar_mapped_bytes", "Memory mapped through the BAR.", mapped);
	per_volume(fs, out, "healthy", "0 after an uncorrectable error of the device.", healthy);
	return 0;
}
