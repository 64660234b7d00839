/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* .gpumem/stats.json: the counters as JSON, for programs. */
#include <errno.h>
#include <inttypes.h>
#include <jansson.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "common/cleanup.h"
#include "common/clock.h"
#include "common/text/utf8.h"
#include "fs/control/facts.h"
#include "fs/control/lists.h"
#include "fs/core/fs.h"
#include "fs/file/file.h"
#include "fs/spool/spool.h"
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

/* The object of that name in another object, made if it is not there. */
static json_t *object_in(json_t *parent, const char *name)
{
	if (!json_object_get(parent, name))
		json_object_set_new(parent, name, json_object());
	return json_object_get(parent, name);
}

/* The object for the numbers of a subject. volumes: the volumes' objects, in order. */
static json_t *subject_object(json_t *all, json_t *volumes, const struct fact_group *group,
			      const struct fact_subject *subject)
{
	json_t *object = subject->volume ? json_array_get(volumes, subject->volume->index) : all;

	if (group->object)
		object = object_in(object, group->object);
	if (group->scope == FACT_GPU_PLACE || group->scope == FACT_SPILL)
		object = object_in(object, memory_place_name(subject->place));
	return object;
}

static void add_numbers(json_t *object, const struct fact_group *group, const void *numbers)
{
	for (size_t i = 0; i < group->count; i++) {
		const struct fact *fact = &group->facts[i];

		if (fact->json)
			json_object_set_new(object, fact->json,
					    json_integer(json_clamped(fact_value(fact, numbers))));
	}
}

static int add_facts(struct fs *fs, const struct fact_group *group, void *context)
{
	json_t *all = context, *volumes = json_object_get(all, "volumes");
	struct fact_readings readings;
	int error = facts_read(fs, group, &readings);

	if (error)
		return error;
	for (unsigned i = 0; i < readings.count; i++) {
		if (readings.was_read[i])
			add_numbers(subject_object(all, volumes, group, &readings.subjects[i]),
				    group, fact_numbers(group, &readings, i));
		else if (group->scope == FACT_MOUNT)
			json_object_set_new(all, group->object, json_null());
	}
	free(readings.numbers);
	return 0;
}

/* After the facts: names and states. */
static void add_device(json_t *json, struct volume *volume)
{
	struct device *device = volume->device;
	const char *reason, *provider = device_bar_name(device, &reason);
	const char *health = device_health_name(device);
	struct volume_usage usage;

	/* The device's memory cannot be queried, but no fault was reported yet. */
	if (volume_usage(volume, &usage) && strcmp(health, "ok") == 0)
		health = "failed";
	json_object_update_new(json, json_pack("{s:s, s:s, s:s*, s:s*, s:s}", "uuid", device->uuid,
					       "model", device->name, "pci",
					       *device->pci ? device->pci : NULL, "compute_mode",
					       device->compute_mode, "health", health));
	json_object_update_new(object_in(json, "bar"),
			       json_pack("{s:s, s:s?}", "provider", provider, "reason", reason));
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

static void add_spool_error(struct fs *fs, json_t *all)
{
	int error = spool_counters(fs).last_error;

	if (spool_of(fs))
		json_object_set_new(json_object_get(all, "spool"), "last_error",
				    error ? json_string(strerrorname_np(error)) : json_null());
}

static int add_all_facts(struct fs *fs, json_t *all)
{
	json_t *volumes = json_array();

	json_object_set_new(all, "volumes", volumes);
	for (unsigned i = 0; i < fs->n_volumes; i++)
		json_array_append_new(volumes, json_pack("{s:s}", "name", fs->volumes[i].name));
	int error = facts_each(fs, add_facts, all);

	for (unsigned i = 0; i < fs->n_volumes; i++)
		if (fs->volumes[i].device)
			add_device(json_array_get(volumes, i), &fs->volumes[i]);
	add_spool_error(fs, all);
	return error;
}

/* NULL: no memory. */
static json_t *members_json(struct control_list *list)
{
	struct fs *fs = list->fs;
	struct stats_totals totals;

	stats_sum(&fs->stats, &totals);
	json_t *all =
	    json_pack("{s:i, s:s, s:o, s:o}", "schema", STATS_SCHEMA, "backend", fs->backend->name,
		      "operations", operations_json(&totals), "busy", busy_json(list));

	if (!all || !add_all_facts(fs, all))
		return all;
	json_decref(all);
	return NULL;
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
