/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
#include <errno.h>

#include "fs/control.h"
#include "fs/ops.h"
#include "fs/share.h"

/* A token says how the file was opened: that is in the handle, which only the kernel can name. */
static int token_for(struct op *op, fuse_req_t req, const struct fuse_file_info *info,
		     struct gpumem_token *token)
{
	enum gpumem_access access =
	    info->fh & OP_HANDLE_WRITES ? GPUMEM_ACCESS_WRITE : GPUMEM_ACCESS_READ;

	struct share *share = atomic_load(&op->fs->share);

	if (!share)
		return -ENOTTY;
	if (!S_ISREG(op->inode->mode))
		return S_ISDIR(op->inode->mode) ? -EISDIR : -EINVAL;
	return share_token(share, op->inode, fuse_req_ctx(req)->uid, access, token);
}

static void op_ioctl(fuse_req_t req, fuse_ino_t ino, unsigned command, void *argument,
		     struct fuse_file_info *info, unsigned flags, const void *in, size_t in_bytes,
		     size_t out_bytes)
{
	struct gpumem_token token;
	struct op op;

	(void)argument, (void)flags, (void)in, (void)in_bytes;
	if (control_owns(ino) || command != GPUMEM_IOC_TOKEN || out_bytes < sizeof(token)) {
		fuse_reply_err(req, ENOTTY);
		return;
	}
	if (!op_begin(&op, req, ino, STAT_IOCTL))
		return;
	int error = token_for(&op, req, info, &token);

	if (error) {
		op_done(&op, req, error);
		return;
	}
	op_end(&op, 0);
	fuse_reply_ioctl(req, 0, &token, sizeof(token));
}

void ops_ioctl(struct fuse_lowlevel_ops *ops)
{
	ops->ioctl = op_ioctl;
}
