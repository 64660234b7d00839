/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "common/cleanup.h"
#include "fs/core/fs.h"
#include "fs/tree/dir.h"
#include "fs/tree/tree.h"

/* Puts text before *at, if there is room after start. */
static bool text_prepend(const char *start, char **at, const char *text, size_t length)
{
	if ((size_t)(*at - start) < length)
		return false;
	*at -= length;
	memcpy(*at, text, length);
	return true;
}

/* Prepends a name of the inode. Returns the name's directory, with a reference, or NULL for an
 * inode without names. */
static struct inode *name_prepend(struct inode *inode, const char *start, char **at, bool *fits)
{
	scoped_lock(&inode->lock);
	const struct dentry *entry = inode->links;

	if (!entry)
		return NULL;
	*fits =
	    text_prepend(start, at, entry->name, entry->length) && text_prepend(start, at, "/", 1);
	inode_ref(entry->parent);
	return entry->parent;
}

struct inode *tree_name(struct inode *inode, char name[NAME_MAX + 1])
{
	scoped_lock(&inode->lock);
	const struct dentry *entry = inode->links;

	if (!entry)
		return NULL;
	memcpy(name, entry->name, entry->length);
	name[entry->length] = '\0';
	inode_ref(entry->parent);
	return entry->parent;
}

int tree_path(struct fs *fs, struct inode *inode, char *path, size_t bytes)
{
	char *end = path + bytes - 1, *at = end;
	bool fits = true;

	*end = 0;
	if (inode == fs->root)
		fits = text_prepend(path, &at, "/", 1);
	inode_ref(inode);
	while (fits && inode != fs->root) {
		struct inode *parent = name_prepend(inode, path, &at, &fits);

		if (!parent) {
			const struct volume *volume = inode->volume;

			fits = text_prepend(path, &at, " (deleted)", 10) && volume &&
			       text_prepend(path, &at, volume->name, strlen(volume->name)) &&
			       text_prepend(path, &at, "/", 1);
			break;
		}
		inode_put(fs, inode, 1);
		inode = parent;
	}
	inode_put(fs, inode, 1);
	if (!fits)
		return -ENAMETOOLONG;
	memmove(path, at, (size_t)(end - at) + 1);
	return (int)(end - at);
}

int tree_number_text(uint64_t ino, char *text, size_t bytes)
{
	return snprintf(text, bytes, "inode %" PRIu64, ino);
}

int tree_path_text(struct fs *fs, struct inode *inode, char *text, size_t bytes)
{
	int length = tree_path(fs, inode, text, bytes);

	return length < 0 ? tree_number_text(inode->ino, text, bytes) : length;
}

void tree_path_absolute(struct fs *fs, struct inode *inode, char path[TREE_ABSOLUTE_MAX])
{
	int length = snprintf(path, PATH_MAX, "%s", fs->options.mountpoint);
	char *tail = path + (length < PATH_MAX ? length : PATH_MAX - 1);

	if (tree_path(fs, inode, tail, PATH_MAX) < 0) {
		*tail = '/';
		tree_number_text(inode->ino, tail + 1, PATH_MAX - 1);
	}
}
