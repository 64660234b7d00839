/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
#include "fs/observe.h"

#include <inttypes.h>
#include <limits.h>
#include <stdio.h>

#include "fs/ops.h"
#include "fs/tree.h"

/* An inode's path, and a name below it. */
struct place {
	char path[PATH_MAX + NAME_MAX + 2];
};

static const char *place_of(struct fs *fs, struct inode *inode, const char *name,
			    struct place *place)
{
	if (!inode)
		return "";
	int length = tree_path(fs, inode, place->path, PATH_MAX);

	if (length < 0)
		length = snprintf(place->path, PATH_MAX, "inode %" PRIu64, inode->ino);
	if (name)
		snprintf(place->path + length, sizeof(place->path) - (size_t)length, "%s%s",
			 place->path[length - 1] == '/' ? "" : "/", name);
	return place->path;
}

static void log_access(const struct op *op, int64_t result, int64_t latency)
{
	const struct fuse_ctx *caller = fuse_req_ctx(op->req);
	struct place place, to;
	struct access_entry entry = {
	    .pid = caller->pid,
	    .uid = caller->uid,
	    .operation = stats_op_name(op->kind),
	    .offset = op->offset,
	    .length = op->bytes,
	    .result = result,
	    .latency = latency,
	    .path = place_of(op->fs, op->inode, op->name, &place),
	    .to = op->to ? place_of(op->fs, op->to, op->to_name, &to) : NULL,
	};

	clock_gettime(CLOCK_REALTIME, &entry.time);
	access_log_add(&op->fs->access_log, &entry);
}

void observe(struct op *op, int64_t result)
{
	int64_t latency = observe_now() - op->began;

	if (op->observers & OBSERVE_LATENCY)
		stats_latency(op->worker->stats, op->kind, (uint64_t)latency);
	if (op->observers & OBSERVE_ACCESS)
		log_access(op, result, latency);
}
