/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* Set-id bits of files that are changed. For a write and a truncation the kernel says whether the
 * caller has CAP_FSETID; for fallocate and copy_file_range the daemon must find out. Nothing is
 * needed for security.capability, as no file here can have that attribute. */
#include <linux/capability.h>

#include "fs/fuse/session.h"
#include "fs/ops/ops.h"
#include "fs/tree/tree.h"

static bool caller_is_of_group(const struct caller *caller, struct inode *inode)
{
	pthread_mutex_lock(&inode->lock);
	gid_t group = inode->gid;

	pthread_mutex_unlock(&inode->lock);
	return caller_is_member(caller, group) || caller_is_capable(caller, CAP_FSETID);
}

mode_t op_set_id_to_drop(struct op *op, struct inode *inode, enum op_told told)
{
	mode_t mode = atomic_load_explicit(&inode->mode, memory_order_relaxed);
	struct caller caller = op_caller(op);
	mode_t drop = S_ISUID;

	if (!(mode & (S_ISUID | S_ISGID)) || told == OP_TOLD_KEEP ||
	    (told == OP_TOLD_NOTHING && caller_is_capable(&caller, CAP_FSETID)))
		return 0;
	/* Without the group's right to execute, S_ISGID is only a mark, and members of the group
	 * may leave the mark set. */
	if (mode & S_ISGID && (mode & S_IXGRP || !caller_is_of_group(&caller, inode)))
		drop |= S_ISGID;
	return mode & drop;
}

void op_drop_set_id(struct op *op, struct inode *inode, enum op_told told)
{
	mode_t drop = op_set_id_to_drop(op, inode, told);

	/* Otherwise the kernel would go on using the old mode, also to execute the file. */
	if (drop && tree_drop_mode(op->fs, inode, drop))
		session_changed(session_of(op->fs), inode->ino);
}
