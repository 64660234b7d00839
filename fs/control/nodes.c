/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "common/cleanup.h"
#include "fs/control/access_log_file.h"
#include "fs/control/nodes.h"
#include "fs/control/snapshot.h"
#include "fs/control/texts.h"
#include "fs/core/fs.h"
#include "fs/core/worker.h"
#include "fs/share/share.h"
#include "fs/tree/inode.h"
#include "fs/volume/volume.h"

/* Node ids: the directory, its files, the socket, by-uuid/, and the links in by-uuid/ by volume.
 * The journal keeps the order of the volumes the same for all daemons of a mount. */
#define SOCKET_INO  (CONTROL_INO + CONTROL_FILES)
#define BY_UUID_INO (SOCKET_INO + 1)
#define LINKS_INO   (BY_UUID_INO + 1)

/* The node id of .gpumem in a directory other than the root is this plus the directory's inode
 * number: no table of them is needed, and a later daemon knows them. */
#define SOCKET_DIRS (1ULL << 63)

#define BY_UUID_NAME "by-uuid"
#define LINK_PREFIX  "../../"

/* Names in .gpumem/ never change; the texts change, and are never cached. */
#define NAME_SECONDS 86400.0

static const struct control_file *node_file(const struct fs *fs, fuse_ino_t ino)
{
	return ino > CONTROL_INO && ino < SOCKET_INO ? control_file_find(fs, ino - CONTROL_INO)
						     : NULL;
}

/* Whether reads of the file wait for text, as in accesslog. */
static bool node_is_stream(const struct fs *fs, fuse_ino_t ino)
{
	const struct control_file *file = node_file(fs, ino);

	return file && !file->write && !file->piece;
}

/* The text is made when the file is opened, so the file's time is always now: a scraper takes an
 * old time for a sign that the daemon hangs. */
static double node_attr_seconds(const struct fs *fs, fuse_ino_t ino)
{
	return node_file(fs, ino) ? 0 : NAME_SECONDS;
}

static const struct volume *node_link(struct fs *fs, fuse_ino_t ino)
{
	return ino >= LINKS_INO && ino - LINKS_INO < fs->n_volumes ? &fs->volumes[ino - LINKS_INO]
								   : NULL;
}

static bool node_is_socket_dir(fuse_ino_t ino)
{
	return ino >= SOCKET_DIRS;
}

static bool node_is_directory(fuse_ino_t ino)
{
	return ino == CONTROL_INO || ino == BY_UUID_INO || node_is_socket_dir(ino);
}

/* False: the kernel knows the node from a daemon of another release. After ESTALE the kernel looks
 * the name up again. */
static bool node_is_known(struct fs *fs, fuse_ino_t ino)
{
	return node_is_directory(ino) || ino == SOCKET_INO || node_file(fs, ino) ||
	       node_link(fs, ino);
}

/* Of a directory of the tree (the entry "..") the number and type are right; the kernel uses only
 * the two. */
static struct stat node_attributes(struct fs *fs, fuse_ino_t ino)
{
	struct timespec time = fs->started;

	if (node_file(fs, ino))
		clock_gettime(CLOCK_REALTIME, &time);
	struct stat st = {
	    .st_ino = ino,
	    .st_nlink = 1,
	    .st_uid = geteuid(),
	    .st_gid = getegid(),
	    .st_atim = time,
	    .st_mtim = time,
	    .st_ctim = time,
	};

	if (node_is_directory(ino) || !control_owns(ino)) {
		st.st_mode = S_IFDIR | 0555;
		st.st_nlink = ino == CONTROL_INO ? 3 : 2;
	} else if (node_link(fs, ino)) {
		st.st_mode = S_IFLNK | 0777;
		st.st_size = (off_t)(strlen(LINK_PREFIX) + strlen(node_link(fs, ino)->name));
	} else if (ino == SOCKET_INO) {
		st.st_mode = S_IFSOCK | 0666; /* the ioctl on a file is the permission */
	} else {
		/* Size 0, as in /proc: the text is made at open. */
		st.st_mode = S_IFREG | node_file(fs, ino)->mode;
	}
	return st;
}

/* The node id below those of the directory's entries. */
static fuse_ino_t directory_base(fuse_ino_t dir)
{
	return node_is_socket_dir(dir) ? SOCKET_INO - 1 : dir;
}

/* The entry of the directory with the lowest node id above *ino: its name, and *ino is its id.
 * NULL: there is none. The search begins at directory_base. */
static const char *directory_next(struct fs *fs, fuse_ino_t dir, fuse_ino_t *ino)
{
	if (node_is_socket_dir(dir))
		return ++*ino == SOCKET_INO && share_is_bound(fs) ? GPUMEM_SOCKET_LEAF : NULL;
	while (dir == CONTROL_INO && ++*ino <= BY_UUID_INO) {
		if (node_file(fs, *ino))
			return node_file(fs, *ino)->name;
		if (*ino == SOCKET_INO && share_is_bound(fs))
			return GPUMEM_SOCKET_LEAF;
		if (*ino == BY_UUID_INO)
			return BY_UUID_NAME;
	}
	while (dir == BY_UUID_INO && ++*ino < LINKS_INO + fs->n_volumes)
		if (node_link(fs, *ino)->device)
			return node_link(fs, *ino)->device->uuid;
	return NULL;
}

bool control_is_name(const char *name)
{
	return strcmp(name, GPUMEM_SOCKET_DIR) == 0;
}

static bool directory_find(struct fs *fs, fuse_ino_t dir, const char *name, fuse_ino_t *ino)
{
	const char *entry;

	if (!control_owns(dir)) {
		*ino = dir == INODE_ROOT ? CONTROL_INO : SOCKET_DIRS + dir;
		return control_is_name(name);
	}
	*ino = directory_base(dir);
	while ((entry = directory_next(fs, dir, ino)))
		if (strcmp(entry, name) == 0)
			return true;
	return false;
}

static void reply_entry(fuse_req_t req, struct fs *fs, fuse_ino_t ino)
{
	struct fuse_entry_param entry = {
	    .ino = ino,
	    .attr = node_attributes(fs, ino),
	    .attr_timeout = node_attr_seconds(fs, ino),
	    .entry_timeout = NAME_SECONDS,
	};

	fuse_reply_entry(req, &entry);
}

static void control_lookup(fuse_req_t req, fuse_ino_t parent, const char *name)
{
	struct fs *fs = fuse_req_userdata(req);
	fuse_ino_t ino;

	if (directory_find(fs, parent, name, &ino))
		reply_entry(req, fs, ino);
	else
		fuse_reply_err(req, ENOENT);
}

/* The daemon's binder makes .gpumem/socket; no other process makes a node. */
static void control_mknod(fuse_req_t req, fuse_ino_t parent, const char *name, mode_t mode,
			  dev_t rdev)
{
	struct fs *fs = fuse_req_userdata(req);

	(void)rdev;
	if (parent != CONTROL_INO || !S_ISSOCK(mode) || strcmp(name, GPUMEM_SOCKET_LEAF) != 0 ||
	    !share_name_bind(fs, fuse_req_ctx(req)->pid)) {
		fuse_reply_err(req, EPERM);
		return;
	}
	reply_entry(req, fs, SOCKET_INO);
}

void control_handles_from(struct fs *fs, uint64_t first)
{
	snapshots_of(fs)->last_handle = first;
}

static void control_getattr(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *info)
{
	struct fs *fs = fuse_req_userdata(req);

	(void)info;
	if (node_is_known(fs, ino)) {
		struct stat st = node_attributes(fs, ino);

		fuse_reply_attr(req, &st, node_attr_seconds(fs, ino));
	} else {
		fuse_reply_err(req, ESTALE);
	}
}

static void control_statx(fuse_req_t req, fuse_ino_t ino, int flags, int mask,
			  struct fuse_file_info *info)
{
	struct fs *fs = fuse_req_userdata(req);

	(void)flags, (void)mask, (void)info;
	if (node_is_known(fs, ino)) {
		struct stat st = node_attributes(fs, ino);
		struct statx stx = inode_statx(&st, fs->started);

		fuse_reply_statx(req, 0, &stx, node_attr_seconds(fs, ino));
	} else {
		fuse_reply_err(req, ESTALE);
	}
}

static void control_readlink(fuse_req_t req, fuse_ino_t ino)
{
	char target[sizeof(LINK_PREFIX) + sizeof(((struct volume *)0)->name)];
	const struct volume *volume = node_link(fuse_req_userdata(req), ino);

	if (volume) {
		snprintf(target, sizeof(target), LINK_PREFIX "%s", volume->name);
		fuse_reply_readlink(req, target);
	} else {
		fuse_reply_err(req, EINVAL);
	}
}

enum listing { LIST_NAMES, LIST_ATTRIBUTES };

/* Cookies are those of "." and "..", 1 and 2, and then node ids counted from 2. A later daemon goes
 * on at the right entry, even if it has more files. */
#define COOKIE_ENTRIES 2

/* The entry behind the cookie: its name, node id and own cookie. NULL: there is none. */
static const char *directory_read(struct fs *fs, fuse_ino_t dir, off_t *cookie, fuse_ino_t *ino)
{
	if (*cookie < COOKIE_ENTRIES) {
		bool is_parent = ++*cookie == COOKIE_ENTRIES;

		*ino = !is_parent		 ? dir
		       : node_is_socket_dir(dir) ? dir - SOCKET_DIRS
		       : dir == CONTROL_INO	 ? INODE_ROOT
						 : CONTROL_INO;
		return is_parent ? ".." : ".";
	}
	*ino = directory_base(dir) + (fuse_ino_t)(*cookie - COOKIE_ENTRIES);
	const char *name = directory_next(fs, dir, ino);

	*cookie = (off_t)(*ino - directory_base(dir)) + COOKIE_ENTRIES;
	return name;
}

static void directory_list(fuse_req_t req, fuse_ino_t ino, size_t bytes, off_t offset,
			   enum listing listing)
{
	struct fs *fs = fuse_req_userdata(req);
	char buffer[4096];
	size_t used = 0;
	fuse_ino_t entry_ino;
	const char *name;

	if (!node_is_directory(ino)) {
		fuse_reply_err(req, ENOTDIR);
		return;
	}
	if (bytes > sizeof(buffer))
		bytes = sizeof(buffer);
	if (offset < 0 || offset > UINT16_MAX)
		offset = UINT16_MAX;
	while ((name = directory_read(fs, ino, &offset, &entry_ino))) {
		/* Node id 0 in readdirplus: no lookup happened that the kernel would count. */
		struct fuse_entry_param entry = {.attr = node_attributes(fs, entry_ino)};
		size_t size = listing == LIST_ATTRIBUTES
				  ? fuse_add_direntry_plus(req, buffer + used, bytes - used, name,
							   &entry, offset)
				  : fuse_add_direntry(req, buffer + used, bytes - used, name,
						      &entry.attr, offset);
		if (size > bytes - used)
			break;
		used += size;
	}
	fuse_reply_buf(req, buffer, used);
}

static void control_readdir(fuse_req_t req, fuse_ino_t ino, size_t bytes, off_t offset,
			    struct fuse_file_info *info)
{
	(void)info;
	directory_list(req, ino, bytes, offset, LIST_NAMES);
}

static void control_readdirplus(fuse_req_t req, fuse_ino_t ino, size_t bytes, off_t offset,
				struct fuse_file_info *info)
{
	(void)info;
	directory_list(req, ino, bytes, offset, LIST_ATTRIBUTES);
}

/* An open for writing alone gets no text, as a text is charged to its user. */
static int text_open(fuse_req_t req, const struct control_file *file, struct fuse_file_info *info)
{
	info->direct_io = 1;
	/* Of a list, only the piece that is being read exists. */
	info->nonseekable = file->piece != NULL;
	info->fh = 0;
	if ((info->flags & O_ACCMODE) == O_WRONLY)
		return 0;
	return snapshot_open(fuse_req_userdata(req), file, fuse_req_ctx(req)->uid, &info->fh);
}

static void control_open(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *info)
{
	struct fs *fs = fuse_req_userdata(req);
	const struct control_file *file = node_file(fs, ino);

	if (!node_is_known(fs, ino)) {
		fuse_reply_err(req, ESTALE);
		return;
	}
	if (!file || ((info->flags & O_ACCMODE) != O_RDONLY && !file->set)) {
		fuse_reply_err(req, file ? EACCES : EINVAL);
		return;
	}
	if (node_is_stream(fs, ino)) {
		access_file_open(req, info);
		return;
	}
	int error = text_open(req, file, info);

	if (error)
		fuse_reply_err(req, -error);
	else if (fuse_reply_open(req, info))
		snapshot_close(fs, info->fh);
}

static ssize_t text_read_handle(fuse_req_t req, fuse_ino_t ino, char *to, size_t bytes,
				uint64_t offset, uint64_t handle)
{
	struct fs *fs = fuse_req_userdata(req);
	ssize_t n = snapshot_read(fs, handle, to, bytes, offset);

	if (n != -ENOENT)
		return n;
	/* An earlier daemon made the text. The rest of a new text does not continue the old text,
	 * and an end of file here would cut the text short without a sign. */
	if (offset > 0)
		return -ESTALE;
	int error = snapshot_reopen(fs, node_file(fs, ino), fuse_req_ctx(req)->uid, handle);

	return error && error != -EEXIST ? error : snapshot_read(fs, handle, to, bytes, offset);
}

static void text_read(fuse_req_t req, fuse_ino_t ino, size_t bytes, off_t offset,
		      const struct fuse_file_info *info)
{
	struct worker *worker = worker_self(fuse_req_userdata(req));

	if (!worker) {
		fuse_reply_err(req, ENOMEM);
		return;
	}
	if (bytes > worker->reply_bytes)
		bytes = worker->reply_bytes;
	ssize_t n = text_read_handle(req, ino, worker->reply, bytes, (uint64_t)offset, info->fh);

	if (n < 0)
		fuse_reply_err(req, (int)-n);
	else
		fuse_reply_buf(req, worker->reply, (size_t)n);
}

static void control_read(fuse_req_t req, fuse_ino_t ino, size_t bytes, off_t offset,
			 struct fuse_file_info *info)
{
	struct fs *fs = fuse_req_userdata(req);

	if (node_is_stream(fs, ino))
		access_file_read(req, bytes, info);
	else if (node_file(fs, ino))
		text_read(req, ino, bytes, offset, info);
	else
		fuse_reply_err(req, EINVAL);
}

static void control_release(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *info)
{
	struct fs *fs = fuse_req_userdata(req);

	if (node_is_stream(fs, ino))
		access_file_release(req, info);
	else
		snapshot_close(fs, info->fh);
	fuse_reply_err(req, 0);
}

static void control_write(fuse_req_t req, fuse_ino_t ino, const char *from, size_t bytes,
			  off_t offset, struct fuse_file_info *info)
{
	struct fs *fs = fuse_req_userdata(req);
	const struct control_file *file = node_file(fs, ino);

	(void)offset, (void)info;
	if (!file || !file->set) {
		fuse_reply_err(req, EPERM);
		return;
	}
	log_caller_set(fuse_req_ctx(req)->uid);
	int error = file->set(fs, from, bytes);

	if (error)
		fuse_reply_err(req, -error);
	else
		fuse_reply_write(req, bytes);
}

/* Only the size of a file that can be written to may be set, for O_TRUNC; the size stays 0. */
static void control_setattr(fuse_req_t req, fuse_ino_t ino, struct stat *st, int which,
			    struct fuse_file_info *info)
{
	struct fs *fs = fuse_req_userdata(req);
	const struct control_file *file = node_file(fs, ino);
	const int kept = FUSE_SET_ATTR_MODE | FUSE_SET_ATTR_UID | FUSE_SET_ATTR_GID;

	(void)st;
	if (!file || !file->set || !(which & FUSE_SET_ATTR_SIZE) || which & kept)
		fuse_reply_err(req, EPERM);
	else
		control_getattr(req, ino, info);
}

/* A file of size 0 has neither data nor holes. */
static void control_lseek(fuse_req_t req, fuse_ino_t ino, off_t offset, int whence,
			  struct fuse_file_info *info)
{
	(void)ino, (void)offset, (void)whence, (void)info;
	fuse_reply_err(req, ENXIO);
}

/* No data waits to be written to a disk. */
static void control_fsync(fuse_req_t req, fuse_ino_t ino, int datasync, struct fuse_file_info *info)
{
	(void)ino, (void)datasync, (void)info;
	fuse_reply_err(req, 0);
}

static void control_getxattr(fuse_req_t req, fuse_ino_t ino, const char *name, size_t room)
{
	(void)ino, (void)name, (void)room;
	fuse_reply_err(req, ENODATA);
}

static void control_listxattr(fuse_req_t req, fuse_ino_t ino, size_t room)
{
	(void)ino;
	/* With room for names the kernel wants a list, though an empty list. */
	if (room)
		fuse_reply_buf(req, NULL, 0);
	else
		fuse_reply_xattr(req, 0);
}

/* EXDEV: the kernel then copies by reading and writing. */
static void control_copy(fuse_req_t req, fuse_ino_t from_ino, off_t from_offset,
			 struct fuse_file_info *from_info, fuse_ino_t to_ino, off_t to_offset,
			 struct fuse_file_info *to_info, size_t bytes, int flags)
{
	(void)from_ino, (void)from_offset, (void)from_info, (void)to_ino, (void)to_offset;
	(void)to_info, (void)bytes, (void)flags;
	fuse_reply_err(req, EXDEV);
}

static void control_ioctl(fuse_req_t req, fuse_ino_t ino, unsigned command, void *argument,
			  struct fuse_file_info *info, unsigned flags, const void *in,
			  size_t in_bytes, size_t out_bytes)
{
	(void)ino, (void)command, (void)argument, (void)info, (void)flags, (void)in;
	(void)in_bytes, (void)out_bytes;
	fuse_reply_err(req, ENOTTY);
}

const struct fuse_lowlevel_ops control_operations = {
    .lookup = control_lookup,
    .getattr = control_getattr,
    .statx = control_statx,
    .setattr = control_setattr,
    .readlink = control_readlink,
    .mknod = control_mknod,
    .readdir = control_readdir,
    .readdirplus = control_readdirplus,
    .open = control_open,
    .read = control_read,
    .write = control_write,
    .lseek = control_lseek,
    .copy_file_range = control_copy,
    .ioctl = control_ioctl,
    .release = control_release,
    .fsync = control_fsync,
    .fsyncdir = control_fsync,
    .getxattr = control_getxattr,
    .listxattr = control_listxattr,
};
