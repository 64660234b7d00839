/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* Replays one record of the journal: finds or creates the inode and changes it as recorded. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "common/vector.h"
#include "fs/core/mode.h"
#include "fs/recovery/internal.h"
#include "fs/tree/dir.h"
#include "fs/tree/inode.h"
#include "fs/tree/inode_table.h"
#include "fs/tree/xattr.h"

#define NO_VOLUME UINT32_MAX

static struct inode *inode_of(const struct restore *restore, uint64_t ino)
{
	return inode_table_find(restore->fs->inodes, ino);
}

static struct inode *dir_of(const struct restore *restore, uint64_t ino)
{
	struct inode *inode = inode_of(restore, ino);

	return inode && S_ISDIR(inode->mode) ? inode : NULL;
}

static int inode_drop(struct restore *restore, struct inode *inode)
{
	if (inode->links || (S_ISDIR(inode->mode) && inode->dir->n_names))
		return -EUCLEAN;
	inode_table_restore_remove(restore->fs->inodes, inode);
	inode_restore_free(inode);
	return 0;
}

/* Finds or creates the inode of a number. A new inode has no type yet. An older inode in the same
 * slot is gone by now and is freed. */
static int inode_place(struct restore *restore, uint64_t ino, struct inode **inode)
{
	struct inode_table *table = restore->fs->inodes;
	struct inode *occupant = inode_table_restore_at(table, ino);
	int rc = 0;

	if (occupant && occupant->ino == ino) {
		*inode = occupant;
		return 0;
	}
	if (occupant)
		rc = inode_drop(restore, occupant);
	struct inode *new_inode = rc ? NULL : inode_restore_new(ino);

	if (!new_inode)
		return rc ? rc : -ENOMEM;
	rc = inode_table_restore(table, new_inode);
	if (rc)
		inode_restore_free(new_inode);
	else
		*inode = new_inode;
	return rc;
}

static int volume_at(const struct restore *restore, uint32_t index, struct volume **volume)
{
	if (index != NO_VOLUME && index >= restore->n_volumes)
		return -EUCLEAN;
	*volume = index == NO_VOLUME ? NULL : restore->volumes[index];
	return 0;
}

static int inode_set_target(struct inode *inode, const struct journal_view *view)
{
	char *target = view->tail_bytes ? strdup(view->tail) : NULL;

	if (!S_ISLNK(inode->mode) || !target) {
		free(target);
		return S_ISLNK(inode->mode) == (view->tail_bytes > 0) ? -ENOMEM : -EUCLEAN;
	}
	free(inode->target);
	inode->target = target;
	return 0;
}

static bool mode_is_type(uint32_t mode)
{
	return S_ISREG(mode) || S_ISDIR(mode) || S_ISLNK(mode) || S_ISFIFO(mode) ||
	       S_ISSOCK(mode) || mode_is_device(mode);
}

static int replay_inode(struct restore *restore, const struct journal_view *view)
{
	const struct journal_inode *image = view->fixed;
	struct volume *volume = NULL;
	struct inode *inode;
	int rc = volume_at(restore, image->volume, &volume);

	/* Only the root has no volume. */
	if (!mode_is_type(image->mode) || (!volume && image->ino != INODE_ROOT))
		return -EUCLEAN;
	if (rc == 0)
		rc = inode_place(restore, image->ino, &inode);
	if (rc == 0)
		rc = inode_restore_type(inode, volume, image->mode);
	if (rc)
		return rc;
	if (S_ISLNK(image->mode) || view->tail_bytes)
		rc = inode_set_target(inode, view);
	else if (mode_is_device(image->mode))
		inode->rdev = image->rdev;
	inode->uid = image->uid;
	inode->gid = image->gid;
	inode->btime = image->btime;
	inode->quota_dir = restore_number(image->quota_dir);
	inode->charges.counted = image->flags & JOURNAL_IS_COUNTED;
	inode->uses.keep_data = image->flags & JOURNAL_KEEPS_DATA;
	atomic_store(&inode->attrs, image->attrs);
	xattr_free(inode->xattrs);
	inode->xattrs = NULL;
	return rc;
}

static void entry_replace(struct dentry *entry, struct inode *dir, struct inode *inode)
{
	struct inode *old = entry->inode;

	inode_link_remove(old, entry);
	old->charges.counted = old->charges.counted && old->links;
	entry->inode = inode;
	inode_link_add(inode, entry, dir);
}

static int entry_add(struct inode *dir, struct inode *inode, const char *name, uint64_t cookie)
{
	struct dentry *entry = dentry_new(name, inode);

	if (!entry)
		return -ENOMEM;
	entry->cookie = cookie;
	int rc = dir_restore_add(dir->dir, entry);

	if (rc)
		free(entry);
	else
		inode_link_add(inode, entry, dir);
	return rc;
}

static int replay_name(struct restore *restore, const struct journal_view *view)
{
	const struct journal_name *image = view->fixed;
	struct inode *dir = dir_of(restore, image->dir), *inode;
	char name[NAME_BYTES_MAX + 1];
	struct volume *volume = NULL;
	int rc = volume_at(restore, image->volume, &volume);

	if (rc || image->cookie < DIR_COOKIE_FIRST || image->cookie >= DIR_COOKIE_END)
		return -EUCLEAN;
	if (!dir)
		return 0;
	rc = inode_place(restore, image->ino, &inode);
	if (rc)
		return rc;
	memcpy(name, view->tail, image->name_bytes);
	name[image->name_bytes] = '\0';
	struct dentry *entry = dir_find(dir->dir, name);

	if (entry)
		entry_replace(entry, dir, inode);
	else
		rc = entry_add(dir, inode, name, image->cookie);
	if (rc)
		return rc;
	if (entry)
		entry->cookie = image->cookie;
	if (dir->dir->next_cookie <= image->cookie)
		dir->dir->next_cookie = image->cookie + 1;
	inode->charges.counted = true;
	if (volume && !S_ISDIR(inode->mode))
		inode->volume = volume;
	if (S_ISDIR(inode->mode) || !inode->mode)
		inode->quota_dir = restore_number(dir->ino);
	return 0;
}

static int replay_name_gone(struct restore *restore, const struct journal_view *view)
{
	const struct journal_name *image = view->fixed;
	struct inode *dir = dir_of(restore, image->dir);
	char name[NAME_BYTES_MAX + 1];

	if (!dir)
		return 0;
	memcpy(name, view->tail, image->name_bytes);
	name[image->name_bytes] = '\0';
	struct dentry *entry = dir_find(dir->dir, name);

	if (!entry)
		return 0;
	struct inode *inode = entry->inode;

	inode_link_remove(inode, entry);
	inode->charges.counted = inode->charges.counted && inode->links;
	dir_restore_remove(dir->dir, entry);
	free(entry);
	return 0;
}

static void replay_owner(struct inode *inode, const struct journal_owner *owner)
{
	inode->mode = (inode->mode & S_IFMT) | (owner->mode & 07777);
	inode->uid = owner->uid;
	inode->gid = owner->gid;
}

static int replay_xattr(struct inode *inode, const struct journal_view *view)
{
	const struct journal_xattr *xattr = view->fixed;
	int rc;

	if (view->kind == JOURNAL_XATTR_GONE) {
		xattr_remove(&inode->xattrs, view->tail);
		return 0;
	}
	rc = xattr_set(&inode->xattrs, view->tail, view->tail + xattr->name_bytes,
		       xattr->value_bytes, 0);
	return rc == -ENOSPC ? -EUCLEAN : rc;
}

static int replay_open(struct inode *inode, const struct journal_open *open)
{
	if ((open->leases && !S_ISREG(inode->mode)) || open->leases >> INODE_LEASE_BITS ||
	    open->writers > open->opens)
		return -EUCLEAN;
	inode->uses.opens = open->opens;
	inode->uses.writers = open->writers;
	inode->uses.keep_data = open->keep_data;
	inode->uses.leases = open->leases;
	if (S_ISREG(inode->mode))
		*file_backing_id(inode->file) = open->backing_id;
	return 0;
}

static void replay_quota(struct inode *inode, const struct journal_quota *quota)
{
	if (!S_ISDIR(inode->mode))
		return;
	inode->dir->max_bytes = quota->max_bytes;
	inode->dir->max_files = quota->max_files;
}

static void replay_dir(struct inode *inode, const struct journal_dir *dir)
{
	if (S_ISDIR(inode->mode) && inode->dir->next_cookie < dir->next_cookie)
		inode->dir->next_cookie = dir->next_cookie;
}

static int request_keep_earlier(struct restore *restore, const struct journal_request *request)
{
	struct journal_request *earlier =
	    vector_grow(restore->earlier, restore->n_earlier, sizeof(*earlier));

	if (!earlier)
		return -ENOMEM;
	restore->earlier = earlier;
	restore->earlier[restore->n_earlier++] = *request;
	return 0;
}

static void requests_forget(struct restore *restore)
{
	memset(restore->recent, 0, JOURNAL_WRITERS * sizeof(*restore->recent));
	restore->n_earlier = 0;
}

static int request_keep(struct restore *restore, const struct journal_request *request)
{
	if (request->writer == JOURNAL_FORGET)
		requests_forget(restore);
	else if (!request->request)
		return 0;
	else if (request->writer < JOURNAL_WRITERS) {
		struct restore_recent *recent = &restore->recent[request->writer];

		recent->requests[recent->n++ % JOURNAL_RECENT] = *request;
	} else if (request->writer - JOURNAL_EARLIER < JOURNAL_EARLIER_MAX) {
		return request_keep_earlier(restore, request);
	}
	return 0;
}

/* Replays a record that begins with an inode number and changes that inode. */
static int replay_change(struct restore *restore, const struct journal_view *view)
{
	struct inode *inode = inode_of(restore, ((const struct journal_ino *)view->fixed)->ino);

	/* An inode known by name alone gets the rest from a later record, or was freed before this
	 * record. */
	if (!inode || (!inode->mode && view->kind != JOURNAL_GONE))
		return 0;
	switch (view->kind) {
	case JOURNAL_OWNER:
		replay_owner(inode, view->fixed);
		return 0;
	case JOURNAL_VALUES:
		atomic_store(&inode->attrs, ((const struct journal_values *)view->fixed)->attrs);
		return 0;
	case JOURNAL_QUOTA:
		replay_quota(inode, view->fixed);
		return 0;
	case JOURNAL_XATTR:
	case JOURNAL_XATTR_GONE:
		return replay_xattr(inode, view);
	case JOURNAL_QUOTA_DIR:
		inode->quota_dir =
		    restore_number(((const struct journal_quota_dir *)view->fixed)->quota_dir);
		return 0;
	case JOURNAL_OPEN:
		return replay_open(inode, view->fixed);
	case JOURNAL_KEEP_DATA:
		inode->uses.keep_data = true;
		return 0;
	case JOURNAL_GONE:
		return inode == inode_of(restore, INODE_ROOT) ? -EUCLEAN
							      : inode_drop(restore, inode);
	case JOURNAL_FILE:
	case JOURNAL_EXTENTS:
		return restore_file(restore, inode, view);
	case JOURNAL_CUT:
		return restore_cut(inode, view->fixed);
	case JOURNAL_DIR:
		replay_dir(inode, view->fixed);
		return 0;
	default:
		return -EUCLEAN;
	}
}

static int replay_view(struct restore *restore, const struct journal_view *view)
{
	switch (view->kind) {
	case JOURNAL_INODE:
		return replay_inode(restore, view);
	case JOURNAL_NAME:
		return replay_name(restore, view);
	case JOURNAL_NAME_GONE:
		return replay_name_gone(restore, view);
	case JOURNAL_REQUEST:
		return request_keep(restore, view->fixed);
	case JOURNAL_HANDED_OUT:
		return restore_handed_out(restore, view);
	default:
		return replay_change(restore, view);
	}
}

int restore_record(struct restore *restore, const struct journal_record *record)
{
	struct journal_view view;
	uint32_t at = 0;
	int rc = request_keep(restore, &(struct journal_request){.request = record->request,
								 .ino = record->ino,
								 .completed = record->completed,
								 .writer = record->writer});

	if (rc)
		return rc;
	do {
		at = journal_view(record, at, &view);
		rc = at ? replay_view(restore, &view) : -EUCLEAN;
	} while (rc == 0 && at < record->bytes);
	return rc;
}
