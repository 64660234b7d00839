/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* A filesystem on the host backend without a mount: tests call the functions behind the kernel's
 * requests directly. */
#ifndef TESTS_UNIT_FS_FIXTURE_H
#define TESTS_UNIT_FS_FIXTURE_H

#include <check.h>
#include <stdio.h>
#include <string.h>
#include <sys/sysmacros.h>

#include "fs/core/fs.h"
#include "fs/core/worker.h"
#include "fs/tree/dir.h"
#include "fs/tree/tree.h"

static struct fs fixture;

static inline void fixture_up(void)
{
	char *argv[] = {
	    "gpumemfs",	       "/tmp", "-o", "backend=host,host_gpus=2,host_size=64M", "-o",
	    "log_level=error", NULL};

	memset(&fixture, 0, sizeof(fixture));
	ck_assert_int_eq(options_parse(6, argv, &fixture.options), 0);
	log_setup(LOG_LEVEL_ERROR, LOG_TO_TERMINAL);
	fixture.can.max_write = 65536;
	ck_assert_int_eq(fs_open(&fixture), 0);
}

static inline void fixture_down(void)
{
	fs_close(&fixture);
	options_free(&fixture.options);
}

/* Returns the directory of the n-th GPU without a reference. */
static inline struct inode *gpu(unsigned n)
{
	return inode_find(&fixture, fixture.volumes[n].root_ino);
}

/* The device number of the device nodes that make creates: the largest possible number. */
#define MADE_RDEV makedev(4095, 1048575)

/* Creates an inode and gives back the kernel's reference: the name holds the inode. */
static inline int make(struct inode *parent, const char *name, mode_t mode)
{
	struct tree_new what = {
	    .mode = mode, .uid = 1, .gid = 2, .target = "target", .rdev = MADE_RDEV};
	struct inode *inode;
	int error = tree_create(&fixture, parent, name, &what, &inode);

	if (!error)
		inode_put(&fixture, inode, 1);
	return error;
}

static inline int make_dir(struct inode *parent, const char *name)
{
	return make(parent, name, S_IFDIR | 0755);
}

static inline int make_file(struct inode *parent, const char *name)
{
	return make(parent, name, S_IFREG | 0644);
}

/* Returns the inode of an existing name without a reference. */
static inline struct inode *at(struct inode *parent, const char *name)
{
	struct inode *inode;

	ck_assert_int_eq(tree_lookup(&fixture, parent, name, &inode), 0);
	inode_put(&fixture, inode, 1);
	return inode;
}

static inline bool is_there(struct inode *parent, const char *name)
{
	struct inode *inode;

	if (tree_lookup(&fixture, parent, name, &inode))
		return false;
	inode_put(&fixture, inode, 1);
	return true;
}

static inline int rename_to(struct inode *from, const char *name, struct inode *to,
			    const char *new_name, unsigned flags)
{
	const struct tree_rename rename = {.from = from,
					   .to = to,
					   .name = name,
					   .new_name = new_name,
					   .flags = flags,
					   .uid = 12,
					   .gid = 34};
	struct file_move *left = NULL;
	int error = tree_rename(&fixture, worker_copier(&fixture), &rename, &left);

	file_move_free(left);
	return error;
}

static inline ssize_t write_to(struct inode *inode, const void *data, size_t bytes, uint64_t offset)
{
	struct inode_call call;

	inode_call_init(&call, &fixture, inode, worker_copier(&fixture));
	return file_write(inode->file, &call.call, data, bytes, offset);
}

static inline ssize_t read_from(struct inode *inode, void *data, size_t bytes, uint64_t offset)
{
	struct inode_call call;

	inode_call_init(&call, &fixture, inode, worker_copier(&fixture));
	return file_read(inode->file, &call.call, data, bytes, offset);
}

/* Returns the counted name of an inode: the first name in the quota directory that pays for the
 * inode. */
static inline struct dentry *counted_name(struct inode *inode)
{
	struct dentry *entry = inode->links;

	while (entry && entry->parent != inode->quota_dir)
		entry = entry->next_link;
	return entry;
}

/* Sums of a tree. The function tally adds up the tree below dir and checks every count on the way.
 */
struct tally {
	int64_t bytes, files;
	uint64_t inodes;
};

static inline void tally(struct inode *dir, struct tally *sum)
{
	struct tally below = {0};
	uint32_t subdirs = 0, names = 0;
	struct dentry *entry;

	for (uint64_t cookie = DIR_COOKIE_END; (entry = dir_before(dir->dir, cookie));
	     cookie = entry->cookie) {
		struct inode *inode = entry->inode;
		unsigned links = 0;

		names++;
		ck_assert_ptr_eq(dir_find(dir->dir, entry->name), entry);
		ck_assert_ptr_eq(entry->parent, dir);
		for (struct dentry *link = inode->links; link; link = link->next_link)
			links++;
		if (S_ISDIR(inode->mode)) {
			subdirs++;
			ck_assert_uint_eq(links, 1);
			ck_assert_ptr_eq(inode->dir->parent, dir);
			tally(inode, &below);
		} else {
			ck_assert_uint_eq(inode->nlink, links);
		}
		ck_assert_ptr_nonnull(counted_name(inode));
		if (counted_name(inode) == entry) {
			below.inodes++;
			below.files++;
			below.bytes += (int64_t)inode->charges.bytes;
		}
	}
	ck_assert_uint_eq(names, dir->dir->n_names);
	ck_assert_uint_eq(subdirs, dir->dir->n_subdirs);
	ck_assert_uint_eq(dir->nlink, 2 + subdirs);
	sum->bytes += below.bytes;
	sum->files += below.files;
	sum->inodes += below.inodes;
}

/* Returns a random directory of dir0, dir1... in gpu0, or the root of a GPU if the directory is
 * missing. Takes a reference, because other threads rename and remove the directories. */
static inline struct inode *dir_or_top(unsigned dirs, uint64_t random)
{
	char name[16];
	struct inode *dir;

	snprintf(name, sizeof(name), "dir%u", (unsigned)(random % dirs));
	if (random % 7 == 0 || tree_lookup(&fixture, gpu(0), name, &dir)) {
		dir = gpu(random >> 8 & 1);
		inode_ref(dir);
	}
	return dir;
}

#endif
