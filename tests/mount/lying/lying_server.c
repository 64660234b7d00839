/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* lying_server MOUNT WHERE: see lying.h. Prints "ready" on standard output after mounting. */

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <fuse_lowlevel.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/statvfs.h>
#include <sys/xattr.h>
#include <unistd.h>

#include "tests/mount/lying/lying.h"

#define IO_MAX (1U << 20)

/* Nodes are never freed, so inode numbers stay valid. */
struct node {
	struct node *next;
	char path[]; /* path in the shown mount */
};

struct handle {
	int fd;
	char *text; /* content of a file of .gpumem/, read at open; NULL: read the file itself */
	size_t bytes;
	bool endless;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct node *nodes;    /* under lock */
static struct lie lie_of_now; /* under lock */
static const char *mount_path;
/* The server has bound its own socket; the socket does not exist before. */
static atomic_bool bound;

static struct lie current(void)
{
	pthread_mutex_lock(&lock);
	struct lie lie = lie_of_now;
	pthread_mutex_unlock(&lock);
	return lie;
}

static const char *path_of(fuse_ino_t ino)
{
	return ino == FUSE_ROOT_ID ? mount_path : ((struct node *)(uintptr_t)ino)->path;
}

static fuse_ino_t number_of(const char *path)
{
	struct node *at;

	pthread_mutex_lock(&lock);
	for (at = nodes; at && strcmp(at->path, path) != 0; at = at->next)
		;
	if (!at) {
		at = malloc(sizeof(*at) + strlen(path) + 1);
		strcpy(at->path, path);
		at->next = nodes;
		nodes = at;
	}
	pthread_mutex_unlock(&lock);
	return (fuse_ino_t)(uintptr_t)at;
}

static bool is_told(const char *path)
{
	return strstr(path, "/.gpumem/");
}

/* --- attributes */

/* The attributes of the socket are the server's own; all attributes on the way to other files are
 * true. */
static int attr(const char *path, struct stat *st)
{
	struct lie lie = current();

	if (lstat(path, st) < 0)
		return errno;
	st->st_ino = number_of(path);
	if (lie.kind == LIE_ATTR && strstr(path, "/file"))
		lie_attr(&lie, st);
	return 0;
}

static void reply_entry(fuse_req_t req, const char *path)
{
	struct fuse_entry_param entry = {.ino = number_of(path)};
	int error = attr(path, &entry.attr);

	if (error)
		fuse_reply_err(req, error);
	else
		fuse_reply_entry(req, &entry);
}

static void op_lookup(fuse_req_t req, fuse_ino_t parent, const char *name)
{
	char path[4096];

	snprintf(path, sizeof(path), "%s/%s", path_of(parent), name);
	if (!bound && strcmp(name, "socket") == 0)
		fuse_reply_err(req, ENOENT);
	else
		reply_entry(req, path);
}

static void op_getattr(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *info)
{
	struct stat st;
	int error = attr(path_of(ino), &st);

	(void)info;
	if (error)
		fuse_reply_err(req, error);
	else
		fuse_reply_attr(req, &st, 0);
}

static void op_setattr(fuse_req_t req, fuse_ino_t ino, struct stat *to, int which,
		       struct fuse_file_info *info)
{
	if (which & FUSE_SET_ATTR_SIZE && truncate(path_of(ino), to->st_size) < 0)
		fuse_reply_err(req, errno);
	else
		op_getattr(req, ino, info);
}

static void op_mknod(fuse_req_t req, fuse_ino_t parent, const char *name, mode_t mode, dev_t device)
{
	(void)mode, (void)device;
	bound = true;
	op_lookup(req, parent, name);
}

static void op_unlink(fuse_req_t req, fuse_ino_t parent, const char *name)
{
	char path[4096];

	snprintf(path, sizeof(path), "%s/%s", path_of(parent), name);
	fuse_reply_err(req, unlink(path) < 0 ? errno : 0);
}

static void op_rename(fuse_req_t req, fuse_ino_t parent, const char *name, fuse_ino_t to_parent,
		      const char *to_name, unsigned flags)
{
	char from[4096], to[4096];

	snprintf(from, sizeof(from), "%s/%s", path_of(parent), name);
	snprintf(to, sizeof(to), "%s/%s", path_of(to_parent), to_name);
	fuse_reply_err(req, renameat2(AT_FDCWD, from, AT_FDCWD, to, flags) < 0 ? errno : 0);
}

/* --- extended attributes */

static void op_getxattr(fuse_req_t req, fuse_ino_t ino, const char *name, size_t room)
{
	struct lie lie = current();
	char *value = calloc(1, LYING_TEXT_MAX);
	ssize_t n = lgetxattr(path_of(ino), name, value, 65536);
	size_t bytes = n < 0 ? 0 : (size_t)n;

	if (lie.kind == LIE_XATTR || lie.kind == LIE_EXTENTS)
		bytes = lie_value(&lie, name, value, bytes);
	else if (n < 0)
		bytes = SIZE_MAX;
	if (bytes == SIZE_MAX)
		fuse_reply_err(req, errno);
	else if (!room)
		fuse_reply_xattr(req, bytes);
	else if (bytes > room)
		fuse_reply_err(req, ERANGE);
	else
		fuse_reply_buf(req, value, bytes);
	free(value);
}

static void op_setxattr(fuse_req_t req, fuse_ino_t ino, const char *name, const char *value,
			size_t size, int flags)
{
	char text[64] = "", *end;

	if (strcmp(name, "user.lie") != 0) {
		int rc = lsetxattr(path_of(ino), name, value, size, flags);

		fuse_reply_err(req, rc < 0 ? errno : 0);
		return;
	}
	memcpy(text, value, size < sizeof(text) - 1 ? size : sizeof(text) - 1);
	pthread_mutex_lock(&lock);
	lie_of_now.kind = (enum lie_kind)strtoul(text, &end, 10);
	lie_of_now.seed = strtoull(end, NULL, 10);
	pthread_mutex_unlock(&lock);
	fuse_reply_err(req, 0);
}

/* --- directories */

static void op_readdir(fuse_req_t req, fuse_ino_t ino, size_t size, off_t offset,
		       struct fuse_file_info *info)
{
	struct lie lie = current();
	char *buffer = malloc(size);
	DIR *dir = opendir(path_of(ino));
	size_t used = 0, n;
	struct dirent *entry;
	off_t at = 0;

	(void)info;
	for (; dir && at < 10000; at++) {
		const char *name = lie.kind == LIE_NAMES ? lie_name(&lie, (unsigned)at) : NULL;

		if (!name)
			name = (entry = readdir(dir)) ? entry->d_name : NULL;
		if (!name)
			break;
		if (at < offset)
			continue;
		struct stat st = {.st_ino = 7};

		n = fuse_add_direntry(req, buffer + used, size - used, name, &st, at + 1);
		if (n > size - used)
			break;
		used += n;
	}
	if (dir)
		closedir(dir);
	fuse_reply_buf(req, buffer, used);
	free(buffer);
}

/* --- files */

static void text_read(struct handle *handle, const char *path)
{
	struct lie lie = current();
	const char *name = strrchr(path, '/') + 1;
	ssize_t n = 0;

	handle->text = calloc(1, LYING_TEXT_MAX + 1);
	/* Not the access log: a read of it would wait for requests. */
	while (strcmp(name, "accesslog") != 0 && handle->bytes < LYING_TEXT_MAX / 2 &&
	       (n = read(handle->fd, handle->text + handle->bytes, 65536)) > 0)
		handle->bytes += (size_t)n;
	handle->bytes = lie_text(&lie, name, handle->text, handle->bytes);
	handle->endless = lie.kind == LIE_TEXT && !lie_pick(&lie, 9, 8);
}

static int open_at(const char *path, int flags, struct fuse_file_info *info)
{
	struct handle *handle = calloc(1, sizeof(*handle));

	handle->fd = open(path, (flags & ~O_DIRECT) | O_CLOEXEC, 0644);
	if (handle->fd < 0) {
		free(handle);
		return errno;
	}
	if (is_told(path) && (flags & O_ACCMODE) == O_RDONLY)
		text_read(handle, path);
	info->fh = (uintptr_t)handle;
	info->direct_io = 1;
	return 0;
}

static void op_open(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *info)
{
	int error = open_at(path_of(ino), info->flags, info);

	if (error)
		fuse_reply_err(req, error);
	else
		fuse_reply_open(req, info);
}

static void op_create(fuse_req_t req, fuse_ino_t parent, const char *name, mode_t mode,
		      struct fuse_file_info *info)
{
	struct fuse_entry_param entry = {0};
	char path[4096];

	(void)mode;
	snprintf(path, sizeof(path), "%s/%s", path_of(parent), name);
	int error = open_at(path, info->flags | O_CREAT, info);

	entry.ino = number_of(path);
	if (!error)
		error = attr(path, &entry.attr);
	if (error)
		fuse_reply_err(req, error);
	else
		fuse_reply_create(req, &entry, info);
}

static void op_release(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *info)
{
	struct handle *handle = (void *)(uintptr_t)info->fh;

	(void)ino;
	close(handle->fd);
	free(handle->text);
	free(handle);
	fuse_reply_err(req, 0);
}

/* The answered number of bytes for a request of n bytes. */
static ssize_t lie_bytes(const struct lie *lie, ssize_t n)
{
	if (lie->kind != LIE_DATA || n <= 0)
		return n;
	switch (lie_pick(lie, 0, 4)) {
	case 0:
		return 0;
	case 1:
		return (n + 1) / 2;
	case 2:
		errno = EIO;
		return -1;
	default:
		return n - (ssize_t)lie_pick(lie, (unsigned)n, (uint64_t)n / 2 + 1);
	}
}

static void op_read(fuse_req_t req, fuse_ino_t ino, size_t size, off_t offset,
		    struct fuse_file_info *info)
{
	const struct handle *handle = (void *)(uintptr_t)info->fh;
	struct lie lie = current();
	char *buffer = NULL;
	ssize_t n = 0;

	(void)ino;
	size = size < IO_MAX ? size : IO_MAX;
	buffer = malloc(size + 1);
	if (handle->text && handle->endless) {
		memset(buffer, 'x', size);
		n = (ssize_t)size;
	} else if (handle->text) {
		/* Reply from memory of this request: the handle may be freed as soon as the kernel
		 * has the answer. */
		size_t left = (size_t)offset < handle->bytes ? handle->bytes - (size_t)offset : 0;

		n = (ssize_t)(left < size ? left : size);
		if (n)
			memcpy(buffer, handle->text + offset, (size_t)n);
	} else {
		n = lie_bytes(&lie, pread(handle->fd, buffer, size, offset));
	}
	if (n < 0)
		fuse_reply_err(req, errno);
	else
		fuse_reply_buf(req, buffer, (size_t)n);
	free(buffer);
}

static void op_write(fuse_req_t req, fuse_ino_t ino, const char *data, size_t size, off_t offset,
		     struct fuse_file_info *info)
{
	const struct handle *handle = (void *)(uintptr_t)info->fh;
	struct lie lie = current();
	ssize_t n = lie_bytes(&lie, pwrite(handle->fd, data, size, offset));

	(void)ino;
	if (n < 0)
		fuse_reply_err(req, errno);
	else
		fuse_reply_write(req, (size_t)n);
}

static void op_fallocate(fuse_req_t req, fuse_ino_t ino, int mode, off_t offset, off_t length,
			 struct fuse_file_info *info)
{
	const struct handle *handle = (void *)(uintptr_t)info->fh;

	(void)ino;
	fuse_reply_err(req, fallocate(handle->fd, mode, offset, length) < 0 ? errno : 0);
}

static void op_ioctl(fuse_req_t req, fuse_ino_t ino, unsigned command, void *argument,
		     struct fuse_file_info *info, unsigned flags, const void *in, size_t in_bytes,
		     size_t out_bytes)
{
	const struct handle *handle = (void *)(uintptr_t)info->fh;
	struct lie lie = current();
	char data[16384] = "";

	(void)ino, (void)argument;
	if (flags & FUSE_IOCTL_DIR || in_bytes > sizeof(data) || out_bytes > sizeof(data)) {
		fuse_reply_err(req, ENOTTY);
		return;
	}
	if (in && in_bytes)
		memcpy(data, in, in_bytes);
	int rc = ioctl(handle->fd, command, data);
	rc = rc < 0 ? -errno : rc;
	if (lie.kind == LIE_IOCTL)
		lie_ioctl(&lie, data, out_bytes, &rc);
	if (rc < 0)
		fuse_reply_err(req, -rc);
	else
		fuse_reply_ioctl(req, rc, data, out_bytes);
}

static void op_statfs(fuse_req_t req, fuse_ino_t ino)
{
	struct lie lie = current();
	struct statvfs st;

	if (statvfs(path_of(ino), &st) < 0) {
		fuse_reply_err(req, errno);
		return;
	}
	if (lie.kind == LIE_ATTR) {
		st.f_blocks = lie_number(&lie, 5);
		st.f_bavail = lie_number(&lie, 6);
	}
	fuse_reply_statfs(req, &st);
}

static const struct fuse_lowlevel_ops ops = {
    .lookup = op_lookup,
    .getattr = op_getattr,
    .setattr = op_setattr,
    .mknod = op_mknod,
    .unlink = op_unlink,
    .rename = op_rename,
    .getxattr = op_getxattr,
    .setxattr = op_setxattr,
    .readdir = op_readdir,
    .open = op_open,
    .create = op_create,
    .release = op_release,
    .read = op_read,
    .write = op_write,
    .fallocate = op_fallocate,
    .ioctl = op_ioctl,
    .statfs = op_statfs,
};

static void *bind_socket(void *where)
{
	char here[4096], real[4096];

	snprintf(here, sizeof(here), "%s/.gpumem/socket", (const char *)where);
	snprintf(real, sizeof(real), "%s/.gpumem/socket", mount_path);
	puts(lying_socket_start(here, real, current) == 0 ? "ready" : strerror(errno));
	fflush(stdout);
	return NULL;
}

int main(int argc, char **argv)
{
	char *words[] = {argv[0], "-o", "fsname=lying,subtype=gpumemfs,allow_other"};
	struct fuse_args args = FUSE_ARGS_INIT(3, words);
	pthread_t thread;

	if (argc != 3)
		return 2;
	mount_path = argv[1];
	struct fuse_session *session = fuse_session_new(&args, &ops, sizeof(ops), NULL);
	struct fuse_loop_config *config = fuse_loop_cfg_create();
	if (!session || fuse_session_mount(session, argv[2]) != 0)
		return 1;
	fuse_set_signal_handlers(session);
	pthread_create(&thread, NULL, bind_socket, argv[2]);
	int rc = fuse_session_loop_mt(session, config);
	fuse_session_unmount(session);
	fuse_session_destroy(session);
	fuse_loop_cfg_destroy(config);
	fuse_opt_free_args(&args);
	return rc;
}
