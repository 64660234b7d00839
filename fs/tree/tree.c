/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/cleanup.h"
#include "fs/core/fs.h"
#include "fs/core/mode.h"
#include "fs/file/export.h"
#include "fs/tree/depth.h"
#include "fs/tree/dir.h"
#include "fs/tree/inode_hooks.h"
#include "fs/tree/internal.h"
#include "fs/tree/owner.h"
#include "fs/tree/quota.h"
#include "fs/tree/record.h"
#include "fs/tree/tree.h"

#define LINKS_MAX 65000

static int name_check(const char *name)
{
	return strnlen(name, NAME_BYTES_MAX + 1) > NAME_BYTES_MAX ? -ENAMETOOLONG : 0;
}

/* The root's entries are fixed. */
int tree_writable(struct inode *parent, const char *name)
{
	int error = name_check(name);

	if (error)
		return error;
	if (!S_ISDIR(parent->mode))
		return -ENOTDIR;
	return parent->volume ? 0 : -EPERM;
}

int tree_lookup(struct fs *fs, struct inode *parent, const char *name, struct inode **inode)
{
	(void)fs;
	int error = name_check(name);

	if (error)
		return error;
	if (!S_ISDIR(parent->mode))
		return -ENOTDIR;
	pthread_rwlock_rdlock(&parent->dir->lock);
	struct dentry *entry = dir_find(parent->dir, name);

	if (entry) {
		inode_ref(entry->inode);
		*inode = entry->inode;
	} else {
		error = -ENOENT;
	}
	pthread_rwlock_unlock(&parent->dir->lock);
	return error;
}

static struct attr_values values_without_trust(struct attr_values values)
{
	if (values.share == SHARE_TRUSTED)
		attributes_reset(ATTR_SHARE, &values);
	return values;
}

int tree_child_new(struct fs *fs, struct inode *parent, const struct tree_new *params,
		   struct inode **inode)
{
	struct tree_new new = *params;
	char *target AUTO_FREE = S_ISLNK(new.mode) ? strdup(new.target) : NULL;
	struct inode *new_inode;
	int error;

	if (S_ISLNK(new.mode) && !target)
		return -ENOMEM;
	error = S_ISDIR(new.mode) ? depth_check(parent, 0) : 0;
	if (error)
		return error;
	pthread_mutex_lock(&parent->lock);
	struct attr_values inherited = atomic_load(&parent->attrs);
	/* The share attribute trusts readers with files of the directory's owner, and with no other
	 * user's files. */
	if (parent->uid != new.uid)
		inherited = values_without_trust(inherited);
	if (parent->mode & S_ISGID) {
		new.gid = parent->gid;
		if (S_ISDIR(new.mode))
			new.mode |= S_ISGID;
	}
	pthread_mutex_unlock(&parent->lock);

	error = quota_add(parent, 0, 1);
	if (error)
		return error;
	error = inode_new(fs, parent->volume, new.mode, new.uid, new.gid, &new_inode);
	if (error)
		goto uncount;
	error = target
		    ? owner_take_metadata(fs, new_inode, (uint32_t)strlen(target) * METADATA_COPIES,
					  OWNER_WITHIN_LIMITS)
		    : 0;
	if (error)
		goto put;
	atomic_store(&new_inode->attrs, inherited);
	new_inode->charges.counted = true;
	inode_ref(parent);
	new_inode->quota_dir = parent;
	if (S_ISDIR(new.mode)) {
		inode_ref(parent);
		new_inode->dir->parent = parent;
	} else if (S_ISLNK(new.mode)) {
		new_inode->target = target;
		target = NULL;
	} else if (mode_is_device(new.mode)) {
		new_inode->rdev = (uint32_t) new.rdev;
	}
	*inode = new_inode;
	return 0;

put:
	inode_put(fs, new_inode, 1);
uncount:
	quota_force(parent, 0, -1);
	return error;
}

/* Puts the entry into the directory. The directory's lock is held, and the directory has no entry
 * of this name. */
int tree_attach(struct inode *parent, struct dentry *entry)
{
	struct inode *inode = entry->inode;
	int error = dir_add(parent->dir, entry);

	if (error)
		return error;
	pthread_mutex_lock(&inode->lock);
	inode_link_add(inode, entry, parent);
	pthread_mutex_unlock(&inode->lock);
	if (S_ISDIR(inode->mode)) {
		parent->dir->n_subdirs++;
		atomic_fetch_add(&parent->nlink, 1);
	}
	inode_touch_write(parent);
	return 0;
}

void tree_subdir_removed(struct inode *parent)
{
	if (--parent->dir->n_subdirs == 0)
		atomic_store(&parent->dir->height, 0);
	atomic_fetch_sub(&parent->nlink, 1);
}

/* Takes the entry out of the directory and frees the entry. The directory's lock is held. */
void tree_detach(struct inode *parent, struct dentry *entry)
{
	struct inode *inode = entry->inode;

	dir_remove(parent->dir, entry);
	pthread_mutex_lock(&inode->lock);
	inode_link_remove(inode, entry);
	pthread_mutex_unlock(&inode->lock);
	if (S_ISDIR(inode->mode))
		tree_subdir_removed(parent);
	inode_touch_write(parent);
	free(entry);
}

static int child_add_name(struct fs *fs, struct inode *parent, struct dentry *entry)
{
	struct inode *inode = entry->inode;
	int error;

	pthread_rwlock_wrlock(&parent->dir->lock);
	if (parent->dir->removed) {
		error = -ENOENT;
	} else if (dir_find(parent->dir, entry->name)) {
		error = -EEXIST;
	} else {
		inode->nlink = S_ISDIR(inode->mode) ? 2 : 1;
		error = tree_attach(parent, entry);
		if (!error && S_ISDIR(inode->mode))
			depth_added(inode);
		if (!error)
			record_create(fs, inode, entry);
	}
	pthread_rwlock_unlock(&parent->dir->lock);
	return error;
}

int tree_create(struct fs *fs, struct inode *parent, const char *name,
		const struct tree_new *params, struct inode **inode)
{
	int error = tree_writable(parent, name);
	struct inode *new = NULL;

	if (!error)
		error = journal_room(fs->journal);
	if (error)
		return error;
	brlock_token token = brlock_read_lock(&fs->topology);

	error = tree_child_new(fs, parent, params, &new);
	if (!error) {
		struct dentry *entry = dentry_new(name, new);

		/* inode_new's reference stands for having a name; this reference is the kernel's.
		 */
		inode_ref(new);
		error = entry ? child_add_name(fs, parent, entry) : -ENOMEM;
		if (error)
			free(entry);
	}
	brlock_read_unlock(&fs->topology, token);
	if (!error)
		*inode = new;
	else if (new)
		inode_put(fs, new, 2);
	return error;
}

int tree_tmpfile(struct fs *fs, struct inode *parent, const struct tree_new *params,
		 struct inode **inode)
{
	int error = tree_writable(parent, "");
	brlock_token token;

	if (!error)
		error = journal_room(fs->journal);
	if (error)
		return error;
	token = brlock_read_lock(&fs->topology);
	pthread_rwlock_rdlock(&parent->dir->lock);
	error = parent->dir->removed ? -ENOENT : 0;
	pthread_rwlock_unlock(&parent->dir->lock);
	if (!error)
		error = tree_child_new(fs, parent, params, inode);
	if (!error)
		record_create(fs, *inode, NULL);
	brlock_read_unlock(&fs->topology, token);
	return error;
}

/* A file that lost its last name counts no more and gets no other name; one that never had a name
 * (O_TMPFILE) counts. The entry is in the directory already. */
static int inode_add_link(struct fs *fs, struct inode *inode, struct inode *parent,
			  struct dentry *entry)
{
	scoped_lock(&inode->lock);
	if (inode->uses.data_freed || (inode->nlink == 0 && !inode->charges.counted))
		return -ENOENT;
	inode_link_add(inode, entry, parent);
	if (inode->nlink++ == 0) {
		inode_ref(inode); /* for having a name */
		inode_may_drop(fs, inode);
		/* METADATA_INODE includes a name. */
		owner_give_metadata(fs, inode, METADATA_NAME);
	}
	return 0;
}

/* The directory of its new name pays for a file that had no name (O_TMPFILE) from now on: see
 * tree_update_quota_dir. */
static int link_add_name(struct fs *fs, struct inode *inode, struct inode *parent,
			 struct dentry *entry)
{
	int error;

	pthread_rwlock_wrlock(&parent->dir->lock);
	if (parent->dir->removed)
		error = -ENOENT;
	else if (dir_find(parent->dir, entry->name))
		error = -EEXIST;
	else
		error = dir_add(parent->dir, entry);
	if (!error) {
		error = inode_add_link(fs, inode, parent, entry);
		if (error)
			dir_remove(parent->dir, entry);
	}
	if (!error) {
		inode_touch_write(parent);
		inode_touch_change(inode);
		record_link(fs, entry);
	}
	pthread_rwlock_unlock(&parent->dir->lock);
	return error;
}

int tree_link(struct fs *fs, struct inode *inode, struct inode *parent, const char *name)
{
	int error = tree_writable(parent, name);

	if (!error)
		error = journal_room(fs->journal);
	if (error)
		return error;
	if (S_ISDIR(inode->mode))
		return -EPERM;
	if (inode->volume != parent->volume)
		return -EXDEV;
	if (inode->nlink >= LINKS_MAX)
		return -EMLINK;
	struct dentry *entry = dentry_new(name, inode);

	if (!entry)
		return -ENOMEM;
	error = owner_take_metadata(fs, inode, METADATA_NAME, OWNER_WITHIN_LIMITS);
	if (error)
		goto free_entry;
	error = link_add_name(fs, inode, parent, entry);
	if (error)
		goto give;
	tree_update_quota_dir(fs, inode);
	inode_ref(inode); /* for the kernel */
	return 0;

give:
	owner_give_metadata(fs, inode, METADATA_NAME);
free_entry:
	free(entry);
	return error;
}

static bool inode_has_name_in(struct inode *inode, const struct inode *dir)
{
	for (struct dentry *entry = inode->links; entry; entry = entry->next_link)
		if (entry->parent == dir)
			return true;
	return false;
}

void tree_update_quota_dir(struct fs *fs, struct inode *inode)
{
	struct inode *old, *new = NULL;
	brlock_token token = brlock_read_lock(&fs->topology);

	pthread_mutex_lock(&inode->lock);
	bool unchanged = !inode->links || inode_has_name_in(inode, inode->quota_dir);
	pthread_mutex_unlock(&inode->lock);
	brlock_read_unlock(&fs->topology, token);
	if (unchanged)
		return;
	brlock_write_lock(&fs->topology);
	pthread_mutex_lock(&inode->lock);
	old = inode->quota_dir;
	if (inode->links && !inode_has_name_in(inode, old)) {
		new = inode->links->parent;
		inode_ref(new);
		inode->quota_dir = new;
		record_quota_dir(fs, inode);
	}
	pthread_mutex_unlock(&inode->lock);
	if (new) {
		/* The name exists, so a quota cannot refuse. The next charge meets the quota. */
		int64_t bytes = (int64_t)atomic_load(&inode->charges.bytes);

		quota_force(old, -bytes, -1);
		quota_force(new, bytes, 1);
	}
	brlock_write_unlock(&fs->topology);
	if (new)
		inode_put(fs, old, 1);
}

void tree_name_removed(struct fs *fs, struct inode *inode)
{
	bool last, drop = false;
	brlock_token token = brlock_read_lock(&fs->topology);

	/* In one step: a file without a name that counts may get one by link(2). */
	pthread_mutex_lock(&inode->lock);
	inode->nlink = S_ISDIR(inode->mode) ? 0 : inode->nlink - 1;
	last = inode->nlink == 0;
	if (last) {
		inode_uncount_held(inode);
		drop = inode_may_drop(fs, inode);
	}
	pthread_mutex_unlock(&inode->lock);
	brlock_read_unlock(&fs->topology, token);
	inode_touch_change(inode);
	inode_notify_changed(fs, inode);
	if (!last) {
		owner_give_metadata(fs, inode, METADATA_NAME);
		tree_update_quota_dir(fs, inode);
		return;
	}
	if (drop)
		inode_drop_data(fs, inode);
	inode_put(fs, inode, 1);
}

/* Sets the times before the record: when a client repeats the request after a restart, the new
 * daemon finds the record and answers that the request is done. */
static void unlink_record(struct fs *fs, struct inode *parent, const struct dentry *entry)
{
	if (!fs->journal)
		return;
	inode_touch_write(parent);
	inode_touch_change(entry->inode);
	record_unlink(fs, entry);
}

int tree_remove_check(struct inode *dir)
{
	pthread_rwlock_wrlock(&dir->dir->lock);
	int error = dir->dir->n_names ? -ENOTEMPTY : 0;

	if (!error)
		dir->dir->removed = true;
	pthread_rwlock_unlock(&dir->dir->lock);
	return error;
}

static int unlink_check(const struct dentry *entry)
{
	return S_ISDIR(entry->inode->mode) ? -EISDIR : 0;
}

static int rmdir_check(const struct dentry *entry)
{
	return S_ISDIR(entry->inode->mode) ? tree_remove_check(entry->inode) : -ENOTDIR;
}

/* only: the inode whose name it must be; NULL: any. */
static int name_remove(struct fs *fs, struct inode *parent, const char *name,
		       const struct inode *only, int (*check)(const struct dentry *entry))
{
	int error = tree_writable(parent, name);
	struct inode *inode = NULL;

	if (error)
		return error;
	pthread_rwlock_wrlock(&parent->dir->lock);
	struct dentry *entry = dir_find(parent->dir, name);

	error = entry && (!only || entry->inode == only) ? check(entry) : -ENOENT;
	if (!error) {
		inode = entry->inode;
		/* Another thread may remove the inode's other names meanwhile. */
		inode_ref(inode);
		unlink_record(fs, parent, entry);
		tree_detach(parent, entry);
	}
	pthread_rwlock_unlock(&parent->dir->lock);
	if (error)
		return error;
	tree_name_removed(fs, inode);
	inode_put(fs, inode, 1);
	return 0;
}

int tree_unlink(struct fs *fs, struct inode *parent, const char *name)
{
	return name_remove(fs, parent, name, NULL, unlink_check);
}

int tree_unlink_inode(struct fs *fs, struct inode *parent, const char *name,
		      const struct inode *inode)
{
	return name_remove(fs, parent, name, inode, unlink_check);
}

int tree_rmdir(struct fs *fs, struct inode *parent, const char *name)
{
	return name_remove(fs, parent, name, NULL, rmdir_check);
}

bool tree_drop_mode(struct fs *fs, struct inode *inode, mode_t bits)
{
	scoped_lock(&inode->lock);
	if (!(inode->mode & bits))
		return false;
	inode->mode &= ~bits;
	inode_touch_change(inode);
	record_owner(fs, inode);
	return true;
}

/* The inode's lock is held. The former owner trusted readers. Record the change first: otherwise a
 * crash would leave this trust to the new owner. */
static int owner_set(struct fs *fs, struct inode *inode, uid_t uid)
{
	struct attr_values values = atomic_load(&inode->attrs);

	if (uid == inode->uid)
		return 0;
	atomic_store(&inode->attrs, values_without_trust(values));
	if (S_ISREG(inode->mode))
		file_set_unclean(inode->file);
	int error = owner_change(fs, inode, uid);

	if (error)
		atomic_store(&inode->attrs, values);
	else
		record_values(fs, inode);
	return error;
}

int tree_set_attrs(struct fs *fs, struct inode *inode, const struct tree_attrs *attrs)
{
	scoped_lock(&inode->lock);
	int error = attrs->mask & TREE_UID ? owner_set(fs, inode, attrs->uid) : 0;

	if (error)
		return error;
	if (attrs->mask & TREE_MODE)
		inode->mode = (inode->mode & S_IFMT) | (attrs->mode & 07777);
	if (attrs->mask & TREE_GID)
		inode->gid = attrs->gid;
	if (attrs->mask & TREE_ATIME)
		inode->fields->atime = attrs->atime;
	if (attrs->mask & TREE_MTIME)
		inode_set_mtime(inode, attrs->mtime);
	inode_touch_change(inode);
	if (attrs->mask & (TREE_MODE | TREE_UID | TREE_GID))
		record_owner(fs, inode);
	return 0;
}
