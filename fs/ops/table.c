/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* The table of all operations. ROUTES lists the operations that .gpumem/ supports: each sends a
 * request on a node of .gpumem/ to control_operations, and any other request to the tree's
 * operation of the same name. An operation without a row in ROUTES sends all requests to the tree's
 * operation, and op_begin refuses nodes of .gpumem/. */
#include "fs/control/nodes.h"
#include "fs/ops/ops.h"

static struct fuse_lowlevel_ops tree_ops;

/* clang-format off */
#define ROUTES(ROUTE) \
	ROUTE(lookup, control_owns(parent), \
	      (fuse_req_t req, fuse_ino_t parent, const char *name), (req, parent, name)) \
	ROUTE(mknod, control_owns(parent), \
	      (fuse_req_t req, fuse_ino_t parent, const char *name, mode_t mode, dev_t rdev), \
	      (req, parent, name, mode, rdev)) \
	ROUTE(getattr, control_owns(ino), \
	      (fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *info), (req, ino, info)) \
	ROUTE(statx, control_owns(ino), \
	      (fuse_req_t req, fuse_ino_t ino, int flags, int mask, struct fuse_file_info *info), \
	      (req, ino, flags, mask, info)) \
	ROUTE(setattr, control_owns(ino), \
	      (fuse_req_t req, fuse_ino_t ino, struct stat *st, int which, \
	       struct fuse_file_info *info), (req, ino, st, which, info)) \
	ROUTE(readlink, control_owns(ino), (fuse_req_t req, fuse_ino_t ino), (req, ino)) \
	ROUTE(readdir, control_owns(ino), \
	      (fuse_req_t req, fuse_ino_t ino, size_t bytes, off_t offset, \
	       struct fuse_file_info *info), (req, ino, bytes, offset, info)) \
	ROUTE(readdirplus, control_owns(ino), \
	      (fuse_req_t req, fuse_ino_t ino, size_t bytes, off_t offset, \
	       struct fuse_file_info *info), (req, ino, bytes, offset, info)) \
	ROUTE(open, control_owns(ino), \
	      (fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *info), (req, ino, info)) \
	ROUTE(release, control_owns(ino), \
	      (fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *info), (req, ino, info)) \
	ROUTE(read, control_owns(ino), \
	      (fuse_req_t req, fuse_ino_t ino, size_t bytes, off_t offset, \
	       struct fuse_file_info *info), (req, ino, bytes, offset, info)) \
	ROUTE(write, control_owns(ino), \
	      (fuse_req_t req, fuse_ino_t ino, const char *from, size_t bytes, off_t offset, \
	       struct fuse_file_info *info), (req, ino, from, bytes, offset, info)) \
	ROUTE(lseek, control_owns(ino), \
	      (fuse_req_t req, fuse_ino_t ino, off_t offset, int whence, \
	       struct fuse_file_info *info), (req, ino, offset, whence, info)) \
	ROUTE(copy_file_range, control_owns(from), \
	      (fuse_req_t req, fuse_ino_t from, off_t from_offset, \
	       struct fuse_file_info *from_info, fuse_ino_t to, off_t to_offset, \
	       struct fuse_file_info *to_info, size_t bytes, int flags), \
	      (req, from, from_offset, from_info, to, to_offset, to_info, bytes, flags)) \
	ROUTE(ioctl, control_owns(ino), \
	      (fuse_req_t req, fuse_ino_t ino, unsigned command, void *argument, \
	       struct fuse_file_info *info, unsigned flags, const void *in, size_t in_bytes, \
	       size_t out_bytes), \
	      (req, ino, command, argument, info, flags, in, in_bytes, out_bytes)) \
	ROUTE(fsync, control_owns(ino), \
	      (fuse_req_t req, fuse_ino_t ino, int datasync, struct fuse_file_info *info), \
	      (req, ino, datasync, info)) \
	ROUTE(fsyncdir, control_owns(ino), \
	      (fuse_req_t req, fuse_ino_t ino, int datasync, struct fuse_file_info *info), \
	      (req, ino, datasync, info)) \
	ROUTE(getxattr, control_owns(ino), \
	      (fuse_req_t req, fuse_ino_t ino, const char *name, size_t room), \
	      (req, ino, name, room)) \
	ROUTE(listxattr, control_owns(ino), \
	      (fuse_req_t req, fuse_ino_t ino, size_t room), (req, ino, room))

#define DEFINE(operation, to_control, parameters, arguments) \
	static void route_##operation parameters \
	{ \
		if (to_control) \
			control_operations.operation arguments; \
		else \
			tree_ops.operation arguments; \
	}
#define INSERT(operation, to_control, parameters, arguments) table.operation = route_##operation;

ROUTES(DEFINE)
/* clang-format on */

const struct fuse_lowlevel_ops *ops_table(void)
{
	static struct fuse_lowlevel_ops table;

	ops_name(&tree_ops);
	ops_attr(&tree_ops);
	ops_dir(&tree_ops);
	ops_open(&tree_ops);
	ops_io(&tree_ops);
	ops_xattr(&tree_ops);
	ops_ioctl(&tree_ops);
	table = tree_ops;
	ROUTES(INSERT)
	return &table;
}
