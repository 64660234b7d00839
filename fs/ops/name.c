/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
#include <errno.h>
#include <string.h>

#include "fs/control/nodes.h"
#include "fs/ops/ops.h"
#include "fs/share/share.h"
#include "fs/tree/inode_table.h"
#include "fs/tree/tree.h"

static void op_reply_no_entry(struct op *op, fuse_req_t req)
{
	/* Node id 0: no such name, which the kernel may cache. */
	struct fuse_entry_param entry = {.entry_timeout = CACHE_SECONDS};

	op_end(op, -ENOENT);
	fuse_reply_entry(req, &entry);
}

static void op_reply_of_daemon(struct op *op, fuse_req_t req, fuse_ino_t parent)
{
	const char *name = op->name;

	op_end(op, 0);
	control_operations.lookup(req, parent, name);
}

/* Whether the name in the directory is that of the daemon's .gpumem. A user's entry of that name,
 * which an earlier release let users make, goes before. */
static bool name_is_of_daemon(const struct op *op, struct inode *parent, const char *name)
{
	struct inode *inode;

	if (!control_is_name(name))
		return false;
	int error = tree_lookup(op->fs, parent, name, &inode);

	if (!error)
		inode_put(op->fs, inode, 1);
	return error == -ENOENT;
}

static void op_lookup(fuse_req_t req, fuse_ino_t parent, const char *name)
{
	struct op op;
	struct inode *inode;

	if (!op_begin(&op, req, parent, STAT_LOOKUP))
		return;
	op.name = name;
	int error = tree_lookup(op.fs, op.inode, name, &inode);

	if (!error)
		op_reply_entry(&op, req, inode);
	else if (error == -ENOENT && control_is_name(name))
		op_reply_of_daemon(&op, req, parent);
	else if (error == -ENOENT)
		op_reply_no_entry(&op, req);
	else
		op_done(&op, req, error);
}

static void lookups_forget(struct fs *fs, fuse_ino_t ino, uint64_t n)
{
	bool has_lookup_gc = fs->mount == FS_MOUNT_KEPT;
	struct inode *inode = NULL;

	/* Where an earlier daemon had the mount, lookup_gc may forget the lookups of an inode at
	 * the same time, so hold a reference. */
	if (!control_owns(ino))
		inode = has_lookup_gc ? inode_table_get(fs->inodes, ino) : inode_find(fs, ino);
	if (!inode)
		return;
	inode_forget(fs, inode, n);
	if (has_lookup_gc)
		inode_put(fs, inode, 1);
	observe_background(fs, "forget");
}

static void op_forget(fuse_req_t req, fuse_ino_t ino, uint64_t n)
{
	op_count(req, STAT_FORGET);
	lookups_forget(fuse_req_userdata(req), ino, n);
	fuse_reply_none(req);
}

static void op_forget_multi(fuse_req_t req, size_t count, struct fuse_forget_data *forgets)
{
	op_count(req, STAT_BATCH_FORGET);
	for (size_t i = 0; i < count; i++)
		lookups_forget(fuse_req_userdata(req), forgets[i].ino, forgets[i].nlookup);
	fuse_reply_none(req);
}

/* A new inode that belongs to the caller. */
static struct tree_new tree_new_of_caller(fuse_req_t req, mode_t mode)
{
	const struct fuse_ctx *caller = fuse_req_ctx(req);

	return (struct tree_new){.mode = mode, .uid = caller->uid, .gid = caller->gid};
}

static int op_create_inode(struct op *op, const char *name, const struct tree_new *params,
			   struct inode **inode)
{
	if (op_drc_find_inode(op, inode))
		return 0;
	return control_is_name(name) ? -EEXIST
				     : tree_create(op->fs, op->inode, name, params, inode);
}

static void op_make(fuse_req_t req, fuse_ino_t parent, const char *name,
		    const struct tree_new *params, enum stat_op kind)
{
	struct op op;
	struct inode *inode;

	if (!op_begin(&op, req, parent, kind))
		return;
	op.name = name;
	int error = op_create_inode(&op, name, params, &inode);

	if (error)
		op_done(&op, req, error);
	else
		op_reply_entry(&op, req, inode);
}

static void op_mkdir(fuse_req_t req, fuse_ino_t parent, const char *name, mode_t mode)
{
	struct tree_new params = tree_new_of_caller(req, S_IFDIR | (mode & 07777));

	op_make(req, parent, name, &params, STAT_MKDIR);
}

static void op_mknod(fuse_req_t req, fuse_ino_t parent, const char *name, mode_t mode, dev_t rdev)
{
	struct tree_new params = tree_new_of_caller(req, mode);

	params.rdev = rdev;
	op_make(req, parent, name, &params, STAT_MKNOD);
}

static void op_symlink(fuse_req_t req, const char *target, fuse_ino_t parent, const char *name)
{
	struct tree_new params = tree_new_of_caller(req, S_IFLNK | 0777);

	params.target = target;
	op_make(req, parent, name, &params, STAT_SYMLINK);
}

static void op_readlink(fuse_req_t req, fuse_ino_t ino)
{
	struct op op;

	if (!op_begin(&op, req, ino, STAT_READLINK))
		return;
	op_end(&op, 0);
	/* Copy the target: after op_end the inode may be freed. */
	memcpy(op.worker->reply, op.inode->target, strlen(op.inode->target) + 1);
	fuse_reply_readlink(req, op.worker->reply);
}

static void op_create(fuse_req_t req, fuse_ino_t parent, const char *name, mode_t mode,
		      struct fuse_file_info *info)
{
	struct tree_new params = tree_new_of_caller(req, S_IFREG | (mode & 07777));
	struct op op;
	struct inode *inode;

	if (!op_begin(&op, req, parent, STAT_CREATE))
		return;
	op.name = name;
	int error = op_create_inode(&op, name, &params, &inode);

	/* Another process created the name after the kernel's lookup. After ESTALE the kernel looks
	 * the name up again and opens the existing file with all checks. */
	if (error == -EEXIST && !(info->flags & O_EXCL))
		error = -ESTALE;
	if (error)
		op_done(&op, req, error);
	else
		op_reply_create(&op, req, inode, info);
}

static void op_tmpfile(fuse_req_t req, fuse_ino_t parent, mode_t mode, struct fuse_file_info *info)
{
	struct tree_new params = tree_new_of_caller(req, S_IFREG | (mode & 07777));
	struct op op;
	struct inode *inode;

	if (!op_begin(&op, req, parent, STAT_TMPFILE))
		return;
	int error =
	    op_drc_find_inode(&op, &inode) ? 0 : tree_tmpfile(op.fs, op.inode, &params, &inode);

	if (error)
		op_done(&op, req, error);
	else
		op_reply_create(&op, req, inode, info);
}

static void op_link(fuse_req_t req, fuse_ino_t ino, fuse_ino_t parent, const char *name)
{
	struct op op;

	if (!op_begin(&op, req, ino, STAT_LINK) || !op_begin_to(&op, req, parent))
		return;
	op.to_name = name;
	struct inode *inode;
	int error = op_drc_find_inode(&op, &inode) ? 0
		    : control_is_name(name)	   ? -EEXIST
						   : tree_link(op.fs, op.inode, op.to, name);

	if (error)
		op_done(&op, req, error);
	else
		op_reply_entry(&op, req, op.inode);
}

static void op_unlink(fuse_req_t req, fuse_ino_t parent, const char *name)
{
	struct op op;

	if (!op_begin(&op, req, parent, STAT_UNLINK))
		return;
	op.name = name;
	op_done(&op, req, op_drc_find(&op) ? 0 : tree_unlink(op.fs, op.inode, name));
}

static void op_rmdir(fuse_req_t req, fuse_ino_t parent, const char *name)
{
	struct op op;

	if (!op_begin(&op, req, parent, STAT_RMDIR))
		return;
	op.name = name;
	int error = op_drc_find(&op)			     ? 0
		    : name_is_of_daemon(&op, op.inode, name) ? -EPERM
							     : tree_rmdir(op.fs, op.inode, name);

	op_done(&op, req, error);
}

/* Leases may keep a file from moving to another volume: drops the leases if the options allow it.
 */
static bool name_make_way(struct op *op, const char *name)
{
	struct inode *inode;

	if (tree_lookup(op->fs, op->inode, name, &inode))
		return false;
	bool has_dropped = S_ISREG(inode->mode) && share_drop_expired(op->fs, inode);

	inode_put(op->fs, inode, 1);
	return has_dropped;
}

/* Frees the memory behind the file's end, which an open file has for later writes, and a closed one
 * until the kernel's RELEASE. False: there is none. */
static bool name_trim(struct op *op, const char *name)
{
	struct inode_call call;
	struct inode *inode;

	if (tree_lookup(op->fs, op->inode, name, &inode))
		return false;
	uint64_t before = atomic_load(&inode->charges.bytes);

	if (S_ISREG(inode->mode)) {
		inode_call_init(&call, op->fs, inode, op->worker->copier);
		file_trim(inode->file, &call.call);
	}
	bool is_less = atomic_load(&inode->charges.bytes) < before;

	inode_put(op->fs, inode, 1);
	return is_less;
}

/* Whether to try again after an error that may pass: leases, or an open handle of a file in host/,
 * keep the file's memory; or a quota has no room for memory that the file does not need. */
static bool rename_may_pass(struct op *op, const char *name, int error, int *attempts)
{
	if (error == -EBUSY && name_make_way(op, name))
		return true;
	/* Once: a writer may make room behind the end again and again. */
	if (error == -EDQUOT)
		return (*attempts)++ == 0 && name_trim(op, name);
	return (error == -EBUSY || error == -ETXTBSY) && op_wait_release(attempts);
}

static bool rename_is_of_daemon(const struct op *op)
{
	return name_is_of_daemon(op, op->inode, op->name) ||
	       name_is_of_daemon(op, op->to, op->to_name);
}

static void op_rename(fuse_req_t req, fuse_ino_t parent, const char *name, fuse_ino_t new_parent,
		      const char *new_name, unsigned flags)
{
	struct op op;

	if (!op_begin(&op, req, parent, STAT_RENAME) || !op_begin_to(&op, req, new_parent))
		return;
	op.name = name;
	op.to_name = new_name;
	const struct fuse_ctx *caller = fuse_req_ctx(req);
	const struct tree_rename rename = {.from = op.inode,
					   .to = op.to,
					   .name = name,
					   .new_name = new_name,
					   .flags = flags,
					   .uid = caller->uid,
					   .gid = caller->gid};
	struct file_move *move = NULL;
	int error = 0, attempts = 0;

	bool is_done = op_drc_find(&op);

	if (is_done || rename_is_of_daemon(&op)) {
		op_done(&op, req, is_done ? 0 : -EPERM);
		return;
	}
	do {
		error = tree_rename(op.fs, op.worker->copier, &rename, &move);
	} while (rename_may_pass(&op, name, error, &attempts));
	/* The owner cannot close the handles of other programs, and mv(1) copies after EXDEV. */
	op_done(&op, req, error == -ETXTBSY ? -EXDEV : error);
	file_move_free(move);
	if (move)
		observe_volumes(op.fs);
}

void ops_name(struct fuse_lowlevel_ops *ops)
{
	ops->lookup = op_lookup;
	ops->forget = op_forget;
	ops->forget_multi = op_forget_multi;
	ops->mkdir = op_mkdir;
	ops->mknod = op_mknod;
	ops->symlink = op_symlink;
	ops->readlink = op_readlink;
	ops->create = op_create;
	ops->tmpfile = op_tmpfile;
	ops->link = op_link;
	ops->unlink = op_unlink;
	ops->rmdir = op_rmdir;
	ops->rename = op_rename;
}
