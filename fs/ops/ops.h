/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* The FUSE requests: one file per family. A callback parses, calls one function of tree or file,
 * and replies; nothing is touched after the reply. */
#ifndef FS_OPS_OPS_H
#define FS_OPS_OPS_H

#define FUSE_USE_VERSION 318
#include <fuse_lowlevel.h>

#include "common/tsan.h"
#include "fs/core/caller.h"
#include "fs/core/fs.h"
#include "fs/core/worker.h"
#include "fs/file/volume.h"
#include "fs/journal/journal.h"
#include "fs/trace/observe.h"
#include "fs/tree/inode.h"

/* Seconds for which the kernel may keep names and attributes: all changes go through it, so they
 * hold until it changes them itself. A day, because libfuse wants a number. */
#define CACHE_SECONDS 86400.0

/* Programs write to a host/ file past the kernel's inode, through mappings: its blocks change
 * unseen. */
#define OBJECT_SECONDS 1.0

/* A request in hand: who, on what, with which thread's means. */
struct op {
	struct fs *fs;
	struct worker *worker;
	struct inode *inode;
	fuse_req_t req;
	enum stat_op kind;
	/* What it is about, for who watches: set after op_begin where it applies. */
	const char *name; /* below inode */
	struct inode *to; /* the second inode, if any, and the name below it */
	const char *to_name;
	uint64_t offset, bytes;
	/* The kernel asks again what an earlier daemon did and did not answer: what was done, bits
	 * of enum journal_drc_add, and which inode it led to. */
	unsigned completed;
	uint64_t completed_ino;
	unsigned observers; /* who watches: bits of observe.h */
	int64_t began;	    /* CLOCK_MONOTONIC ns; 0: not looked at */
};

/* Finds the parts; replies with the error itself and returns false where one is missing. */
bool op_begin(struct op *op, fuse_req_t req, fuse_ino_t ino, enum stat_op kind);
/* The second inode of a request; replies as op_begin and returns false where it is missing. */
bool op_begin_to(struct op *op, fuse_req_t req, fuse_ino_t ino);
/* Whether the request's name was made already: with the inode, and a reference as tree_create's. */
bool op_drc_find_inode(const struct op *op, struct inode **inode);
/* Whether a change that leads to nothing was done already. */
static inline bool op_drc_find(const struct op *op)
{
	return op->completed & JOURNAL_DID_NAME;
}
/* Gives the request to its observers. */
void op_observe(const struct op *op, int64_t result);
/* Comes before every reply, under no lock: tells who watches what came of it, bytes, 0 or -errno.
 * The kernel has the inodes until it has the reply: an open file's until that of its release. */
static inline void op_end(struct op *op, int64_t result)
{
	stats_add(&op->worker->stats->ended, 1);
	if (op->began)
		op_observe(op, result);
	if (op->inode)
		tsan_release(op->inode);
	if (op->to)
		tsan_release(op->to);
}
/* A request without an inode of its own, which its caller answers: counts it. */
void op_count(fuse_req_t req, enum stat_op kind);
static inline struct caller op_caller(const struct op *op)
{
	const struct fuse_ctx *ctx = fuse_req_ctx(op->req);

	return (struct caller){.pid = ctx->pid, .uid = ctx->uid, .gid = ctx->gid};
}
/* Counts it and has the kernel ask no more for anything of the kind. */
void op_unsupported(fuse_req_t req, enum stat_op kind);
/* Replies with an error (0: success without data) and counts it. */
void op_done(struct op *op, fuse_req_t req, int error);
/* Replies with the entry, handing the reference to the kernel; takes it back if nobody listens. */
void op_reply_entry(struct op *op, fuse_req_t req, struct inode *inode);
void op_entry(struct inode *inode, struct fuse_entry_param *entry);
double op_attr_seconds(const struct inode *inode);
/* The reply to create and tmpfile. */
void op_reply_create(struct op *op, fuse_req_t req, struct inode *inode,
		     struct fuse_file_info *info);

/* The worker's counters of the volume that the inode is on now; NULL: the root is on none. */
static inline struct stats_volume *op_volume(const struct op *op, const struct inode *inode)
{
	const struct volume *volume = atomic_load_explicit(&inode->volume, memory_order_relaxed);

	return volume ? &op->worker->stats->volumes[volume->index] : NULL;
}

/* The file is one of those that bytes move in or out of. */
static inline void op_count_busy(struct op *op, const struct inode *inode, uint64_t bytes)
{
	busy_add(&op->worker->stats->busy, inode->ino, bytes, busy_now());
}

/* Fills in what the kernel is to do with an open file: 0 or -errno. */
int op_open_flags(struct op *op, fuse_req_t req, struct inode *inode, struct fuse_file_info *info);
/* Counts a handle off again. */
void op_closed(struct op *op, fuse_req_t req, struct inode *inode, int flags);

/* close returns before the daemon has heard of it: what failed only because a file seems open may
 * be tried again after this, a few times (tries starts at 0). */
bool op_wait_release(int *tries);

/* From op's inode into its second one, with all that such a change brings with it: how many bytes,
 * or -errno. */
ssize_t op_copy_bytes(struct op *op, uint64_t from, uint64_t to, uint64_t bytes);

/* What the kernel says of a caller who changes a file: whether it has CAP_FSETID. */
enum op_told { OP_TOLD_NOTHING, OP_TOLD_KEEP, OP_TOLD_KILL };
/* What a write or a truncation says, by its flag. */
static inline enum op_told op_told(const struct op *op, bool kill)
{
	return !op->fs->can.killpriv.on ? OP_TOLD_NOTHING : kill ? OP_TOLD_KILL : OP_TOLD_KEEP;
}
/* The file was changed by the caller, or is about to be given away: takes its set-id bits, as the
 * kernel does on file systems that have no daemon, and lets the kernel know. Under no lock, before
 * the reply. */
void op_drop_set_id(struct op *op, struct inode *inode, enum op_told told);
/* The bits that op_drop_set_id would take. */
mode_t op_set_id_to_drop(struct op *op, struct inode *inode, enum op_told told);

/* Bits of fuse_file_info.fh: the kernel keeps it and no user can name it. */
#define OP_HANDLE_WRITES   1 /* opened for writing */
#define OP_HANDLE_NO_READS 2 /* not opened for reading */

/* The table of all operations, which the session gives to libfuse. */
const struct fuse_lowlevel_ops *ops_table(void);

/* Each adds the operations of one file to the table. */
void ops_name(struct fuse_lowlevel_ops *ops);
void ops_attr(struct fuse_lowlevel_ops *ops);
void ops_dir(struct fuse_lowlevel_ops *ops);
void ops_open(struct fuse_lowlevel_ops *ops);
void ops_io(struct fuse_lowlevel_ops *ops);
void ops_ioctl(struct fuse_lowlevel_ops *ops);
void ops_xattr(struct fuse_lowlevel_ops *ops);

#endif
