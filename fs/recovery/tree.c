/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* Restores parents, counts, references and charges, which follow from the replayed names. */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "common/cleanup.h"
#include "fs/core/worker.h"
#include "fs/holders/host_out.h"
#include "fs/holders/inode_lease.h"
#include "fs/recovery/internal.h"
#include "fs/tree/depth.h"
#include "fs/tree/dir.h"
#include "fs/tree/inode.h"
#include "fs/tree/inode_table.h"
#include "fs/tree/inode_unseen.h"
#include "fs/tree/owner.h"
#include "fs/tree/quota.h"
#include "fs/tree/record.h"
#include "fs/tree/xattr.h"

int restore_each(struct restore *restore, int (*visit)(struct restore *, struct inode *))
{
	struct inode_table *table = restore->fs->inodes;
	uint32_t end = inode_table_pages(table) * INODE_PAGE_SLOTS;
	/* An upper bound where `visit` removes inodes. */
	uint64_t remaining = inode_table_count(table);
	int rc = 0;

	for (uint32_t slot = INODE_ROOT; rc == 0 && remaining && slot < end; slot++) {
		struct inode *inode = inode_table_restore_at(table, slot);

		if (inode) {
			remaining--;
			rc = visit(restore, inode);
		}
	}
	return rc;
}

static struct inode *quota_dir_find(const struct restore *restore, const struct inode *quota_dir)
{
	struct inode *inode = inode_table_find(restore->fs->inodes, (uint64_t)(uintptr_t)quota_dir);

	return inode && S_ISDIR(inode->mode) ? inode : NULL;
}

static bool inode_has_name_in(const struct inode *inode, const struct inode *dir)
{
	for (const struct dentry *entry = inode->links; entry; entry = entry->next_link)
		if (entry->parent == dir)
			return true;
	return false;
}

static int dir_set_parent(struct restore *restore, struct inode *inode)
{
	struct inode *root = restore->fs->root, *parent = quota_dir_find(restore, inode->quota_dir);

	inode->quota_dir = NULL;
	if (inode == root)
		return inode->links ? -EUCLEAN : 0;
	if (inode->links)
		parent = inode->links->parent;
	if (!parent || (inode->links && inode->links->next_link) ||
	    (!inode->links && inode->dir->n_names))
		return -EUCLEAN;
	inode->dir->removed = !inode->links;
	inode->dir->parent = parent;
	/* No directory is charged for the memory of a top directory. */
	inode->quota_dir = parent == root ? NULL : parent;
	return 0;
}

static int inode_set_quota_dir(struct restore *restore, struct inode *inode)
{
	struct inode *quota_dir = quota_dir_find(restore, inode->quota_dir);

	if (inode->links && (!quota_dir || !inode_has_name_in(inode, quota_dir)))
		quota_dir = inode->links->parent;
	inode->quota_dir = quota_dir;
	return quota_dir && quota_dir != restore->fs->root ? 0 : -EUCLEAN;
}

/* Sets the parent of a directory, and the directory that is charged for a file. */
static int inode_set_above(struct restore *restore, struct inode *inode)
{
	/* The inode is known by name alone: an earlier record is missing. */
	if (!inode->mode)
		return -EUCLEAN;
	return S_ISDIR(inode->mode) ? dir_set_parent(restore, inode)
				    : inode_set_quota_dir(restore, inode);
}

/* Checks that no directory is above itself. A directory whose way up to the root is known is
 * marked by `moving`. */
static int dir_check_ascent(struct restore *restore, struct inode *inode)
{
	if (!S_ISDIR(inode->mode))
		return 0;
	uint64_t steps = 0, max_steps = inode_table_count(restore->fs->inodes);
	struct inode *dir = inode;

	for (; dir && !dir->moving; dir = dir->dir->parent)
		if (++steps > max_steps)
			return -EUCLEAN;
	for (dir = inode; dir && !dir->moving; dir = dir->dir->parent)
		dir->moving = 1;
	return 0;
}

static int dir_unmark(struct restore *restore, struct inode *inode)
{
	(void)restore;
	inode->moving = 0;
	return 0;
}

static uint32_t inode_count_links(const struct inode *inode)
{
	uint32_t links = 0;

	for (const struct dentry *entry = inode->links; entry; entry = entry->next_link)
		links++;
	return links;
}

/* Restores the counts of one inode, and its references to the directories above. One reference
 * belongs to the restoring. */
static int inode_count(struct restore *restore, struct inode *inode)
{
	struct fs *fs = restore->fs;
	bool named = inode->links || inode == fs->root;

	if (fs->mount == FS_MOUNT_NEW)
		atomic_store(&inode->fields->lookups, 0);
	inode_count_file(inode, 1);
	inode_ref(inode);
	atomic_fetch_add(&inode->refs, named + inode->uses.leases + inode->fields->lookups);
	if (inode->quota_dir)
		inode_ref(inode->quota_dir);
	else
		inode->charges.counted = false;
	if (!S_ISDIR(inode->mode))
		inode->nlink = inode_count_links(inode);
	int rc = owner_take_metadata(fs, inode, inode_count_metadata(inode), OWNER_ALWAYS);

	if (rc || !S_ISDIR(inode->mode))
		return rc;
	if (inode->dir->parent) {
		inode_ref(inode->dir->parent);
		depth_added(inode);
	}
	atomic_fetch_add(&inode->nlink, named ? 2 : 0);
	if (inode->links) {
		atomic_fetch_add(&inode->dir->parent->nlink, 1);
		inode->dir->parent->dir->n_subdirs++;
	}
	return dir_restore_end(inode->dir);
}

static const struct dentry *top_find(struct dir *root, const struct volume *volume)
{
	const struct dentry *entry = dir_before(root, UINT64_MAX);

	while (entry && !(S_ISDIR(entry->inode->mode) && entry->inode->volume == volume))
		entry = dir_before(root, entry->cookie);
	return entry;
}

/* The directory of a GPU keeps the name that the first daemon gave it: the numbers of MIG instances
 * come from NVML, which may be missing now. */
static int volumes_find_tops(struct fs *fs)
{
	for (unsigned i = 0; i < fs->n_volumes; i++) {
		struct volume *volume = &fs->volumes[i];
		const struct dentry *entry = top_find(fs->root->dir, volume);

		if (!entry || strlen(entry->name) >= sizeof(volume->name))
			return -EUCLEAN;
		snprintf(volume->name, sizeof(volume->name), "%s", entry->name);
		volume->root_ino = entry->inode->ino;
	}
	return 0;
}

int restore_tree(struct restore *restore)
{
	struct fs *fs = restore->fs;
	struct inode *root = inode_table_find(fs->inodes, INODE_ROOT);

	if (!root || !S_ISDIR(root->mode))
		return -EUCLEAN;
	fs->root = root;
	int rc = restore_each(restore, inode_set_above);

	if (rc == 0)
		rc = restore_each(restore, dir_check_ascent);
	if (rc == 0)
		rc = restore_each(restore, dir_unmark);
	if (rc == 0)
		rc = restore_each(restore, inode_count);
	return rc ? rc : volumes_find_tops(fs);
}

static int inode_charge(struct restore *restore, struct inode *inode)
{
	if (inode->quota_dir)
		quota_force(inode->quota_dir, (int64_t)atomic_load(&inode->charges.bytes),
			    inode->charges.counted);
	return unclaimed_leases_add(restore->fs, inode);
}

/* Finishes the trim that the last writer's close began or could not do. */
static void inode_trim(struct fs *fs, struct inode *inode)
{
	struct inode_call call;

	inode_call_init(&call, fs, inode, worker_copier(fs));
	call.overdraft = true;
	file_trim(inode->file, &call.call);
}

/* A new mount has no open handles, which the journal must learn. The caller holds inode->lock. */
static void inode_forget_handles(struct fs *fs, struct inode *inode)
{
	_Atomic int32_t *backing = S_ISREG(inode->mode) ? file_backing_id(inode->file) : NULL;

	if (S_ISREG(inode->mode))
		inode_pages_clear(inode);
	if (!inode->uses.opens && !inode->uses.writers && !inode->uses.keep_data &&
	    (!backing || !*backing))
		return;
	inode->uses.opens = inode->uses.writers = 0;
	inode->uses.keep_data = false;
	if (backing)
		*backing = 0;
	record_open(fs, inode, 0);
}

static int inode_release(struct restore *restore, struct inode *inode)
{
	pthread_mutex_lock(&inode->lock);
	if (restore->fs->mount == FS_MOUNT_NEW)
		inode_forget_handles(restore->fs, inode);
	bool drop = inode_may_drop(restore->fs, inode);

	pthread_mutex_unlock(&inode->lock);
	if (drop)
		inode_drop_data(restore->fs, inode);
	else if (S_ISREG(inode->mode) && inode->uses.writers == 0 && !inode->uses.leases)
		inode_trim(restore->fs, inode);
	if (S_ISREG(inode->mode))
		host_out_update_accounting(restore->fs, inode);
	inode_put(restore->fs, inode, 1);
	return 0;
}

int restore_charges(struct restore *restore)
{
	return restore_each(restore, inode_charge);
}

/* restore_each holds a reference on every inode, so no inode is freed before the walk reaches the
 * inode. */
void restore_prune(struct restore *restore)
{
	restore_each(restore, inode_release);
}
