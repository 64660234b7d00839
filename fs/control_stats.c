/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* The counters, for programs, as JSON. */
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
