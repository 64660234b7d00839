/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* The FUSE operations, one file per family. A callback parses the request, calls one function of
 * tree or file, and replies; no callback touches an inode after the reply. */
#ifndef FS_OPS_OPS_H
#define FS_OPS_OPS_H

#include <fuse_lowlevel.h>

#include "common/tsan.h"
#include "fs/core/caller.h"
#include "fs/core/fs.h"
#include "fs/core/worker.h"
#include "fs/journal/journal.h"
#include "fs/trace/observe.h"
#include "fs/tree/inode.h"
#include "fs/volume/volume.h"

/* Seconds for which the kernel may cache names and attributes. Changes go through the kernel,
 * except for the stores of inode_unseen.h, so cached values hold until the kernel itself changes
 * them; libfuse wants a number, so a day. */
#define CACHE_SECONDS 86400.0

/* Seconds for which the kernel may cache the attributes of a file in host/, whose number of blocks
 * may change while no handle for writing is open. Not for a file without blocks. */
#define OBJECT_SECONDS 1.0

/* A request that a worker thread serves: the caller, the inode, and the worker. */
struct op {
	struct fs *fs;
	struct worker *worker;
	struct inode *inode;
	fuse_req_t req;
	enum stat_op kind;
	/* The request's arguments, for observers: set after op_begin by the operations that have
	 * them. */
	const char *name; /* a name in the directory inode */
	struct inode *to; /* the second inode, or NULL, and a name in that directory */
	const char *to_name;
	uint64_t offset, bytes;
	/* For a request that the kernel repeats because an earlier daemon did not answer: the steps
	 * that the earlier daemon completed (bits JOURNAL_COMPLETED_*), and the resulting inode. */
	unsigned completed;
	uint64_t completed_ino;
	unsigned observers; /* bits OBSERVE_* */
	int64_t began;	    /* CLOCK_MONOTONIC ns; 0: not timed */
};

/* Fills op for a request on the inode ino. Otherwise replies with the error and returns false: no
 * worker, no such inode, or a node of .gpumem/. */
bool op_begin(struct op *op, fuse_req_t req, fuse_ino_t ino, enum stat_op kind);
/* Finds the second inode of a request. Otherwise replies and returns false, as op_begin. */
bool op_begin_to(struct op *op, fuse_req_t req, fuse_ino_t ino);
/* Whether an earlier daemon completed the request and the inode still exists: then inode, with a
 * reference as from tree_create. */
bool op_drc_find_inode(const struct op *op, struct inode **inode);
/* Whether an earlier daemon completed a request that creates no inode. */
static inline bool op_drc_find(const struct op *op)
{
	return op->completed & JOURNAL_COMPLETED_NAME;
}
/* Gives the request to its observers. */
void op_observe(const struct op *op, int64_t result);
/* Ends a request with its result (bytes, 0 or -errno), before every reply and under no lock: counts
 * the request and informs observers. Until the reply the kernel has a reference to the inodes; to
 * the inode of an open file even until the reply to its release. */
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
/* A request that copies, zeroes or frees at most so many bytes may stay on its worker. */
#define OP_SMALL_BYTES (8ULL << 20)

/* Before any effect of a request that may take longer than a small copy: true if a thread of
 * fs/turns serves the request, from the start; then the caller returns. */
bool op_defer(struct op *op);
/* By the worker: another thread will reply to the request, or has replied. */
static inline void op_hand_over(const struct op *op)
{
	stats_add(&op->worker->stats->ended, 1);
}
/* By the thread that is to reply to a worker's request, through the worker's channel, with a copy
 * of the worker's op. Otherwise replies with the error and returns false: no worker. */
bool op_take_over(struct op *op, int channel);
/* Counts a request that the caller answers without op_begin. */
void op_count(fuse_req_t req, enum stat_op kind);
static inline struct caller op_caller(const struct op *op)
{
	const struct fuse_ctx *ctx = fuse_req_ctx(op->req);

	return (struct caller){.pid = ctx->pid, .uid = ctx->uid, .gid = ctx->gid};
}
/* Counts the request and replies ENOSYS, after which the kernel sends no more requests of this
 * kind. */
void op_unsupported(fuse_req_t req, enum stat_op kind);
/* Replies with an error (0: success without data) and counts the error. */
void op_done(struct op *op, fuse_req_t req, int error);
/* Replies with the entry. The caller's reference becomes the kernel's; if the reply fails, the
 * reference is dropped. */
void op_reply_entry(struct op *op, fuse_req_t req, struct inode *inode);
void op_entry(struct inode *inode, struct fuse_entry_param *entry);
/* How long the kernel may cache the attributes of inode_stat. */
double op_attr_seconds(struct inode *inode, const struct stat *st);
/* op_reply_entry for create and tmpfile, which also open the file. */
void op_reply_create(struct op *op, fuse_req_t req, struct inode *inode,
		     struct fuse_file_info *info);

/* The worker's counters for the inode's present volume; NULL for the root, which is on no volume.
 */
static inline struct stats_volume *op_volume(const struct op *op, const struct inode *inode)
{
	const struct volume *volume = atomic_load_explicit(&inode->volume, memory_order_relaxed);

	return volume ? &op->worker->stats->volumes[volume->index] : NULL;
}

/* Counts bytes that were read from or written to a file, for the list of busy files. */
static inline void op_count_busy(struct op *op, const struct inode *inode, uint64_t bytes)
{
	busy_add(&op->worker->stats->busy, inode->ino, bytes, busy_now());
}

/* Counts the new handle and fills in how the kernel uses the file: 0 or -errno. */
int op_open_flags(struct op *op, fuse_req_t req, struct inode *inode, struct fuse_file_info *info);
/* Counts a handle that is closed. */
void op_closed(struct op *op, fuse_req_t req, struct inode *inode, int flags);

/* Waits a moment and returns true, some 20 times; attempts starts at 0. close(2) returns before the
 * daemon learns of the close, so an operation that failed because a file is open may be tried
 * again. */
bool op_wait_release(int *attempts);

/* Copies from op->inode into op->to with all side effects of a write: the number of bytes, or
 * -errno. */
ssize_t op_copy_bytes(struct op *op, uint64_t from, uint64_t to, uint64_t bytes);

/* What the kernel says about the set-id bits of a file that a caller changes: nothing, keep them
 * (the caller has CAP_FSETID), or clear them. */
enum op_told { OP_TOLD_NOTHING, OP_TOLD_KEEP, OP_TOLD_KILL };
/* The value for a write or a truncation, by the request's flag. */
static inline enum op_told op_told(const struct op *op, bool kill)
{
	return !op->fs->can.killpriv.on ? OP_TOLD_NOTHING : kill ? OP_TOLD_KILL : OP_TOLD_KEEP;
}
/* Clears the set-id bits of a file that the caller changed or is about to give to another owner, as
 * file systems without a daemon do, and informs the kernel. Under no lock, before the reply. */
void op_drop_set_id(struct op *op, struct inode *inode, enum op_told told);
/* The bits that op_drop_set_id would clear. */
mode_t op_set_id_to_drop(struct op *op, struct inode *inode, enum op_told told);

/* Bits of fuse_file_info.fh, which the kernel stores and no process can choose. */
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
