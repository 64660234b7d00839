/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* Saves one inode: composes the record, writes the bytes and puts both in place. */
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "common/cleanup.h"
#include "common/log.h"
#include "fs/core/mode.h"
#include "fs/spool/internal.h"
#include "fs/spool/note.h"
#include "fs/tree/dir.h"
#include "fs/tree/quota.h"
#include "fs/tree/record.h"
#include "fs/tree/tree.h"
#include "fs/tree/xattr.h"

/* How often a save starts again while other threads rename the directories above. */
#define TRIES 8

bool spool_wanted(struct inode *inode)
{
	struct attr_values attrs = atomic_load(&inode->attrs);

	return attrs.persist == PERSIST_DISK && inode->volume && inode->nlink;
}

struct spool_file *spool_file_of(struct inode *inode)
{
	struct spool_file *file = inode_spool_file(inode);

	if (file)
		return file;
	struct spool_file *new_file = calloc(1, sizeof(*new_file));
	void *existing_file = NULL;

	if (!new_file)
		return NULL;
	pthread_mutex_init(&new_file->lock, NULL);
	brlock_init(&new_file->marks_lock);
	if (atomic_compare_exchange_strong(&inode->states[INODE_SPOOL], &existing_file, new_file))
		return new_file;
	brlock_destroy(&new_file->marks_lock);
	pthread_mutex_destroy(&new_file->lock);
	free(new_file);
	return existing_file;
}

void spool_free(struct inode *inode)
{
	struct spool_file *file = atomic_exchange(&inode->states[INODE_SPOOL], NULL);

	if (!file)
		return;
	spool_record_free(&file->saved);
	free(file->marks.words);
	brlock_destroy(&file->marks_lock);
	pthread_mutex_destroy(&file->lock);
	free(file);
}

void spool_file_set(struct spool_file *file, struct spool_record *record)
{
	file->hash_but_times = spool_record_hash(record, SPOOL_BUT_TIMES);
	file->hash = spool_record_hash(record, SPOOL_TIMES);
	spool_record_free(&file->saved);
	file->saved = *record;
	*record = (struct spool_record){0};
	atomic_store(&file->id, file->saved.id);
}

/* --- composing the record; the caller holds file->lock */

static int copy_xattrs(struct inode *inode, struct spool_record *record)
{
	const struct xattr *xattr = NULL;
	struct xattr_entry entry;
	int rc = 0;

	while (rc == 0 && (xattr = xattr_next(inode->xattrs, xattr, &entry)))
		if (!xattr_is_ours(entry.name))
			rc = xattr_set(&record->xattrs, entry.name, entry.value, entry.size, 0);
	return rc;
}

/* Sorted, so that another order of the inode's links is not a change. */
static int name_by_place(const void *first, const void *second)
{
	const struct spool_name *a = first, *b = second;

	if (a->dir != b->dir)
		return a->dir < b->dir ? -1 : 1;
	return strcmp(a->name, b->name);
}

static int copy_names(struct fs *fs, struct inode *inode, struct spool_record *record)
{
	int rc = 0;

	for (struct dentry *entry = inode->links; rc == 0 && entry; entry = entry->next_link) {
		struct spool_file *parent = inode_spool_file(entry->parent);
		uint64_t dir = parent ? atomic_load(&parent->id) : 0;

		/* The directory was created after the save of the directories began. */
		if (entry->parent != fs->root && !dir)
			return -EAGAIN;
		rc = spool_record_add_name(record, dir, entry->name);
	}
	if (record->n_names)
		qsort(record->names, record->n_names, sizeof(*record->names), name_by_place);
	return rc;
}

static int copy_special(struct inode *inode, struct spool_record *record)
{
	const struct volume *volume = inode->volume;

	if (S_ISLNK(inode->mode)) {
		record->target = strdup(inode->target);
		return record->target ? 0 : -ENOMEM;
	}
	if (mode_is_device(inode->mode))
		record->rdev = inode->rdev;
	if (!S_ISDIR(inode->mode))
		return 0;
	record->max_bytes = atomic_load(&inode->dir->max_bytes);
	record->max_files = atomic_load(&inode->dir->max_files);
	if (volume->device && volume->root_ino == inode->ino) {
		record->device = strdup(volume->device->uuid);
		return record->device ? 0 : -ENOMEM;
	}
	return 0;
}

static int copy_inode(struct fs *fs, struct inode *inode, struct spool_file *file,
		      struct spool_record *record)
{
	*record = (struct spool_record){
	    .id = atomic_load(&file->id),
	    .version = file->saved.version + 1,
	    .max_bytes = UINT64_MAX,
	    .max_files = UINT64_MAX,
	};
	scoped_lock(&inode->lock);
	inode_update_mtime(inode);
	record->mode = inode->mode;
	record->uid = inode->uid;
	record->gid = inode->gid;
	record->atime = inode->fields->atime;
	record->mtime = inode->fields->mtime;
	record->ctime = inode->fields->ctime;
	record->btime = inode->btime;
	record->attrs = atomic_load(&inode->attrs);
	int rc = copy_names(fs, inode, record);

	if (rc == 0)
		rc = copy_xattrs(inode, record);
	return rc ? rc : copy_special(inode, record);
}

/* Copies the content of the saved record, for bytes that are in the spool alone or not to be
 * saved. */
static int copy_content(const struct spool_file *file, struct spool_record *record)
{
	int rc = 0;

	record->size = file->saved.size;
	for (size_t i = 0; rc == 0 && i < file->saved.n_runs; i++)
		rc = spool_record_add_run(record, file->saved.runs[i].from,
					  file->saved.runs[i].bytes);
	if (rc == 0)
		rc = spool_record_find_blocks(record);
	for (size_t i = 0; rc == 0 && i < record->n_blocks; i++)
		record->blocks[i].hash = file->saved.blocks[i].hash;
	return rc;
}

/* --- to the disk; the caller holds file->lock */

static int file_commit_data(struct spool *spool, struct spool_file *file)
{
	int rc = file->staged ? spool_commit(spool, &file->saved) : 0;

	if (rc)
		return rc;
	file->staged = false;
	for (size_t i = 0; i < file->saved.n_blocks; i++)
		file->saved.blocks[i].is_fresh = false;
	return 0;
}

/* Finishes an earlier save that failed half-way. */
static int file_finish(struct spool *spool, struct spool_file *file)
{
	bool placed;
	int rc = file->unsure ? spool_record_put(spool, &file->saved, &placed) : 0;

	if (rc)
		return rc;
	bool late = file->staged;

	file->unsure = false;
	rc = file_commit_data(spool, file);
	if (rc == 0 && late)
		spool_links_put(spool, &file->saved);
	return rc;
}

/* The new record is in place: takes the record over and changes the data. */
static void file_commit(struct spool *spool, struct spool_file *file, struct spool_record *record,
			bool staged)
{
	struct spool_record old_record = file->saved;

	spool_links_leave(spool, &old_record, record);
	file->saved = (struct spool_record){0};
	spool_file_set(file, record);
	file->staged = staged;
	atomic_fetch_add(&spool->saves, 1);
	/* After a crash the record may be the old one again, so the data must not change yet. */
	int rc = file->unsure ? 0 : file_commit_data(spool, file);

	if (rc)
		log_warn("spool: data/%" PRIu64 ": %s: the new bytes are complete in the staged "
			 "file; the next save tries again",
			 file->saved.id, strerror(-rc));
	spool_step(spool);
	spool_links_put(spool, &file->saved);
	spool_step(spool);
	spool_record_free(&old_record);
}

static bool record_is_saved(const struct inode *inode, const struct spool_file *file,
			    const struct spool_record *record, enum spool_extent extent)
{
	bool times = extent == SPOOL_WITH_BYTES || !S_ISDIR(inode->mode);

	if (!file->saved.version)
		return false;
	return times ? spool_record_hash(record, SPOOL_TIMES) == file->hash
		     : spool_record_hash(record, SPOOL_BUT_TIMES) == file->hash_but_times;
}

static int record_save(struct fs *fs, struct inode *inode, struct spool_file *file,
		       enum spool_extent extent, struct spool_saved *saved)
{
	struct spool *spool = spool_of(fs);
	bool bytes = S_ISREG(inode->mode) && extent == SPOOL_WITH_BYTES &&
		     atomic_load(&inode->residency) == INODE_RESIDENT;
	struct spool_staged staged = {0};
	struct spool_record record;
	bool placed = false;
	int rc = file_finish(spool, file);

	if (rc)
		return rc;
	rc = copy_inode(fs, inode, file, &record);
	if (rc || record.n_names == 0) {
		spool_record_free(&record);
		return rc;
	}
	if (bytes)
		rc = spool_write_blocks(fs, inode, file, &record, &staged);
	else if (S_ISREG(inode->mode))
		rc = copy_content(file, &record);
	if (rc == 0 && !staged.exists && record_is_saved(inode, file, &record, extent)) {
		spool_record_free(&record);
		return 0;
	}
	record.sequence = atomic_fetch_add(&spool->sequence, 1) + 1;
	if (rc == 0)
		rc = spool_record_put(spool, &record, &placed);
	if (rc && !placed) {
		if (staged.exists)
			spool_unstage(spool, &record);
		spool_record_free(&record);
		atomic_store(&file->unknown, true);
		return rc;
	}
	saved->files++;
	saved->bytes += staged.bytes;
	atomic_fetch_add(&spool->saved_bytes, staged.bytes);
	file->unsure = rc;
	file_commit(spool, file, &record, staged.exists);
	return rc;
}

/* --- with the directories above */

static int file_give_id(struct fs *fs, struct inode *inode, struct spool_file *file)
{
	if (atomic_load(&file->id))
		return 0;
	uint64_t id = atomic_fetch_add(&spool_of(fs)->last_id, 1) + 1;
	int rc = spool_note(fs, inode, id, INODE_RESIDENT);

	if (rc == 0)
		atomic_store(&file->id, id);
	return rc;
}

static int inode_save(struct fs *fs, struct inode *inode, enum spool_extent extent,
		      struct spool_saved *saved)
{
	struct spool_file *file = spool_file_of(inode);

	if (!file)
		return -ENOMEM;
	scoped_lock(&file->lock);
	if (atomic_load(&inode->residency) == INODE_DAMAGED)
		return 0; /* the damaged copy stays for the administrator */
	if (extent == SPOOL_BYTES_ONCE)
		extent = file->saved.version ? SPOOL_NAMES_ALONE : SPOOL_WITH_BYTES;
	if (!file->saved.version && extent == SPOOL_NAMES_ALONE && S_ISREG(inode->mode))
		return 0; /* a file gets its first record only with its bytes */
	int rc = file_give_id(fs, inode, file);

	return rc ? rc : record_save(fs, inode, file, extent, saved);
}

/* Collects the directories from one name's parent up to the top, each with a reference: their
 * number, or -ENAMETOOLONG if there are more than DEPTH_MAX. */
#define DEPTH_MAX 2048

static int chain_of(struct fs *fs, struct inode *inode, unsigned name, struct inode **chain)
{
	int depth = 0;
	brlock_token token = brlock_read_lock(&fs->topology);

	pthread_mutex_lock(&inode->lock);
	struct dentry *entry = inode->links;

	while (entry && name--)
		entry = entry->next_link;
	struct inode *dir = entry ? entry->parent : NULL;

	pthread_mutex_unlock(&inode->lock);
	for (; dir && dir != fs->root && depth < DEPTH_MAX; dir = dir->dir->parent) {
		inode_ref(dir);
		chain[depth++] = dir;
	}
	brlock_read_unlock(&fs->topology, token);
	return dir && dir != fs->root ? -ENAMETOOLONG : depth;
}

static int chain_save(struct fs *fs, struct inode *inode, unsigned name, struct spool_saved *saved)
{
	AUTO_FREE struct inode **chain = calloc(DEPTH_MAX, sizeof(struct inode *));
	int depth = chain ? chain_of(fs, inode, name, chain) : -ENOMEM, rc = 0;

	for (int i = depth - 1; i >= 0; i--) {
		if (rc == 0)
			rc = inode_save(fs, chain[i], SPOOL_NAMES_ALONE, saved);
		inode_put(fs, chain[i], 1);
	}
	return depth < 0 ? depth : rc;
}

static unsigned inode_count_names(struct inode *inode)
{
	scoped_lock(&inode->lock);
	unsigned names = 0;

	for (const struct dentry *entry = inode->links; entry; entry = entry->next_link)
		names++;
	return names;
}

int spool_save_one(struct fs *fs, struct inode *inode, enum spool_extent extent,
		   struct spool_saved *saved)
{
	struct spool_saved ancestors = {0};
	int rc = -EAGAIN;

	for (int attempt = 0; rc == -EAGAIN && attempt < TRIES; attempt++) {
		rc = 0;
		for (unsigned i = inode_count_names(inode); rc == 0 && i; i--)
			rc = chain_save(fs, inode, i - 1, &ancestors);
		if (rc == 0)
			rc = inode_save(fs, inode, extent, saved);
	}
	return rc;
}

int spool_drop(struct fs *fs, struct inode *inode)
{
	struct spool_file *file = inode_spool_file(inode);

	if (!file)
		return 0;
	scoped_lock(&file->lock);
	uint64_t id = atomic_load(&file->id);

	spool_links_remove(spool_of(fs), &file->saved);
	int rc = id ? spool_remove(spool_of(fs), id) : 0;

	if (rc)
		return rc;
	spool_record_free(&file->saved);
	file->staged = file->unsure = false;
	atomic_store(&file->id, 0);
	atomic_store(&file->unknown, true);
	return 0;
}
