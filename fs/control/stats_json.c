/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* .gpumem/stats.json: the counters as JSON, for programs. */
#include <errno.h>
#include <inttypes.h>
#include <jansson.h>
#include <limits.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "backend/bar_cache.h"
#include "backend/pool.h"
#include "common/cleanup.h"
#include "common/clock.h"
#include "common/utf8.h"
#include "fs/control/lists.h"
#include "fs/core/fs.h"
#include "fs/file/file.h"
#include "fs/spool/spool.h"
#include "fs/tier/tier.h"
#include "fs/tree/inode.h"
#include "fs/tree/inode_table.h"
#include "fs/volume/volume.h"

/* gpumem(1) documents the names of this version. */
#define STATS_SCHEMA 1

/* How many of the busiest files are listed. */
#define BUSY_FILES 64

static json_int_t json_clamped(uint64_t value)
{
	return value > INT64_MAX ? INT64_MAX : (json_int_t)value;
}

static json_t *operations_json(const struct stats_totals *totals)
{
	json_t *all = json_object();

	for (int op = 0; op < STAT_OPS; op++)
		json_object_set_new(all, stats_op_name((enum stat_op)op),
				    json_pack("{s:I, s:I}", "requests",
					      json_clamped(totals->ops[op]), "errors",
					      json_clamped(totals->errors[op])));
	return all;
}

/* The places that files of a GPU can have memory in. */
static json_t *places_json(const struct volume *volume)
{
	json_t *json = json_object();

	for (enum memory_place place = PLACE_GPU; place < PLACES;
	     place = volume_place_below(volume, place)) {
		struct pool_usage pool = pool_usage(volume_pool(volume, place));

		json_object_set_new(json, memory_place_name(place),
				    json_pack("{s:I, s:I, s:I, s:I, s:I}", "size_bytes",
					      json_clamped(pool.size), "held_bytes",
					      json_clamped(pool.chunk_bytes), "file_bytes",
					      json_clamped(pool.span_bytes), "given_up_bytes",
					      json_clamped(pool.held_bytes), "moved_bytes",
					      json_clamped(atomic_load(&volume->moved[place]))));
	}
	return json;
}

static json_t *volume_json(struct fs *fs, struct volume *volume,
			   const struct stats_volume_totals *did)
{
	struct volume_usage usage = {0};
	struct lease_sums leases = lease_list_sums(fs->leases, volume->index);
	int error = volume_usage(volume, &usage);
	json_t *json = json_pack(
	    "{s:s, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I}", "name", volume->name,
	    "files", json_clamped((uint64_t)atomic_load(&volume->files)), "total_bytes",
	    json_clamped(usage.total), "free_bytes", json_clamped(usage.free), "available_bytes",
	    json_clamped(usage.available), "held_bytes", json_clamped(usage.held), "requests",
	    json_clamped(did->requests), "read_bytes", json_clamped(did->read_bytes), "write_bytes",
	    json_clamped(did->write_bytes), "copy_bytes", json_clamped(did->copy_bytes), "leases",
	    json_clamped(leases.leases), "leased_bytes", json_clamped(leases.bytes));

	if (volume->device) {
		struct pool_usage pool = pool_usage(volume->pool);
		struct bar_usage bar = bar_usage(volume->device);
		const char *why, *provider = device_bar_name(volume->device, &why);

		json_object_set_new(json, "uuid", json_string(volume->device->uuid));
		json_object_set_new(json, "model", json_string(volume->device->name));
		if (*volume->device->pci)
			json_object_set_new(json, "pci", json_string(volume->device->pci));
		if (volume->device->compute_mode)
			json_object_set_new(json, "compute_mode",
					    json_string(volume->device->compute_mode));
		const char *health = device_health_name(volume->device);

		/* The device's memory cannot be queried, but no fault was reported yet. */
		if (error && strcmp(health, "ok") == 0)
			health = "failed";
		json_object_set_new(json, "index", json_integer(volume->device->index));
		json_object_set_new(json, "health", json_string(health));
		json_object_set_new(json, "resets",
				    json_integer(atomic_load(&volume->device->health.resets)));
		json_object_set_new(json, "lost_bytes",
				    json_integer(json_clamped(health_lost(volume->device))));
		json_object_set_new(json, "file_bytes",
				    json_integer(json_clamped(pool.span_bytes)));
		json_object_set_new(json, "places", places_json(volume));
		json_object_set_new(json, "chunks", json_integer(json_clamped(pool.chunks)));
		json_object_set_new(json, "shared_chunks",
				    json_integer(json_clamped(pool.shared_chunks)));
		json_object_set_new(json, "shared_bytes",
				    json_integer(json_clamped(pool.shared_bytes)));
		json_object_set_new(json, "block_bytes",
				    json_integer(json_clamped(pool.block_bytes)));
		json_object_set_new(
		    json, "bar",
		    json_pack("{s:s, s:s?, s:I, s:I, s:I, s:I}", "provider", provider, "reason",
			      why, "mapped_bytes", json_clamped(bar.mapped), "budget_bytes",
			      json_clamped(bar.budget), "maps", json_clamped(bar.maps), "evictions",
			      json_clamped(bar.evictions)));
	}
	return json;
}

/* null where the viewer may not see the path. */
static json_t *path_json(struct control_list *list, struct inode *inode)
{
	char path[PATH_MAX], escaped[UTF8_ESCAPED_BYTES(PATH_MAX)];

	if (!viewer_sees_file(&list->viewer, inode))
		return json_null();
	viewer_path(list->fs, &list->viewer, inode, path);
	utf8_escape(path, "\\", escaped, sizeof(escaped));
	return json_string(escaped);
}

static void write_lease(struct control_list *list, FILE *out, const struct lease_entry *lease)
{
	json_t *json =
	    json_pack("{s:s, s:o, s:I, s:I, s:I, s:s, s:I, s:I}", "volume",
		      file_volume(lease->inode->file)->name, "path", path_json(list, lease->file),
		      "inode", json_clamped(lease->file->ino), "pid", (json_int_t)lease->pid, "uid",
		      (json_int_t)lease->uid, "access", control_list_access(lease), "bytes",
		      json_clamped(file_size(lease->inode->file)), "since",
		      (json_int_t)clock_epoch_seconds(lease->since));

	fputs(list->written ? ",\n    " : "\n    ", out);
	AUTO_FREE char *text = json_dumps(json, 0);
	utf8_write_json(text ? text : "null", out);
	json_decref(json);
}

static json_t *busy_file_json(struct control_list *list, struct inode *inode,
			      const struct busy_file *file, uint64_t now)
{
	uint64_t idle = now > file->touched ? now - file->touched : 0;

	return json_pack("{s:o, s:I, s:I, s:I}", "path", path_json(list, inode), "inode",
			 json_clamped(inode->ino), "recent_bytes", json_clamped(file->bytes),
			 "idle_seconds", json_clamped(idle));
}

/* The busiest files, of the files that the viewer may see. */
static json_t *busy_json(struct control_list *list)
{
	struct fs *fs = list->fs;
	struct busy_file files[BUSY_FILES];
	uint64_t now = busy_now();
	size_t count = busy_files(&fs->stats, files, BUSY_FILES, now);
	json_t *json = json_array();

	for (size_t i = 0; i < count; i++) {
		struct inode *inode = inode_table_get(fs->inodes, files[i].ino);

		if (!inode)
			continue;
		if (viewer_sees_file(&list->viewer, inode))
			json_array_append_new(json, busy_file_json(list, inode, &files[i], now));
		inode_put(fs, inode, 1);
	}
	return json;
}

static json_t *spool_json(struct fs *fs)
{
	struct spool_counters did = spool_counters(fs);

	if (!fs->spool)
		return json_null();
	return json_pack("{s:I, s:I, s:I, s:s?, s:I, s:I}", "saves", json_clamped(did.saves),
			 "saved_bytes", json_clamped(did.saved_bytes), "errors",
			 json_clamped(did.errors), "last_error",
			 did.last_error ? strerrorname_np(did.last_error) : NULL, "fetched_bytes",
			 json_clamped(did.fetched_bytes), "damaged", json_clamped(did.damaged));
}

/* NULL: the mount does not have the place. */
static json_t *budget_json(struct pool_budget *budget)
{
	if (!budget->size)
		return NULL;
	return json_pack("{s:I, s:I, s:I}", "size_bytes", json_clamped(budget->size), "spare_bytes",
			 json_clamped(budget->spare), "held_bytes",
			 json_clamped(atomic_load(&budget->held)));
}

static json_t *spill_json(struct fs *fs)
{
	struct tier_counters did = tier_counters(fs);

	if (!fs->tiers)
		return json_null();
	return json_pack("{s:o*, s:o*, s:I, s:I, s:I}", "host", budget_json(&fs->spill_budget),
			 "disk", budget_json(&fs->disk_budget), "evictions",
			 json_clamped(did.evictions), "evicted_bytes",
			 json_clamped(did.evicted_bytes), "returned_bytes",
			 json_clamped(did.returned_bytes));
}

static json_t *members_json(struct control_list *list)
{
	struct fs *fs = list->fs;
	struct stats_totals totals;
	json_t *volumes = json_array();

	stats_sum(&fs->stats, &totals);
	for (unsigned i = 0; i < fs->n_volumes; i++)
		json_array_append_new(volumes,
				      volume_json(fs, &fs->volumes[i], &totals.volumes[i]));
	return json_pack(
	    "{s:i, s:s, s:I, s:I, s:o, s:I, s:I, s:I, s:I, s:o, s:o, s:o, s:o}", "schema",
	    STATS_SCHEMA, "backend", fs->backend->name, "started", (json_int_t)fs->started.tv_sec,
	    "inodes", json_clamped(inode_table_count(fs->inodes)), "operations",
	    operations_json(&totals), "read_bytes", json_clamped(totals.read_bytes), "write_bytes",
	    json_clamped(totals.write_bytes), "copy_bytes", json_clamped(totals.copy_bytes),
	    "compacted_bytes", json_clamped(tier_compacted_bytes(fs)), "volumes", volumes, "busy",
	    busy_json(list), "spool", spool_json(fs), "spill", spill_json(fs));
}

/* Writes all members but for the leases, without the closing brace. */
static int write_members(struct control_list *list, FILE *out)
{
	json_t *all = members_json(list);
	char *text AUTO_FREE = all ? json_dumps(all, JSON_INDENT(2)) : NULL;
	size_t length = text ? strlen(text) : 0;

	json_decref(all);
	if (length < strlen("\n}"))
		return -ENOMEM;
	text[length - strlen("\n}")] = '\0';
	utf8_write_json(text, out);
	return 0;
}

int control_stats(struct control_list *list, FILE *out)
{
	if (list->part == 0) {
		int error = write_members(list, out);

		if (error)
			return error;
		fputs(",\n  \"leases\": [", out);
		list->part = 1;
		return CONTROL_MORE;
	}
	if (control_list_leases(list, out, write_lease) == CONTROL_MORE)
		return CONTROL_MORE;
	fputs(list->written ? "\n  ]\n}\n" : "]\n}\n", out);
	return CONTROL_END;
}
