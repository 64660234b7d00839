/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
#include "fs/tree/record.h"

#include <string.h>

#include "fs/core/mode.h"
#include "fs/core/worker.h"
#include "fs/file/core/record.h"
#include "fs/tree/dir.h"
#include "fs/tree/inode.h"
#include "fs/tree/xattr.h"

#define NO_VOLUME UINT32_MAX

/* Names recorded while a directory is locked: a tenth of a millisecond. */
#define NAMES_AT_ONCE 512

static struct journal_piece record_piece(enum journal_kind kind, const void *fixed, size_t bytes)
{
	return (struct journal_piece){.kind = kind, .bytes = (uint32_t)bytes, .fixed = fixed};
}

static void record_append(struct fs *fs, enum journal_kind kind, const void *fixed, size_t bytes)
{
	struct journal_piece piece = record_piece(kind, fixed, bytes);

	journal_append(fs->journal, &piece, 1, NULL);
}

/* completed: bits of enum journal_completed for the calling thread's request, which led to ino; 0:
 * none. */
static void record_append_caused(struct fs *fs, const struct journal_piece *pieces, unsigned n,
				 unsigned completed, uint64_t ino)
{
	struct journal_cause cause = {
	    .request = worker_request(), .completed = completed, .ino = ino};

	journal_append(fs->journal, pieces, n, completed ? &cause : NULL);
}

static uint32_t volume_index(const struct inode *inode)
{
	const struct volume *volume = inode->volume;

	return volume ? volume->index : NO_VOLUME;
}

static uint64_t quota_dir_ino(const struct inode *inode)
{
	if (inode->quota_dir)
		return inode->quota_dir->ino;
	return S_ISDIR(inode->mode) && inode->dir->parent ? inode->dir->parent->ino : 0;
}

static struct journal_inode inode_image(const struct inode *inode)
{
	struct journal_inode image = {
	    .ino = inode->ino,
	    .quota_dir = quota_dir_ino(inode),
	    .btime = inode->btime,
	    .attrs = atomic_load(&inode->attrs),
	    .mode = inode->mode,
	    .uid = inode->uid,
	    .gid = inode->gid,
	    .volume = volume_index(inode),
	    .flags = (inode->charges.counted ? JOURNAL_IS_COUNTED : 0) |
		     (inode->uses.keep_data ? JOURNAL_KEEPS_DATA : 0),
	};

	if (S_ISLNK(inode->mode) && inode->target)
		image.target_bytes = (uint32_t)strlen(inode->target) + 1;
	else if (mode_is_device(inode->mode))
		image.rdev = (uint32_t)inode->rdev;
	return image;
}

static struct journal_piece inode_piece(const struct inode *inode,
					const struct journal_inode *image)
{
	struct journal_piece piece = record_piece(JOURNAL_INODE, image, sizeof(*image));

	if (S_ISLNK(inode->mode) && image->target_bytes) {
		piece.tail[0].data = inode->target;
		piece.tail[0].bytes = image->target_bytes;
	}
	return piece;
}

static struct journal_name name_image(const struct dentry *entry)
{
	return (struct journal_name){
	    .dir = entry->parent->ino,
	    .ino = entry->inode->ino,
	    .cookie = entry->cookie,
	    .name_bytes = entry->length,
	    .volume = NO_VOLUME,
	};
}

static struct journal_piece name_piece(enum journal_kind kind, const struct journal_name *image,
				       const char *name)
{
	struct journal_piece piece = record_piece(kind, image, sizeof(*image));

	piece.tail[0].data = name;
	piece.tail[0].bytes = image->name_bytes;
	return piece;
}

void record_create(struct fs *fs, struct inode *inode, const struct dentry *entry)
{
	if (!fs->journal)
		return;
	struct journal_inode image = inode_image(inode);
	struct journal_piece pieces[2] = {inode_piece(inode, &image)};
	struct journal_name name;

	if (entry) {
		name = name_image(entry);
		pieces[1] = name_piece(JOURNAL_NAME, &name, entry->name);
	}
	/* From here on a checkpoint that is running records the inode as well. */
	atomic_store_explicit(&inode->recorded, true, memory_order_release);
	record_append_caused(fs, pieces, entry ? 2 : 1, JOURNAL_COMPLETED_NAME, inode->ino);
}

static void record_name(struct fs *fs, enum journal_kind kind, unsigned completed,
			const struct dentry *entry)
{
	if (!fs->journal)
		return;
	struct journal_name name = name_image(entry);
	struct journal_piece piece = name_piece(kind, &name, entry->name);

	record_append_caused(fs, &piece, 1, completed, entry->inode->ino);
}

void record_link(struct fs *fs, const struct dentry *entry)
{
	record_name(fs, JOURNAL_NAME, JOURNAL_COMPLETED_NAME, entry);
}

void record_unlink(struct fs *fs, const struct dentry *entry)
{
	record_name(fs, JOURNAL_NAME_GONE, JOURNAL_COMPLETED_NAME, entry);
}

void record_quota_dir(struct fs *fs, const struct inode *inode)
{
	struct journal_quota_dir quota_dir = {.ino = inode->ino, .quota_dir = quota_dir_ino(inode)};

	record_append(fs, JOURNAL_QUOTA_DIR, &quota_dir, sizeof(quota_dir));
}

void record_gone(struct fs *fs, const struct inode *inode)
{
	struct journal_ino record = {.ino = inode->ino};

	if (atomic_load_explicit(&inode->recorded, memory_order_relaxed))
		record_append(fs, JOURNAL_GONE, &record, sizeof(record));
}

void record_rename_name(struct record_rename *rename, const struct dentry *entry)
{
	struct journal_name *name = &rename->names[rename->n_names++];

	*name = name_image(entry);
	name->volume = volume_index(entry->inode);
	rename->pieces[rename->n++] = name_piece(JOURNAL_NAME, name, entry->name);
}

void record_rename_whiteout(struct record_rename *rename, const struct dentry *entry)
{
	struct inode *inode = entry->inode;

	rename->whiteout = inode_image(inode);
	rename->pieces[rename->n++] = inode_piece(inode, &rename->whiteout);
	record_rename_name(rename, entry);
	/* From here on a checkpoint that is running records the inode as well. */
	atomic_store_explicit(&inode->recorded, true, memory_order_release);
}

void record_rename_gone(struct record_rename *rename, const struct inode *dir, const char *name,
			const struct inode *inode)
{
	struct journal_name *image = &rename->names[rename->n_names++];

	*image = (struct journal_name){.dir = dir->ino,
				       .ino = inode->ino,
				       .name_bytes = (uint32_t)strlen(name),
				       .volume = NO_VOLUME};
	rename->pieces[rename->n++] = name_piece(JOURNAL_NAME_GONE, image, name);
}

void record_rename_quota_dir(struct record_rename *rename, const struct inode *inode)
{
	struct journal_quota_dir *quota_dir = &rename->quota_dirs[rename->n_quota_dirs++];

	*quota_dir =
	    (struct journal_quota_dir){.ino = inode->ino, .quota_dir = quota_dir_ino(inode)};
	rename->pieces[rename->n++] =
	    record_piece(JOURNAL_QUOTA_DIR, quota_dir, sizeof(*quota_dir));
}

static struct journal_open open_image(const struct inode *inode)
{
	return (struct journal_open){
	    .ino = inode->ino,
	    .opens = inode->uses.opens,
	    .writers = inode->uses.writers,
	    .leases = inode->uses.leases,
	    .keep_data = inode->uses.keep_data,
	    .backing_id = S_ISREG(inode->mode) ? *file_backing_id(inode->file) : 0,
	};
}

void record_rename_replaced(struct record_rename *rename, const struct inode *inode)
{
	rename->replaced.ino = inode->ino;
	rename->pieces[rename->n++] =
	    record_piece(JOURNAL_KEEP_DATA, &rename->replaced, sizeof(rename->replaced));
}

void record_rename_moved(struct record_rename *rename, const struct file_move *move)
{
	file_move_piece(move, &rename->pieces[rename->n]);
	rename->n += rename->pieces[rename->n].kind != 0;
}

void record_rename(struct fs *fs, const struct record_rename *rename)
{
	record_append_caused(fs, rename->pieces, rename->n, JOURNAL_COMPLETED_NAME, 0);
}

void record_owner(struct fs *fs, const struct inode *inode)
{
	struct journal_owner owner = {
	    .ino = inode->ino, .mode = inode->mode, .uid = inode->uid, .gid = inode->gid};

	record_append(fs, JOURNAL_OWNER, &owner, sizeof(owner));
}

void record_values(struct fs *fs, const struct inode *inode)
{
	struct journal_values values = {.ino = inode->ino, .attrs = atomic_load(&inode->attrs)};
	struct journal_piece piece = record_piece(JOURNAL_VALUES, &values, sizeof(values));

	record_append_caused(fs, &piece, 1, JOURNAL_COMPLETED_NAME, inode->ino);
}

static void record_quota_as(struct fs *fs, unsigned completed, const struct inode *inode)
{
	struct journal_quota quota = {.ino = inode->ino,
				      .max_bytes = inode->dir->max_bytes,
				      .max_files = inode->dir->max_files};
	struct journal_piece piece = record_piece(JOURNAL_QUOTA, &quota, sizeof(quota));

	record_append_caused(fs, &piece, 1, completed, inode->ino);
}

void record_quota(struct fs *fs, const struct inode *inode)
{
	record_quota_as(fs, JOURNAL_COMPLETED_NAME, inode);
}

static void record_xattr_as(struct fs *fs, enum journal_kind kind, unsigned completed,
			    const struct inode *inode, const char *name, const void *value,
			    size_t size)
{
	struct journal_xattr xattr = {.ino = inode->ino,
				      .name_bytes = (uint32_t)strlen(name) + 1,
				      .value_bytes = (uint32_t)size};
	struct journal_piece piece = record_piece(kind, &xattr, sizeof(xattr));

	piece.tail[0].data = name;
	piece.tail[0].bytes = xattr.name_bytes;
	piece.tail[1].data = value;
	piece.tail[1].bytes = xattr.value_bytes;
	record_append_caused(fs, &piece, 1, completed, inode->ino);
}

void record_xattr(struct fs *fs, const struct inode *inode, const char *name, const void *value,
		  size_t size)
{
	record_xattr_as(fs, JOURNAL_XATTR, JOURNAL_COMPLETED_NAME, inode, name, value, size);
}

void record_xattr_gone(struct fs *fs, const struct inode *inode, const char *name)
{
	record_xattr_as(fs, JOURNAL_XATTR_GONE, JOURNAL_COMPLETED_NAME, inode, name, NULL, 0);
}

void record_open(struct fs *fs, const struct inode *inode, unsigned completed)
{
	if (!fs->journal)
		return;
	struct journal_open open = open_image(inode);
	struct journal_piece piece = record_piece(JOURNAL_OPEN, &open, sizeof(open));

	record_append_caused(fs, &piece, 1, completed, inode->ino);
}

static void record_dir(struct fs *fs, const struct inode *inode)
{
	struct journal_dir dir = {.ino = inode->ino, .next_cookie = inode->dir->next_cookie};

	record_append(fs, JOURNAL_DIR, &dir, sizeof(dir));
}

/* Locks the directory for a limited number of names at a time. Threads that change the directory in
 * between record their changes themselves. */
static void record_names(struct fs *fs, struct inode *inode)
{
	struct dir *dir = inode->dir;
	uint64_t cookie = DIR_COOKIE_END;
	struct dentry *entry;

	do {
		pthread_rwlock_rdlock(&dir->lock);
		if (cookie == DIR_COOKIE_END)
			record_dir(fs, inode);
		entry = dir_before(dir, cookie);
		for (unsigned n = 0; entry && n < NAMES_AT_ONCE; n++) {
			cookie = entry->cookie;
			record_name(fs, JOURNAL_NAME, 0, entry);
			entry = dir_before(dir, cookie);
		}
		pthread_rwlock_unlock(&dir->lock);
	} while (entry);
}

static void record_inode(struct fs *fs, const struct inode *inode)
{
	struct journal_inode image = inode_image(inode);
	struct journal_open open = open_image(inode);
	struct journal_piece pieces[2] = {inode_piece(inode, &image),
					  record_piece(JOURNAL_OPEN, &open, sizeof(open))};
	const struct xattr *xattr = NULL;
	struct xattr_entry entry;

	/* Most inodes have no handles, leases or keep_data. If an inode had some, the change to
	 * none was recorded at the time, so no record is needed. */
	bool plain = !open.opens && !open.leases && !open.keep_data && !open.backing_id;

	journal_append(fs->journal, pieces, plain ? 1 : 2, NULL);
	while ((xattr = xattr_next(inode->xattrs, xattr, &entry)))
		record_xattr_as(fs, JOURNAL_XATTR, 0, inode, entry.name, entry.value, entry.size);
	if (S_ISDIR(inode->mode) &&
	    (inode->dir->max_bytes != UINT64_MAX || inode->dir->max_files != UINT64_MAX))
		record_quota_as(fs, 0, inode);
}

void record_checkpoint(struct fs *fs, struct inode *inode)
{
	if (!fs->journal || !atomic_load_explicit(&inode->recorded, memory_order_acquire))
		return;
	brlock_token token = brlock_read_lock(&fs->topology);

	pthread_mutex_lock(&inode->lock);
	record_inode(fs, inode);
	pthread_mutex_unlock(&inode->lock);
	brlock_read_unlock(&fs->topology, token);
	if (S_ISREG(inode->mode)) {
		struct inode_call call;

		inode_call_init(&call, fs, inode, NULL);
		file_record_all(&call.call, inode->file, &inode->lock);
	} else if (S_ISDIR(inode->mode)) {
		record_names(fs, inode);
	}
}
