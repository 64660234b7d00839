/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
#include <errno.h>
#include <linux/capability.h>
#include <linux/limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/xattr.h>

#include "common/cleanup.h"
#include "fs/attributes/inode_attributes.h"
#include "fs/core/caller.h"
#include "fs/ops/ops.h"
#include "fs/share/share.h"
#include "fs/tree/inode.h"
#include "fs/tree/inode_hooks.h"
#include "fs/tree/owner.h"
#include "fs/tree/record.h"
#include "fs/tree/xattr.h"

/* The daemon stores only attributes user.* and trusted.*. Capabilities and ACLs would have no
 * effect here, so setting them must fail. */
static int xattr_name_check(const char *name)
{
	static const char *const prefixes[] = {"user.", XATTR_TRUSTED};

	for (unsigned i = 0; i < sizeof(prefixes) / sizeof(prefixes[0]); i++)
		if (strncmp(name, prefixes[i], strlen(prefixes[i])) == 0)
			return name[strlen(prefixes[i])] ? 0 : -EINVAL;
	return -EOPNOTSUPP;
}

static int xattr_stored_set(struct fs *fs, struct inode *inode, const char *name, const char *value,
			    size_t size, int flags)
{
	int error = xattr_name_check(name);

	if (error)
		return error;
	if (journal_room(fs->journal))
		return -ENOSPC;
	scoped_lock(&inode->lock);
	error = xattr_store(fs, inode, name, value, size, flags, OWNER_WITHIN_LIMITS);
	if (error)
		return error;
	inode_touch_change(inode);
	record_xattr(fs, inode, name, value, size);
	return 0;
}

static int xattr_stored_remove(struct fs *fs, struct inode *inode, const char *name)
{
	int error = xattr_name_check(name);

	if (error)
		return error;
	scoped_lock(&inode->lock);
	error = xattr_drop(fs, inode, name);
	if (error)
		return error;
	inode_touch_change(inode);
	record_xattr_gone(fs, inode, name);
	return 0;
}

static int attribute_set(struct op *op, fuse_req_t req, enum attr_id id, const char *value,
			 size_t size, int flags)
{
	bool exists = inode_attr_listed(op->inode, id);

	if (flags & XATTR_CREATE && exists)
		return -EEXIST;
	if (flags & XATTR_REPLACE && !exists)
		return -ENODATA;
	int error;

	do {
		error = inode_attr_set(op->fs, op->worker->copier, op->inode, id, value, size,
				       fuse_req_ctx(req)->uid);
	} while (error == -EBUSY && share_drop_expired(op->fs, op->inode));
	return error;
}

/* Whether a change of the attribute may move, map or recall the bytes of the file. */
static bool attribute_is_slow(struct inode *inode, int id)
{
	if (!S_ISREG(inode->mode))
		return false;
	if (atomic_load(&inode->residency) == INODE_AWAY)
		return id == ATTR_PAGE_SIZE || id == ATTR_RESIDENT || id == ATTR_PERSIST;
	return (id == ATTR_PAGE_SIZE || id == ATTR_RESIDENT || id == ATTR_MAPPING) &&
	       file_allocated(inode->file);
}

static void op_setxattr(fuse_req_t req, fuse_ino_t ino, const char *name, const char *value,
			size_t size, int flags)
{
	struct op op;

	if (!op_begin(&op, req, ino, STAT_SETXATTR))
		return;
	op.bytes = size;
	int id = attributes_find(name), error;

	if (attribute_is_slow(op.inode, id) && op_defer(&op))
		return;
	if (op_drc_find(&op))
		error = 0;
	else if (id >= 0)
		error = attribute_set(&op, req, (enum attr_id)id, value, size, flags);
	else if (id == -ENODATA)
		error = xattr_stored_set(op.fs, op.inode, name, value, size, flags);
	else
		error = id;
	op_done(&op, req, error);
}

/* The size of a stored attribute, or -errno; *value is allocated. */
static ssize_t xattr_stored_get(struct inode *inode, const char *name, char **value)
{
	int error = xattr_name_check(name);

	if (error)
		return error;
	scoped_lock(&inode->lock);
	ssize_t size = xattr_get(inode->xattrs, name, NULL, 0);

	if (size < 0)
		return size;
	*value = malloc((size_t)size + 1);
	if (!*value)
		return -ENOMEM;
	return size ? xattr_get(inode->xattrs, name, *value, (size_t)size) : 0;
}

static ssize_t attribute_get(struct op *op, int id, char **value)
{
	size_t length = 0;
	int error =
	    id < 0 ? -ENODATA : inode_attr_get(op->fs, op->inode, (enum attr_id)id, value, &length);

	if (error)
		return error;
	return length > XATTR_SIZE_MAX ? -E2BIG : (ssize_t)length;
}

/* The reply of getxattr and listxattr: without room only the size. */
static void op_reply_value(struct op *op, fuse_req_t req, const char *value, size_t size,
			   size_t room)
{
	if (room && size > room) {
		op_done(op, req, -ERANGE);
		return;
	}
	op_end(op, (int64_t)size);
	if (room == 0)
		fuse_reply_xattr(req, size);
	else
		fuse_reply_buf(req, value, size);
}

static void op_getxattr(fuse_req_t req, fuse_ino_t ino, const char *name, size_t room)
{
	char *value AUTO_FREE = NULL;
	struct op op;

	if (!op_begin(&op, req, ino, STAT_GETXATTR))
		return;
	int id = strncmp(name, ATTRIBUTES_PREFIX, strlen(ATTRIBUTES_PREFIX)) == 0
		     ? attributes_find(name)
		     : -ENODATA;
	ssize_t size = id == -ENODATA ? xattr_stored_get(op.inode, name, &value)
				      : attribute_get(&op, id, &value);

	if (size < 0)
		op_done(&op, req, (int)size);
	else
		op_reply_value(&op, req, value, (size_t)size, room);
}

/* Lists the names user.gpumem.* that are set, each with its NUL: the number of bytes that all need.
 */
static size_t attributes_list(struct inode *inode, char *out, size_t capacity)
{
	size_t needed = 0;

	for (int id = 0; id < ATTR_COUNT; id++) {
		if (!inode_attr_listed(inode, (enum attr_id)id))
			continue;
		const char *name = attributes_name((enum attr_id)id);
		size_t length = strlen(name) + 1;

		if (needed + length <= capacity)
			memcpy(out + needed, name, length);
		needed += length;
	}
	return needed;
}

/* trusted.* is for CAP_SYS_ADMIN only, as in the kernel's own file systems. */
static enum xattr_names xattr_names_visible(struct op *op)
{
	struct caller caller = op_caller(op);

	pthread_mutex_lock(&op->inode->lock);
	const struct xattr *list = op->inode->xattrs;
	bool trusted = xattr_list(list, XATTR_NAMES_ALL, NULL, 0) !=
		       xattr_list(list, XATTR_NAMES_BUT_TRUSTED, NULL, 0);

	pthread_mutex_unlock(&op->inode->lock);
	return trusted && caller_is_capable(&caller, CAP_SYS_ADMIN) ? XATTR_NAMES_ALL
								    : XATTR_NAMES_BUT_TRUSTED;
}

static void op_listxattr(fuse_req_t req, fuse_ino_t ino, size_t room)
{
	struct op op;

	if (!op_begin(&op, req, ino, STAT_LISTXATTR))
		return;
	char *names = op.worker->reply;
	size_t capacity = op.worker->reply_bytes;

	enum xattr_names visible_names = xattr_names_visible(&op);

	pthread_mutex_lock(&op.inode->lock);
	size_t size = xattr_list(op.inode->xattrs, visible_names, names, capacity);
	pthread_mutex_unlock(&op.inode->lock);
	if (size <= capacity)
		size += attributes_list(op.inode, names + size, capacity - size);
	op_reply_value(&op, req, names, size, room);
}

static void op_removexattr(fuse_req_t req, fuse_ino_t ino, const char *name)
{
	struct op op;
	int error;

	if (!op_begin(&op, req, ino, STAT_REMOVEXATTR))
		return;
	int id = attributes_find(name);

	if (attribute_is_slow(op.inode, id) && op_defer(&op))
		return;
	if (op_drc_find(&op)) {
		error = 0;
	} else if (id >= 0) {
		error = inode_attr_remove(op.fs, op.worker->copier, op.inode, (enum attr_id)id,
					  fuse_req_ctx(req)->uid);
	} else {
		error = id == -ENODATA ? xattr_stored_remove(op.fs, op.inode, name) : id;
	}
	op_done(&op, req, error);
}

void ops_xattr(struct fuse_lowlevel_ops *ops)
{
	ops->setxattr = op_setxattr;
	ops->getxattr = op_getxattr;
	ops->listxattr = op_listxattr;
	ops->removexattr = op_removexattr;
}
