/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
#include <errno.h>
#include <string.h>

#include "fs/control.h"
#include "fs/ops.h"
#include "fs/share.h"
#include "fs/spool.h"

/* How the file was opened is in the handle, which only the kernel can name. */
static enum gpumem_access access_of(const struct fuse_file_info *info)
{
	return info->fh & OP_HANDLE_WRITES ? GPUMEM_ACCESS_WRITE : GPUMEM_ACCESS_READ;
}

static int check_shared(const struct op *op, struct share **share)
{
	*share = atomic_load(&op->fs->share);
	if (!*share)
		return -ENOTTY;
	if (!S_ISREG(op->inode->mode))
		return S_ISDIR(op->inode->mode) ? -EISDIR : -EINVAL;
	return 0;
}

static void give_token(struct op *op, fuse_req_t req, const struct fuse_file_info *info)
{
	struct gpumem_token token;
	struct share *share;
	int error = check_shared(op, &share);

	if (!error)
		error =
		    share_token(share, op->inode, fuse_req_ctx(req)->uid, access_of(info), &token);
	if (error) {
		op_done(op, req, error);
		return;
	}
	op_end(op, 0);
	fuse_reply_ioctl(req, 0, &token, sizeof(token));
}

static void give_lease(struct op *op, fuse_req_t req, const struct fuse_file_info *info,
		       const struct gpumem_lease_ask *ask)
{
	struct share *share;
	int error = check_shared(op, &share);

	if (!error)
		error =
		    share_lease_ask(share, op->inode, fuse_req_ctx(req)->uid, access_of(info), ask);
	if (error) {
		op_done(op, req, error);
		return;
	}
	op_end(op, 0);
	fuse_reply_ioctl(req, 0, NULL, 0);
}

static void save(struct op *op, fuse_req_t req)
{
	struct spool_saved saved;
	struct inode *below = op->inode == op->fs->root ? NULL : op->inode;
	int error = op->fs->spool ? spool_save_below(op->fs, below, &saved) : -ENOTSUP;

	if (error && (error == -ENOTSUP || !saved.failed)) {
		op_done(op, req, error);
		return;
	}
	struct gpumem_saved answer = {
	    .files = saved.files, .bytes = saved.bytes, .failed = saved.failed, .error = -error};

	op_end(op, error);
	fuse_reply_ioctl(req, 0, &answer, sizeof(answer));
}

static void op_ioctl(fuse_req_t req, fuse_ino_t ino, unsigned command, void *argument,
		     struct fuse_file_info *info, unsigned flags, const void *in, size_t in_bytes,
		     size_t out_bytes)
{
	struct gpumem_lease_ask ask;
	struct op op;
	bool token = command == GPUMEM_IOC_TOKEN && out_bytes >= sizeof(struct gpumem_token);
	bool lease = command == GPUMEM_IOC_LEASE && in_bytes >= sizeof(ask);

	(void)argument, (void)flags;
	bool saves = command == GPUMEM_IOC_SAVE && out_bytes >= sizeof(struct gpumem_saved);

	if (control_owns(ino) || !(token || lease || saves)) {
		fuse_reply_err(req, ENOTTY);
		return;
	}
	if (!op_begin(&op, req, ino, STAT_IOCTL))
		return;
	if (saves) {
		save(&op, req);
	} else if (token) {
		give_token(&op, req, info);
	} else {
		memcpy(&ask, in, sizeof(ask)); /* in has no alignment */
		give_lease(&op, req, info, &ask);
	}
}

void ops_ioctl(struct fuse_lowlevel_ops *ops)
{
	ops->ioctl = op_ioctl;
}
