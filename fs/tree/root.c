/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
#include <errno.h>
#include <stdlib.h>

#include "fs/core/fs.h"
#include "fs/tree/dir.h"
#include "fs/tree/inode_table.h"
#include "fs/tree/internal.h"
#include "fs/tree/quota.h"
#include "fs/tree/record.h"
#include "fs/tree/tree.h"

/* The sticky bit, as on /tmp: all users may create files, and only the owner may remove a file. */
#define TOP_MODE 01777

static int top_dir_create(struct fs *fs, struct volume *volume)
{
	const struct options *options = &fs->options;
	struct inode *inode;
	int error = inode_new(fs, volume, S_IFDIR | (TOP_MODE & ~options->umask), options->uid,
			      options->gid, &inode);

	if (error)
		return error;
	struct dentry *entry = dentry_new(volume->name, inode);

	if (!entry) {
		inode_put(fs, inode, 1);
		return -ENOMEM;
	}
	inode->nlink = 2;
	inode_ref(fs->root);
	inode->dir->parent = fs->root;
	error = tree_attach(fs->root, entry);
	if (error) {
		free(entry);
		inode_put(fs, inode, 1);
		return error;
	}
	volume->root_ino = inode->ino;
	record_create(fs, inode, entry);
	return 0;
}

int tree_init(struct fs *fs)
{
	struct inode *root;
	int error = inode_new(fs, NULL, S_IFDIR | 0755, fs->options.uid, fs->options.gid, &root);

	if (error)
		return error;
	root->nlink = 2;
	fs->root = root;
	record_create(fs, root, NULL);
	for (unsigned i = 0; !error && i < fs->n_volumes; i++)
		error = top_dir_create(fs, &fs->volumes[i]);
	if (error)
		tree_destroy(fs);
	return error;
}

/* Frees everything below a directory, deepest first, without recursion: users choose the depth. */
static void dir_empty(struct fs *fs, struct inode *top)
{
	struct inode *dir = top;
	uint64_t cookie = DIR_COOKIE_END; /* entries of dir with at least this cookie are gone */

	for (;;) {
		struct dentry *entry = dir_before(dir->dir, cookie);

		if (entry && S_ISDIR(entry->inode->mode) && entry->inode->dir->n_names) {
			dir = entry->inode;
			cookie = DIR_COOKIE_END;
			continue;
		}
		if (entry) {
			struct inode *inode = entry->inode;

			cookie = entry->cookie;
			tree_detach(dir, entry);
			inode->nlink = S_ISDIR(inode->mode) ? 0 : inode->nlink - 1;
			if (inode->nlink == 0)
				inode_put(fs, inode, 1);
			continue;
		}
		if (dir == top)
			return;
		cookie = dir->links->cookie + 1;
		dir = dir->dir->parent;
	}
}

void tree_destroy(struct fs *fs)
{
	uint32_t slot = 0;
	struct inode *inode;

	dir_empty(fs, fs->root);
	/* An unmount sends no FUSE_FORGET: the remaining inodes have references only from
	 * lookups. */
	while ((inode = inode_table_next(fs->inodes, &slot))) {
		inode_forget(fs, inode, UINT64_MAX);
		inode_put(fs, inode, 1);
	}
	inode_put(fs, fs->root, 1);
	fs->root = NULL;
}
