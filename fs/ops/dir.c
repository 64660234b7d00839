/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
#include <errno.h>
#include <string.h>

#include "fs/fuse/uring_buffer.h"
#include "fs/ops/ops.h"
#include "fs/tree/dir.h"
#include "fs/tree/inode.h"

/* The offset of a listing is the cookie of the entry that was listed last; older entries follow.
 * "." has a number below DIR_COOKIE_FIRST instead of a cookie. The offset after ".." is the cookie
 * that the directory will give next. */
enum { OFFSET_START = 0, OFFSET_DOT = 1 };

enum listing { LIST_NAMES, LIST_ATTRIBUTES };

/* A reply to readdir, while entries are added. */
struct dirbuf {
	fuse_req_t req;
	char *at;
	size_t room;
	enum listing listing;
};

static bool dirbuf_advance(struct dirbuf *buf, size_t bytes)
{
	if (bytes > buf->room)
		return false;
	buf->at += bytes;
	buf->room -= bytes;
	return true;
}

/* An entry without attributes: after inode number 0 in readdirplus the kernel looks the name up
 * when a process needs the attributes. */
static bool dirbuf_add_plain(struct dirbuf *buf, const char *name, uint64_t ino, mode_t mode,
			     uint64_t offset)
{
	struct fuse_entry_param entry = {.attr = {.st_ino = ino, .st_mode = mode}};

	if (buf->listing == LIST_NAMES)
		return dirbuf_advance(buf, fuse_add_direntry(buf->req, buf->at, buf->room, name,
							     &entry.attr, (off_t)offset));
	return dirbuf_advance(
	    buf, fuse_add_direntry_plus(buf->req, buf->at, buf->room, name, &entry, (off_t)offset));
}

static bool dirbuf_add_entry(struct dirbuf *buf, const struct dentry *dentry)
{
	struct fuse_entry_param entry;
	struct inode *inode = dentry->inode;

	if (buf->listing == LIST_NAMES)
		return dirbuf_add_plain(buf, dentry->name, inode->ino, inode->mode, dentry->cookie);
	op_entry(inode, &entry);
	if (!dirbuf_advance(buf, fuse_add_direntry_plus(buf->req, buf->at, buf->room, dentry->name,
							&entry, (off_t)dentry->cookie)))
		return false;
	/* The kernel counts every entry of readdirplus as a lookup. */
	inode_ref(inode);
	inode_looked_up(inode);
	return true;
}

static void dirbuf_fill(struct op *op, struct dirbuf *buf, uint64_t offset)
{
	struct dir *dir = op->inode->dir;
	struct inode *parent = dir->parent ? dir->parent : op->inode;
	struct dentry *entry;

	if (offset == OFFSET_START) {
		if (!dirbuf_add_plain(buf, ".", op->inode->ino, S_IFDIR, OFFSET_DOT))
			return;
		offset = OFFSET_DOT;
	}
	if (offset == OFFSET_DOT) {
		offset = dir->next_cookie;
		if (!dirbuf_add_plain(buf, "..", parent->ino, S_IFDIR, offset))
			return;
	}
	/* A listing never contains .gpumem, which a process finds only by its name: the accesslog
	 * there never ends, so a program that reads a whole tree must not meet the file. */
	while ((entry = dir_before(dir, offset)) && dirbuf_add_entry(buf, entry))
		offset = entry->cookie;
}

static void op_list(fuse_req_t req, fuse_ino_t ino, size_t bytes, off_t offset,
		    enum listing listing)
{
	struct op op;

	if (!op_begin(&op, req, ino, listing == LIST_NAMES ? STAT_READDIR : STAT_READDIRPLUS))
		return;
	if (!S_ISDIR(op.inode->mode)) {
		op_done(&op, req, -ENOTDIR);
		return;
	}
	char *entries = uring_buffer_reply(op.worker, req, &bytes);
	struct dirbuf buf = {.req = req, .at = entries, .room = bytes, .listing = listing};

	op.offset = (uint64_t)offset;
	op.bytes = bytes;

	/* While topology is held, a parent stays valid even if a rename moves the directory
	 * elsewhere. */
	brlock_token token = brlock_read_lock(&op.fs->topology);
	pthread_rwlock_rdlock(&op.inode->dir->lock);
	dirbuf_fill(&op, &buf, (uint64_t)offset);
	pthread_rwlock_unlock(&op.inode->dir->lock);
	brlock_read_unlock(&op.fs->topology, token);
	if (!op.fs->options.noatime)
		inode_touch_read(op.inode);
	size_t used = (size_t)(buf.at - entries);

	op_end(&op, (int64_t)used);
	fuse_reply_buf(req, entries, used);
}

static void op_readdir(fuse_req_t req, fuse_ino_t ino, size_t bytes, off_t offset,
		       struct fuse_file_info *info)
{
	(void)info;
	op_list(req, ino, bytes, offset, LIST_NAMES);
}

static void op_readdirplus(fuse_req_t req, fuse_ino_t ino, size_t bytes, off_t offset,
			   struct fuse_file_info *info)
{
	(void)info;
	op_list(req, ino, bytes, offset, LIST_ATTRIBUTES);
}

/* An open directory has no state. */
static void op_opendir(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *info)
{
	(void)ino, (void)info;
	op_unsupported(req, STAT_OPENDIR);
}

void ops_dir(struct fuse_lowlevel_ops *ops)
{
	ops->opendir = op_opendir;
	ops->readdir = op_readdir;
	ops->readdirplus = op_readdirplus;
}
