/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/cleanup.h"
#include "fs/core/fs.h"
#include "fs/file/export.h"
#include "fs/tree/depth.h"
#include "fs/tree/dir.h"
#include "fs/tree/inode_hooks.h"
#include "fs/tree/internal.h"
#include "fs/tree/quota.h"
#include "fs/tree/record.h"
#include "fs/tree/tree.h"

struct renaming {
	struct fs *fs;
	struct inode *from, *to; /* the two directories; may be the same */
	const char *name, *new_name;
	unsigned flags;
	uid_t uid; /* owner of a whiteout */
	gid_t gid;
	struct dentry *source, *target; /* target is NULL if no name is replaced */
	struct dentry *named;		/* the entry that names the source in the end */
	struct file_move *move;		/* the move of the file's bytes, or NULL */
	struct inode *moving;		/* its bytes are on the other volume already; or NULL */
	struct inode *renamed[2];	/* inodes with changed names; referenced */
	struct inode *whiteout;		/* nameless until it takes the source's old name; or NULL */
	/* Inode that lost a name, counted off after unlocking; referenced. */
	struct inode *replaced;
};

static bool dir_is_above(const struct inode *dir, const struct inode *descendant)
{
	for (; descendant; descendant = descendant->dir->parent)
		if (descendant == dir)
			return true;
	return false;
}

/* Locks both directories: ancestors first, then by address. For two directories topology is held
 * exclusively. */
static void dirs_lock(struct inode *a, struct inode *b)
{
	if (dir_is_above(b, a) || (!dir_is_above(a, b) && b < a)) {
		struct inode *swap = a;

		a = b;
		b = swap;
	}
	pthread_rwlock_wrlock(&a->dir->lock);
	if (a != b)
		pthread_rwlock_wrlock(&b->dir->lock);
}

static void dirs_unlock(struct inode *a, struct inode *b)
{
	pthread_rwlock_unlock(&a->dir->lock);
	if (a != b)
		pthread_rwlock_unlock(&b->dir->lock);
}

/* Checks whether the types allow the source to take the target's place. */
static int rename_check_types(const struct renaming *r)
{
	const struct inode *source = r->source->inode, *target = r->target->inode;

	if (r->flags & RENAME_EXCHANGE)
		return 0;
	if (S_ISDIR(source->mode))
		return S_ISDIR(target->mode) ? 0 : -ENOTDIR;
	return S_ISDIR(target->mode) ? -EISDIR : 0;
}

static int rename_check(const struct renaming *r)
{
	if (!r->source || r->to->dir->removed)
		return -ENOENT;
	if (!r->target && r->flags & RENAME_EXCHANGE)
		return -ENOENT;
	if (r->target && r->flags & RENAME_NOREPLACE)
		return -EEXIST;
	if (S_ISDIR(r->source->inode->mode) && dir_is_above(r->source->inode, r->to))
		return -EINVAL;
	if (r->target && r->flags & RENAME_EXCHANGE && S_ISDIR(r->target->inode->mode) &&
	    dir_is_above(r->target->inode, r->from))
		return -EINVAL;
	if (r->target && S_ISDIR(r->target->inode->mode) && dir_is_above(r->target->inode, r->from))
		return -ENOTEMPTY;
	if (r->from->volume != r->to->volume && r->source->inode != r->moving)
		return -EXDEV; /* another rename changed the name after the bytes were moved */
	return r->target ? rename_check_types(r) : 0;
}

/* Sets the parent of a directory that moves to another directory. */
static void dir_move_parent(struct inode *inode, struct inode *from, struct inode *to)
{
	if (!S_ISDIR(inode->mode) || from == to)
		return;
	inode->dir->parent = to;
	inode_ref(to);
	atomic_fetch_sub(&from->refs, 1);
	depth_added(inode);
}

/* Checks whether the entry's inode is not too deep in another directory. */
static int entry_check_depth(const struct dentry *entry, const struct inode *to)
{
	const struct inode *inode = entry->inode;

	return S_ISDIR(inode->mode) ? depth_check(to, atomic_load(&inode->dir->height)) : 0;
}

static int rename_check_depths(const struct renaming *r)
{
	int error = r->from == r->to ? 0 : entry_check_depth(r->source, r->to);

	if (error || r->from == r->to || !(r->flags & RENAME_EXCHANGE))
		return error;
	return entry_check_depth(r->target, r->from);
}

/* A process could take more memory below a quota than was charged. */
static int inode_check_outgrows(const struct inode *inode, struct inode *to)
{
	return S_ISREG(inode->mode) && quota_limited(to) && file_may_outgrow_quota(inode->file)
		   ? -EBUSY
		   : 0;
}

static int rename_charge(struct renaming *r)
{
	if (r->from == r->to)
		return 0;
	int error = inode_check_outgrows(r->source->inode, r->to);

	if (!error && r->flags & RENAME_EXCHANGE)
		error = inode_check_outgrows(r->target->inode, r->from);
	if (!error)
		error = quota_move_inode(r->source->inode, r->from, r->to);

	if (error || !(r->flags & RENAME_EXCHANGE))
		return error;
	error = quota_move_inode(r->target->inode, r->to, r->from);
	if (error)
		quota_return_inode(r->source->inode, r->from, r->to);
	return error;
}

/* Makes the entry name another inode. */
static void dentry_repoint(struct dentry *entry, struct inode *inode)
{
	struct inode *old = entry->inode, *dir = entry->parent;

	pthread_mutex_lock(&old->lock);
	inode_link_remove(old, entry);
	pthread_mutex_unlock(&old->lock);
	entry->inode = inode;
	pthread_mutex_lock(&inode->lock);
	inode_link_add(inode, entry, dir);
	pthread_mutex_unlock(&inode->lock);
}

static void dir_count_subdir(struct inode *parent, const struct inode *inode, int change)
{
	if (!S_ISDIR(inode->mode))
		return;
	parent->dir->n_subdirs += (uint32_t)change;
	atomic_fetch_add(&parent->nlink, (uint32_t)change);
}

static void names_exchange(struct renaming *r)
{
	struct inode *source = r->source->inode, *target = r->target->inode;

	r->named = r->target;
	dentry_repoint(r->source, target);
	dentry_repoint(r->target, source);
	dir_count_subdir(r->from, source, -1);
	dir_count_subdir(r->from, target, 1);
	dir_count_subdir(r->to, target, -1);
	dir_count_subdir(r->to, source, 1);
	dir_move_parent(source, r->from, r->to);
	dir_move_parent(target, r->to, r->from);
	inode_touch_change(target);
}

/* Makes the inode that takes the old name: the device that overlayfs regards as a removed name.
 * Topology is held. */
static int whiteout_make(struct renaming *r)
{
	const struct tree_new params = {.mode = S_IFCHR, .uid = r->uid, .gid = r->gid};

	return r->flags & RENAME_WHITEOUT ? tree_child_new(r->fs, r->from, &params, &r->whiteout)
					  : 0;
}

/* The source's entry names the whiteout. */
static void whiteout_name(struct renaming *r, const struct inode *source)
{
	if (S_ISDIR(source->mode))
		tree_subdir_removed(r->from);
	r->whiteout->nlink = 1;
	dentry_repoint(r->source, r->whiteout);
	r->whiteout = NULL;
}

/* Removes the source's entry; the target's entry, or a new entry, names the source's inode. */
static int name_replace(struct renaming *r)
{
	struct inode *source = r->source->inode;

	if (r->target) {
		struct inode *target = r->target->inode;
		int error = S_ISDIR(target->mode) ? tree_remove_check(target) : 0;

		if (error)
			return error;
		r->replaced = target;
		inode_ref(target); /* other threads may remove the other names */
		r->named = r->target;
		dentry_repoint(r->target,
			       source); /* a directory replaces a directory: the count stays */
	} else {
		struct dentry *new_entry = dentry_new(r->new_name, source);
		int error = new_entry ? tree_attach(r->to, new_entry) : -ENOMEM;

		if (error) {
			free(new_entry);
			return error;
		}
		r->named = new_entry;
	}
	if (r->whiteout)
		whiteout_name(r, source);
	else
		tree_detach(r->from, r->source);
	dir_move_parent(source, r->from, r->to);
	return 0;
}

/* Writes a single record for the whole rename. The source's entry still exists if names were
 * exchanged, or names a whiteout. */
static void rename_record(const struct renaming *r, const struct inode *source)
{
	struct record_rename record = {0};

	if (!r->fs->journal)
		return;
	if (r->flags & RENAME_EXCHANGE)
		record_rename_name(&record, r->source);
	else if (r->flags & RENAME_WHITEOUT)
		record_rename_whiteout(&record, r->source);
	else
		record_rename_gone(&record, r->from, r->name, source);
	record_rename_name(&record, r->named);
	if (r->from != r->to) {
		record_rename_quota_dir(&record, source);
		if (r->flags & RENAME_EXCHANGE)
			record_rename_quota_dir(&record, r->source->inode);
	}
	if (r->replaced)
		record_rename_replaced(&record, r->replaced);
	if (r->move)
		record_rename_moved(&record, r->move);
	record_rename(r->fs, &record);
}

/* Both directories are locked. On an error the names are unchanged. */
static int rename_locked(struct renaming *r)
{
	r->source = dir_find(r->from->dir, r->name);
	r->target = dir_find(r->to->dir, r->new_name);
	int error = rename_check(r);

	if (error)
		return error;
	struct inode *source = r->source->inode;

	if (r->target && r->target->inode == source)
		return 0; /* two names of the same file: POSIX requires no change */
	error = rename_check_depths(r);
	if (!error)
		error = rename_charge(r);
	if (error)
		return error;
	if (r->flags & RENAME_EXCHANGE)
		names_exchange(r);
	else
		error = name_replace(r);
	if (error) {
		if (r->from != r->to)
			quota_return_inode(source, r->from, r->to);
		return error;
	}
	if (r->moving) {
		pthread_mutex_lock(&source->lock);
		inode_count_file(source, -1);
		source->volume = r->to->volume;
		inode_count_file(source, 1);
		pthread_mutex_unlock(&source->lock);
	}
	inode_touch_change(source);
	inode_touch_write(r->from);
	inode_touch_write(r->to);
	if (r->fs->journal && r->replaced)
		inode_touch_change(r->replaced);
	if (r->replaced) {
		/* The record below says keep_data, so set keep_data first: a checkpoint that ran in
		 * between would record false after the record. */
		pthread_mutex_lock(&r->replaced->lock);
		r->replaced->uses.keep_data = true;
		pthread_mutex_unlock(&r->replaced->lock);
	}
	rename_record(r, source);
	inode_ref(source);
	r->renamed[0] = source;
	if (r->flags & RENAME_EXCHANGE) {
		r->renamed[1] = r->source->inode;
		inode_ref(r->renamed[1]);
	}
	return 0;
}

static int rename_names(struct renaming *r)
{
	struct fs *fs = r->fs;
	brlock_token token = NULL;
	int error;

	if (r->from == r->to)
		token = brlock_read_lock(&fs->topology);
	else
		brlock_write_lock(&fs->topology);
	error = whiteout_make(r);
	if (!error) {
		dirs_lock(r->from, r->to);
		error = rename_locked(r);
		dirs_unlock(r->from, r->to);
	}
	if (r->from == r->to)
		brlock_read_unlock(&fs->topology, token);
	else
		brlock_write_unlock(&fs->topology);
	if (r->whiteout) /* the names stayed as they were */
		inode_put(fs, r->whiteout, 1);
	return error;
}

/* Checks before the bytes are moved; rename_check repeats the checks afterwards. */
static int rename_check_volume(struct renaming *r, struct inode *source)
{
	struct inode *target;
	int error = 0;

	/* -EXDEV for a directory, because its files have memory on the old volume; for a file with
	 * other names on the old volume; and for an exchange, because two files cannot be moved at
	 * once. */
	if (S_ISDIR(source->mode) || source->nlink > 1 || r->flags & RENAME_EXCHANGE)
		return -EXDEV;
	if (tree_lookup(r->fs, r->to, r->new_name, &target) == 0) {
		if (r->flags & RENAME_NOREPLACE)
			error = -EEXIST;
		else if (S_ISDIR(target->mode))
			error = -EISDIR;
		inode_put(r->fs, target, 1);
	}
	return error;
}

/* Moves the bytes, then the names, and then makes the copy the file's memory. A failure at any step
 * leaves the file unchanged. */
static int rename_across(struct renaming *r, struct copier *copier, struct file_move **old_memory)
{
	struct inode *source;
	int error = tree_lookup(r->fs, r->from, r->name, &source);

	if (error)
		return error;
	error = rename_check_volume(r, source);
	if (!error && !S_ISREG(source->mode)) {
		r->moving = source;
		error = rename_names(r);
	} else if (!error) {
		struct inode_call call;

		inode_call_init(&call, r->fs, source, copier);
		call.call.limits = quota_limits_in(r->fs, r->to);
		error = inode_require_bytes(r->fs, source);
		inode_move_begin(source);
		if (!error)
			error =
			    file_move_begin(source->file, &call.call, r->to->volume, old_memory);
		if (!error) {
			r->moving = source;
			r->move = *old_memory;
			error = rename_names(r);
			file_move_end(*old_memory, error ? FILE_MOVE_ABORT : FILE_MOVE_COMMIT);
			/* A program that mapped the object of host/ may have written without the
			 * daemon's knowledge. */
			inode_notify_unseen_stores(r->fs, source);
			if (error) {
				file_move_free(*old_memory);
				*old_memory = NULL;
			}
		}
		inode_move_end(source);
	}
	inode_put(r->fs, source, 1);
	return error;
}

/* Under no lock. */
static void rename_tell_watch(struct renaming *r)
{
	for (unsigned i = 0; i < 2; i++) {
		if (!r->renamed[i])
			continue;
		if (r->replaced)
			inode_notify_replaced(r->fs, r->renamed[i], r->replaced, r->to,
					      r->new_name);
		else
			inode_notify_changed(r->fs, r->renamed[i]);
		inode_put(r->fs, r->renamed[i], 1);
	}
}

static bool rename_flags_are_known(unsigned flags)
{
	const unsigned alone = RENAME_EXCHANGE, other_flags = RENAME_NOREPLACE | RENAME_WHITEOUT;

	return flags & alone ? flags == alone : !(flags & ~other_flags);
}

static int rename_check_request(const struct fs *fs, const struct tree_rename *rename)
{
	int error = tree_writable(rename->from, rename->name);

	if (!error)
		error = tree_writable(rename->to, rename->new_name);
	if (!error && !rename_flags_are_known(rename->flags))
		error = -EINVAL;
	return error ? error : journal_room(fs->journal);
}

int tree_rename(struct fs *fs, struct copier *copier, const struct tree_rename *rename,
		struct file_move **old_memory)
{
	struct renaming r = {.fs = fs,
			     .from = rename->from,
			     .to = rename->to,
			     .name = rename->name,
			     .new_name = rename->new_name,
			     .flags = rename->flags,
			     .uid = rename->uid,
			     .gid = rename->gid};
	int error = rename_check_request(fs, rename);

	if (error)
		return error;
	error = r.from->volume == r.to->volume ? rename_names(&r)
					       : rename_across(&r, copier, old_memory);
	if (!error)
		rename_tell_watch(&r);
	if (error || !r.replaced)
		return error;
	tree_name_removed(fs, r.replaced);
	inode_put(fs, r.replaced, 1);
	return 0;
}
