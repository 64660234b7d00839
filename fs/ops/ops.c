/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
#include <assert.h>
#include <errno.h>
#include <time.h>

#include "common/log.h"
#include "fs/control/nodes.h"
#include "fs/file/export.h"
#include "fs/fuse/channel.h"
#include "fs/fuse/deferral.h"
#include "fs/ops/ops.h"
#include "fs/tree/inode.h"
#include "fs/tree/inode_table.h"
#include "fs/tree/inode_unseen.h"
#include "fs/volume/volume.h"

#define RELEASE_WAIT_NS	   1000000L
#define RELEASE_WAIT_TRIES 20

/* Counts the request, unless the worker that deferred the request has done so. */
static void op_count_begin(struct op *op)
{
	const struct deferral *deferral = op->worker->deferral;

	if (deferral) {
		op->observers = deferral_notes(deferral)->observers;
		op->began = deferral_notes(deferral)->began;
		/* op_end counts the end of the request, as op_hand_over has done. */
		stats_add(&op->worker->stats->ended, UINT64_MAX);
		return;
	}
	op->observers = atomic_load_explicit(&op->fs->observers, memory_order_relaxed);
	if (stats_count(op->worker->stats, op->kind))
		op->observers |= OBSERVE_LATENCY;
	if (op->observers)
		op->began = observe_begin();
}

bool op_begin(struct op *op, fuse_req_t req, fuse_ino_t ino, enum stat_op kind)
{
	if (control_owns(ino)) {
		fuse_reply_err(req, EPERM);
		return false;
	}
	*op = (struct op){.fs = fuse_req_userdata(req), .req = req, .kind = kind};
	op->worker = worker_self(op->fs);
	if (!op->worker) {
		fuse_reply_err(req, ENOMEM);
		return false;
	}
	log_caller_set(fuse_req_ctx(req)->uid);
	op_count_begin(op);
	struct journal_request record;

	/* recovery=transparent refuses io_uring, whose threads read requests inside libfuse. */
	assert(!op->fs->journal || op->worker->request_number);
	if (op->fs->journal &&
	    journal_drc_find(op->fs->journal, op->worker->request_number, &record)) {
		op->completed = record.completed;
		op->completed_ino = record.ino;
	}
	op->inode = inode_find(op->fs, ino);
	if (!op->inode) {
		op_done(op, req, -ESTALE);
		return false;
	}
	struct stats_volume *volume = op_volume(op, op->inode);

	if (volume && !op->worker->deferral)
		stats_add(&volume->requests, 1);
	return true;
}

/* False if the inode was freed meanwhile: the caller then creates the inode again. */
bool op_drc_find_inode(const struct op *op, struct inode **inode)
{
	if (!op_drc_find(op))
		return false;
	*inode = inode_table_get(op->fs->inodes, op->completed_ino);
	return *inode;
}

bool op_begin_to(struct op *op, fuse_req_t req, fuse_ino_t ino)
{
	if (control_owns(ino)) {
		op_done(op, req, -EPERM);
		return false;
	}
	op->to = inode_find(op->fs, ino);
	if (!op->to)
		op_done(op, req, -ESTALE);
	return op->to;
}

void op_observe(const struct op *op, int64_t result)
{
	const struct fuse_ctx *caller = fuse_req_ctx(op->req);
	struct request_info request = {
	    .kind = op->kind,
	    .pid = caller->pid,
	    .uid = caller->uid,
	    .inode = op->inode,
	    .name = op->name,
	    .to = op->to,
	    .to_name = op->to_name,
	    .offset = op->offset,
	    .bytes = op->bytes,
	    .began = op->began,
	    .result = result,
	};

	observe(op->fs, op->worker->stats, op->observers, &request);
}

void op_done(struct op *op, fuse_req_t req, int error)
{
	if (error && !stats_error_is_ordinary(op->kind, error))
		stats_add(&op->worker->stats->errors[op->kind], 1);
	op_end(op, error);
	fuse_reply_err(req, -error);
}

bool op_defer(struct op *op)
{
	const struct deferral_notes notes = {.observers = op->observers, .began = op->began};
	bool deferred = deferral_begin(op->fs, op->worker, op->req, &notes);

	if (deferred)
		op_hand_over(op);
	return deferred;
}

bool op_take_over(struct op *op, int channel)
{
	channel_answer_for(channel);
	op->worker = worker_self(op->fs);
	if (!op->worker) {
		fuse_reply_err(op->req, ENOMEM);
		return false;
	}
	/* op_end counts the end of the request, as op_hand_over has done. */
	stats_add(&op->worker->stats->ended, UINT64_MAX);
	return true;
}

void op_count(fuse_req_t req, enum stat_op kind)
{
	struct worker *worker = worker_self(fuse_req_userdata(req));

	if (worker)
		stats_count_answered(worker->stats, kind);
}

void op_unsupported(fuse_req_t req, enum stat_op kind)
{
	op_count(req, kind);
	fuse_reply_err(req, ENOSYS);
}

bool op_wait_release(int *attempts)
{
	if (*attempts >= RELEASE_WAIT_TRIES)
		return false;
	++*attempts;
	nanosleep(&(struct timespec){.tv_nsec = RELEASE_WAIT_NS}, NULL);
	return true;
}

double op_attr_seconds(struct inode *inode, const struct stat *st)
{
	const struct volume *volume = inode->volume;

	if (!S_ISREG(inode->mode))
		return CACHE_SECONDS;
	/* An empty file has no page to store into, and the kernel learns of every growth. */
	if (st->st_size && inode_has_unseen_stores(inode))
		return 0;
	/* The mapping of an object may outlive the handle that could write, while other handles are
	 * open; and programs such as tar take a file without blocks for a hole as a whole. */
	if (st->st_size && !st->st_blocks && volume->system)
		return 0;
	return volume->system ? OBJECT_SECONDS : CACHE_SECONDS;
}

void op_entry(struct inode *inode, struct fuse_entry_param *entry)
{
	/* A file that ends with a process loses its names without the kernel's being told. */
	bool ends = S_ISREG(inode->mode) && file_ends_with_process(inode->file);

	*entry =
	    (struct fuse_entry_param){.ino = inode->ino, .entry_timeout = ends ? 0 : CACHE_SECONDS};
	inode_stat(inode, &entry->attr);
	entry->attr_timeout = op_attr_seconds(inode, &entry->attr);
}

void op_reply_entry(struct op *op, fuse_req_t req, struct inode *inode)
{
	struct fuse_entry_param entry;

	op_end(op, 0);
	op_entry(inode, &entry);
	/* Count the lookup before the reply: the kernel may forget the inode at once. */
	inode_looked_up(inode);
	if (fuse_reply_entry(req, &entry))
		inode_forget(op->fs, inode, 1);
}

void op_reply_create(struct op *op, fuse_req_t req, struct inode *inode,
		     struct fuse_file_info *info)
{
	struct fuse_entry_param entry;
	int error = op_open_flags(op, req, inode, info);
	int flags = info->flags;

	if (error) {
		inode_put(op->fs, inode, 1);
		op_done(op, req, error);
		return;
	}
	op_end(op, 0);
	op_entry(inode, &entry);
	inode_looked_up(inode);
	if (fuse_reply_create(req, &entry, info)) {
		op_closed(op, NULL, inode, flags);
		inode_forget(op->fs, inode, 1);
	}
}
