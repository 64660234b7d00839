/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* The counters, for programs, as JSON. */
#include <errno.h>
#include <inttypes.h>
#include <jansson.h>
#include <limits.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "backend/bar_cache.h"
#include "common/defer.h"
#include "common/utf8.h"
#include "fs/control_text.h"
#include "fs/file_share.h"
#include "fs/fs.h"
#include "fs/share.h"
#include "fs/spool.h"
#include "fs/tree.h"

/* How many of the busiest files are shown. */
#define BUSY_FILES 64

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

static json_t *volume_json(struct volume *volume, const struct stats_volume_totals *did)
{
	struct volume_usage usage = {0};
	int error = volume_usage(volume, &usage);
	json_t *json = json_pack(
	    "{s:s, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I}", "name", volume->name, "total_bytes",
	    integer(usage.total), "free_bytes", integer(usage.free), "available_bytes",
	    integer(usage.available), "held_bytes", integer(usage.held), "requests",
	    integer(did->requests), "read_bytes", integer(did->read_bytes), "write_bytes",
	    integer(did->write_bytes), "copy_bytes", integer(did->copy_bytes));

	if (volume->device) {
		struct pool_usage pool = pool_usage(volume->pool);
		struct bar_usage bar = bar_usage(volume->device);

		json_object_set_new(json, "uuid", json_string(volume->device->uuid));
		json_object_set_new(json, "model", json_string(volume->device->name));
		json_object_set_new(json, "healthy",
				    json_boolean(!error && !volume->device->failed));
		json_object_set_new(json, "health",
				    json_string(device_health_name(volume->device)));
		json_object_set_new(json, "mended",
				    json_integer(atomic_load(&volume->device->health.mended)));
		json_object_set_new(json, "lost_bytes",
				    json_integer(integer(health_lost(volume->device))));
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

static json_t *path_json(struct fs *fs, struct inode *inode)
{
	char path[PATH_MAX];

	if (tree_path(fs, inode, path, sizeof(path)) < 0)
		snprintf(path, sizeof(path), "inode %" PRIu64, inode->ino);
	utf8_clean(path);
	return json_string(path);
}

struct lease_list {
	struct fs *fs;
	json_t *json;
};

static void add_lease(void *context, struct inode *inode, const struct share_holder *holder)
{
	struct lease_list *list = context;
	const struct volume *volume = file_volume(inode->file);

	json_array_append_new(
	    list->json,
	    json_pack("{s:s, s:o, s:I, s:I, s:s, s:I, s:I}", "volume", volume->name, "path",
		      path_json(list->fs, inode), "pid", (json_int_t)holder->pid, "uid",
		      (json_int_t)holder->uid, "access",
		      holder->access == GPUMEM_ACCESS_WRITE ? "rw" : "ro", "bytes",
		      integer(file_size(inode->file)), "since", (json_int_t)holder->since));
}

static json_t *leases_json(struct fs *fs)
{
	struct share *share = atomic_load(&fs->share);
	struct lease_list list = {fs, json_array()};

	if (share)
		share_each(share, add_lease, &list);
	return list.json;
}

static bool may_see(struct inode *inode, uid_t uid)
{
	LOCKED(&inode->lock);
	return uid == 0 || uid == geteuid() || uid == inode->uid;
}

static json_t *busy_file_json(struct fs *fs, struct inode *inode, const struct busy_file *file,
			      uint64_t now)
{
	uint64_t idle = now > file->touched ? now - file->touched : 0;

	return json_pack("{s:o, s:I, s:I, s:I}", "path", path_json(fs, inode), "inode",
			 integer(inode->ino), "recent_bytes", integer(file->bytes), "idle_seconds",
			 integer(idle));
}

/* Of those that the reader owns, or, who runs the daemon, of all. */
static json_t *busy_json(struct fs *fs, uid_t uid)
{
	struct busy_file files[BUSY_FILES];
	uint64_t now = busy_now();
	size_t count = busy_files(&fs->stats, files, BUSY_FILES, now);
	json_t *json = json_array();

	for (size_t i = 0; i < count; i++) {
		struct inode *inode = inode_table_get(&fs->inodes, files[i].ino);

		if (!inode)
			continue;
		if (may_see(inode, uid))
			json_array_append_new(json, busy_file_json(fs, inode, &files[i], now));
		inode_put(fs, inode, 1);
	}
	return json;
}

static json_t *spool_json(struct fs *fs)
{
	struct spool_figures did = spool_figures(fs);

	if (!fs->spool)
		return json_null();
	return json_pack("{s:I, s:I, s:I, s:s?, s:I, s:I}", "saves", integer(did.saves),
			 "saved_bytes", integer(did.saved_bytes), "errors", integer(did.errors),
			 "last_error", did.last_error ? strerrorname_np(did.last_error) : NULL,
			 "fetched_bytes", integer(did.fetched_bytes), "damaged",
			 integer(did.damaged));
}

int control_stats(struct fs *fs, uid_t uid, FILE *out)
{
	struct stats_totals totals;
	json_t *volumes = json_array();

	stats_sum(&fs->stats, &totals);
	for (unsigned i = 0; i < fs->n_volumes; i++)
		json_array_append_new(volumes, volume_json(&fs->volumes[i], &totals.volumes[i]));
	json_t *all = json_pack(
	    "{s:s, s:I, s:I, s:o, s:I, s:I, s:I, s:o, s:o, s:o, s:o}", "backend", fs->backend->name,
	    "started", (json_int_t)fs->started.tv_sec, "inodes",
	    integer(inode_table_count(&fs->inodes)), "operations", operations(&totals),
	    "read_bytes", integer(totals.read_bytes), "write_bytes", integer(totals.write_bytes),
	    "copy_bytes", integer(totals.copy_bytes), "volumes", volumes, "leases", leases_json(fs),
	    "busy", busy_json(fs, uid), "spool", spool_json(fs));

	if (!all)
		return -ENOMEM;
	int error = json_dumpf(all, out, JSON_INDENT(2)) ? -ENOMEM : 0;

	json_decref(all);
	fputc('\n', out);
	return error;
}
