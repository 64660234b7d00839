/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* Requests of the kernel, a function each: 0, or the reply's error as -errno. */
#ifndef TESTS_UNIT_FAILURES_REQUESTS_H
#define TESTS_UNIT_FAILURES_REQUESTS_H

#include <errno.h>
#include <linux/falloc.h>
#include <sys/stat.h>
#include <sys/xattr.h>

#include "tests/unit/kernel_fixture.h"
#include "tests/unit/unit.h"

/* A file or directory that a request made or found, and its handle. */
struct session;
struct node {
	uint64_t ino, handle;
};

static char content[BODY_BYTES];

/* These functions tell the kernel, which is not there. */
void __wrap_session_changed(struct session *mount, uint64_t ino);
void __wrap_session_changed(struct session *mount, uint64_t ino)
{
	(void)mount, (void)ino;
}

void __wrap_session_page_read(struct session *mount, struct inode *inode, pid_t reader,
			      uint64_t offset, size_t bytes);
void __wrap_session_page_read(struct session *mount, struct inode *inode, pid_t reader,
			      uint64_t offset, size_t bytes)
{
	(void)mount, (void)inode, (void)reader, (void)offset, (void)bytes;
}

void __wrap_session_drop_pages(struct session *mount, struct inode *inode);
void __wrap_session_drop_pages(struct session *mount, struct inode *inode)
{
	(void)mount, (void)inode;
}

/* Each request has a number, as the journal needs. */
static inline int ask(uint32_t opcode, uint64_t node, const void *body, size_t bytes)
{
	static uint64_t number;
	struct worker *worker = worker_self(&fixture);

	if (!worker)
		return -ENOMEM; /* the session's thread would end */
	worker->request_number = ++number;
	return -request(opcode, node, body, bytes);
}

/* A struct, and names behind it. */
static inline int ask_named(uint32_t opcode, uint64_t node, const void *in, size_t bytes,
			    const char *name, const char *other)
{
	char body[1024] = {0};
	size_t length = strlen(name) + 1;

	if (bytes)
		memcpy(body, in, bytes);
	memcpy(body + bytes, name, length);
	if (other)
		memcpy(body + bytes + length, other, strlen(other) + 1);
	return ask(opcode, node, body, bytes + length + (other ? strlen(other) + 1 : 0));
}

static inline int entry_note(int error, struct node *made)
{
	if (!error && made)
		made->ino = ((const struct fuse_entry_out *)answer_body())->nodeid;
	return error;
}

static inline int do_lookup(uint64_t dir, const char *name, struct node *found)
{
	return entry_note(ask_named(FUSE_LOOKUP, dir, NULL, 0, name, NULL), found);
}

static inline int do_mkdir(uint64_t dir, const char *name, struct node *made)
{
	struct fuse_mkdir_in in = {.mode = 0755};

	return entry_note(ask_named(FUSE_MKDIR, dir, &in, sizeof(in), name, NULL), made);
}

static inline int do_mknod(uint64_t dir, const char *name, mode_t mode, struct node *made)
{
	struct fuse_mknod_in in = {.mode = mode};

	return entry_note(ask_named(FUSE_MKNOD, dir, &in, sizeof(in), name, NULL), made);
}

static inline int do_symlink(uint64_t dir, const char *name, const char *target)
{
	return ask_named(FUSE_SYMLINK, dir, NULL, 0, name, target);
}

static inline int do_create(uint64_t dir, const char *name, struct node *made)
{
	struct fuse_create_in in = {.flags = O_RDWR | O_CREAT, .mode = S_IFREG | 0644};
	int error = entry_note(ask_named(FUSE_CREATE, dir, &in, sizeof(in), name, NULL), made);

	if (!error)
		made->handle = ((const struct fuse_open_out *)((const char *)answer_body() +
							       sizeof(struct fuse_entry_out)))
				   ->fh;
	return error;
}

static inline int do_tmpfile(uint64_t dir, struct node *made)
{
	struct fuse_create_in in = {.flags = O_RDWR, .mode = S_IFREG | 0600};
	int error = entry_note(ask_named(FUSE_TMPFILE, dir, &in, sizeof(in), "", NULL), made);

	if (!error)
		made->handle = ((const struct fuse_open_out *)((const char *)answer_body() +
							       sizeof(struct fuse_entry_out)))
				   ->fh;
	return error;
}

static inline int do_link(const struct node *file, uint64_t dir, const char *name)
{
	struct fuse_link_in in = {.oldnodeid = file->ino};

	return ask_named(FUSE_LINK, dir, &in, sizeof(in), name, NULL);
}

static inline int do_rename(uint64_t from, const char *name, uint64_t to, const char *new_name,
			    unsigned flags)
{
	struct fuse_rename2_in in = {.newdir = to, .flags = flags};

	return ask_named(FUSE_RENAME2, from, &in, sizeof(in), name, new_name);
}

static inline int do_unlink(uint64_t dir, const char *name)
{
	return ask_named(FUSE_UNLINK, dir, NULL, 0, name, NULL);
}

static inline int do_rmdir(uint64_t dir, const char *name)
{
	return ask_named(FUSE_RMDIR, dir, NULL, 0, name, NULL);
}

static inline int do_open(struct node *file, uint32_t flags)
{
	struct fuse_open_in in = {.flags = flags};
	int error = ask(FUSE_OPEN, file->ino, &in, sizeof(in));

	if (!error)
		file->handle = ((const struct fuse_open_out *)answer_body())->fh;
	return error;
}

static inline int do_release(const struct node *file)
{
	struct fuse_release_in in = {.fh = file->handle, .flags = O_RDWR};

	return ask(FUSE_RELEASE, file->ino, &in, sizeof(in));
}

static inline void do_forget(const struct node *file, uint64_t lookups)
{
	inode_forget(&fixture, inode_find(&fixture, file->ino), lookups);
}

/* A short write is -ENOSPC: so ends the write of its rest. */
static inline int do_write(const struct node *file, uint64_t offset, uint32_t bytes)
{
	static struct {
		struct fuse_write_in in;
		char data[BODY_BYTES - sizeof(struct fuse_write_in)];
	} body;

	body.in = (struct fuse_write_in){.fh = file->handle, .offset = offset, .size = bytes};
	memset(body.data, 'a' + (int)(offset / 4096 % 26), bytes);
	int error = ask(FUSE_WRITE, file->ino, &body, sizeof(body.in) + bytes);

	if (!error && ((const struct fuse_write_out *)answer_body())->size < bytes)
		return -ENOSPC;
	return error;
}

static inline int do_read(const struct node *file, uint64_t offset, uint32_t bytes)
{
	struct fuse_read_in in = {.fh = file->handle, .offset = offset, .size = bytes};
	int error = ask(FUSE_READ, file->ino, &in, sizeof(in));

	if (error)
		return error;
	memcpy(content, answer_body(), answer.bytes);
	return (int)answer.bytes;
}

static inline int do_resize(const struct node *file, uint64_t size)
{
	struct fuse_setattr_in in = {.valid = FATTR_SIZE, .size = size};

	return ask(FUSE_SETATTR, file->ino, &in, sizeof(in));
}

static inline int do_chown(const struct node *file, uid_t uid)
{
	struct fuse_setattr_in in = {.valid = FATTR_UID | FATTR_MODE, .uid = uid, .mode = 0640};

	return ask(FUSE_SETATTR, file->ino, &in, sizeof(in));
}

static inline int do_allocate(const struct node *file, uint32_t mode, uint64_t offset,
			      uint64_t bytes)
{
	struct fuse_fallocate_in in = {
	    .fh = file->handle, .offset = offset, .length = bytes, .mode = mode};

	return ask(FUSE_FALLOCATE, file->ino, &in, sizeof(in));
}

static inline int do_copy(const struct node *from, uint64_t offset, const struct node *to,
			  uint64_t to_offset, uint64_t bytes)
{
	struct fuse_copy_file_range_in in = {.fh_in = from->handle,
					     .off_in = offset,
					     .nodeid_out = to->ino,
					     .fh_out = to->handle,
					     .off_out = to_offset,
					     .len = bytes};
	int error = ask(FUSE_COPY_FILE_RANGE, from->ino, &in, sizeof(in));

	if (!error && ((const struct fuse_write_out *)answer_body())->size < bytes)
		return -ENOSPC;
	return error;
}

static inline int do_set(const struct node *file, const char *name, const char *value)
{
	struct fuse_setxattr_in in = {.size = (uint32_t)strlen(value)};

	/* Without FUSE_SETXATTR_EXT the struct ends after flags. */
	return ask_named(FUSE_SETXATTR, file->ino, &in, FUSE_COMPAT_SETXATTR_IN_SIZE, name, value);
}

static inline int do_get(const struct node *file, const char *name)
{
	struct fuse_getxattr_in in = {.size = 4096};

	return ask_named(FUSE_GETXATTR, file->ino, &in, sizeof(in), name, NULL);
}

static inline int do_list(const struct node *file)
{
	struct fuse_getxattr_in in = {.size = 4096};

	return ask(FUSE_LISTXATTR, file->ino, &in, sizeof(in));
}

static inline int do_remove(const struct node *file, const char *name)
{
	return ask_named(FUSE_REMOVEXATTR, file->ino, NULL, 0, name, NULL);
}

static inline int do_readdir(uint64_t dir)
{
	struct fuse_read_in in = {.size = 8192};

	return ask(FUSE_READDIRPLUS, dir, &in, sizeof(in));
}

static inline int do_statfs(uint64_t dir)
{
	return ask(FUSE_STATFS, dir, NULL, 0);
}

#endif
