/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
#include "tests/bench/null_operations.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/cleanup.h"
#include "fs/ops/ops.h"
#include "tests/bench/null_store.h"

static struct null_file *file_of(fuse_ino_t ino)
{
	return (struct null_file *)(uintptr_t)ino;
}

static fuse_ino_t ino_of(const struct null_file *file)
{
	return (fuse_ino_t)(uintptr_t)file;
}

static struct stat root_stat(void)
{
	return (struct stat){.st_ino = FUSE_ROOT_ID,
			     .st_mode = S_IFDIR | 0755,
			     .st_nlink = 2,
			     .st_uid = getuid(),
			     .st_gid = getgid()};
}

static struct stat stat_of(struct null_file *file)
{
	uint64_t size = atomic_load_explicit(&file->size, memory_order_relaxed);

	return (struct stat){.st_ino = ino_of(file),
			     .st_mode = file->mode,
			     .st_nlink = 1,
			     .st_uid = getuid(),
			     .st_gid = getgid(),
			     .st_size = (off_t)size,
			     .st_blocks = (blkcnt_t)((size + 511) / 512)};
}

static struct fuse_entry_param entry_of(struct null_file *file)
{
	return (struct fuse_entry_param){.ino = ino_of(file),
					 .attr = stat_of(file),
					 .attr_timeout = CACHE_SECONDS,
					 .entry_timeout = CACHE_SECONDS};
}

static void null_lookup(fuse_req_t req, fuse_ino_t parent, const char *name)
{
	struct null_file *file = null_store_find(parent, name);

	if (!file) {
		fuse_reply_err(req, ENOENT);
		return;
	}
	struct fuse_entry_param entry = entry_of(file);

	fuse_reply_entry(req, &entry);
}

static void null_forget(fuse_req_t req, fuse_ino_t ino, uint64_t lookups)
{
	if (ino != FUSE_ROOT_ID)
		null_store_forget(file_of(ino), lookups);
	fuse_reply_none(req);
}

static void null_forget_multi(fuse_req_t req, size_t count, struct fuse_forget_data *forgets)
{
	for (size_t i = 0; i < count; i++)
		if (forgets[i].ino != FUSE_ROOT_ID)
			null_store_forget(file_of(forgets[i].ino), forgets[i].nlookup);
	fuse_reply_none(req);
}

static void null_getattr(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *info)
{
	struct stat st = ino == FUSE_ROOT_ID ? root_stat() : stat_of(file_of(ino));

	(void)info;
	fuse_reply_attr(req, &st, CACHE_SECONDS);
}

static void null_setattr(fuse_req_t req, fuse_ino_t ino, struct stat *wanted, int which,
			 struct fuse_file_info *info)
{
	if (ino != FUSE_ROOT_ID && which & FUSE_SET_ATTR_SIZE)
		null_file_resize(file_of(ino), (uint64_t)wanted->st_size);
	null_getattr(req, ino, info);
}

static void opened(struct fuse_file_info *info)
{
	info->direct_io = 1;
	info->parallel_direct_writes = 1;
}

static void null_create(fuse_req_t req, fuse_ino_t parent, const char *name, mode_t mode,
			struct fuse_file_info *info)
{
	struct null_file *file;
	int error = null_store_create(parent, name, mode, &file);

	if (error) {
		fuse_reply_err(req, -error);
		return;
	}
	struct fuse_entry_param entry = entry_of(file);

	opened(info);
	fuse_reply_create(req, &entry, info);
}

static void null_mkdir(fuse_req_t req, fuse_ino_t parent, const char *name, mode_t mode)
{
	struct null_file *dir;
	int error = null_store_create(parent, name, S_IFDIR | mode, &dir);

	if (error) {
		fuse_reply_err(req, -error);
		return;
	}
	struct fuse_entry_param entry = entry_of(dir);

	fuse_reply_entry(req, &entry);
}

/* Serves unlink and rmdir; the bench removes only empty directories. */
static void null_unlink(fuse_req_t req, fuse_ino_t parent, const char *name)
{
	fuse_reply_err(req, -null_store_unlink(parent, name));
}

static void null_open(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *info)
{
	(void)ino;
	opened(info);
	fuse_reply_open(req, info);
}

static void null_release(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *info)
{
	(void)ino, (void)info;
	fuse_reply_err(req, 0);
}

static void null_fsync(fuse_req_t req, fuse_ino_t ino, int datasync, struct fuse_file_info *info)
{
	(void)ino, (void)datasync, (void)info;
	fuse_reply_err(req, 0);
}

/* Straight from the store: a single copy, made by the kernel. */
static void null_read(fuse_req_t req, fuse_ino_t ino, size_t bytes, off_t offset,
		      struct fuse_file_info *info)
{
	struct null_file *file = file_of(ino);
	uint64_t size = atomic_load_explicit(&file->size, memory_order_acquire);
	const char *memory = null_file_memory(file);

	(void)info;
	if ((uint64_t)offset >= size)
		bytes = 0;
	else if (bytes > size - (uint64_t)offset)
		bytes = size - (uint64_t)offset;
	if (!memory)
		fuse_reply_err(req, ENOMEM);
	else
		fuse_reply_buf(req, memory + (bytes ? offset : 0), bytes);
}

static void null_write(fuse_req_t req, fuse_ino_t ino, const char *from, size_t bytes, off_t offset,
		       struct fuse_file_info *info)
{
	struct null_file *file = file_of(ino);
	char *memory = null_file_memory(file);

	(void)info;
	if (!memory || (uint64_t)offset + bytes > NULL_FILE_MAX) {
		fuse_reply_err(req, memory ? EFBIG : ENOMEM);
		return;
	}
	memcpy(memory + offset, from, bytes);
	null_file_grow(file, (uint64_t)offset + bytes);
	fuse_reply_write(req, bytes);
}

static void null_copy(fuse_req_t req, fuse_ino_t from_ino, off_t from_offset,
		      struct fuse_file_info *from_info, fuse_ino_t to_ino, off_t to_offset,
		      struct fuse_file_info *to_info, size_t bytes, int flags)
{
	struct null_file *from = file_of(from_ino), *to = file_of(to_ino);
	uint64_t size = atomic_load(&from->size);
	char *source = null_file_memory(from), *memory = null_file_memory(to);

	(void)from_info, (void)to_info, (void)flags;
	if (!source || !memory || (uint64_t)to_offset + bytes > NULL_FILE_MAX) {
		fuse_reply_err(req, ENOMEM);
		return;
	}
	if ((uint64_t)from_offset >= size)
		bytes = 0;
	else if (bytes > size - (uint64_t)from_offset)
		bytes = size - (uint64_t)from_offset;
	memmove(memory + to_offset, source + from_offset, bytes);
	null_file_grow(to, (uint64_t)to_offset + bytes);
	fuse_reply_write(req, bytes);
}

struct listing {
	fuse_req_t req;
	char *at;
	size_t room;
};

static bool list_one(void *context, const struct null_file *file)
{
	struct listing *listing = context;
	struct stat st = {.st_ino = ino_of(file), .st_mode = file->mode};
	size_t bytes = fuse_add_direntry(listing->req, listing->at, listing->room, file->name, &st,
					 (off_t)file->cookie);

	if (bytes > listing->room)
		return false;
	listing->at += bytes;
	listing->room -= bytes;
	return true;
}

static void null_readdir(fuse_req_t req, fuse_ino_t ino, size_t bytes, off_t offset,
			 struct fuse_file_info *info)
{
	AUTO_FREE char *names = malloc(bytes);

	(void)info;
	if (!names) {
		fuse_reply_err(req, ENOMEM);
		return;
	}
	struct listing listing = {.req = req, .at = names, .room = bytes};

	null_store_list(ino, (uint64_t)offset, list_one, &listing);
	fuse_reply_buf(req, names, (size_t)(listing.at - names));
}

/* No extended attributes and no ioctls: the kernel answers these calls for a daemon without the
 * operations. */
const struct fuse_lowlevel_ops null_operations = {
    .lookup = null_lookup,
    .forget = null_forget,
    .forget_multi = null_forget_multi,
    .create = null_create,
    .unlink = null_unlink,
    .mkdir = null_mkdir,
    .rmdir = null_unlink,
    .getattr = null_getattr,
    .setattr = null_setattr,
    .readdir = null_readdir,
    .open = null_open,
    .release = null_release,
    .fsync = null_fsync,
    .read = null_read,
    .write = null_write,
    .copy_file_range = null_copy,
};
