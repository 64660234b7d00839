/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* Makes a tree of the records, from the top down. A record in a directory that cannot be reached,
 * or in itself, is placed by its path in the readable tree. */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/cleanup.h"
#include "common/log.h"
#include "common/vector.h"
#include "fs/core/worker.h"
#include "fs/spool/note.h"
#include "fs/spool/scan.h"
#include "fs/tree/dir.h"
#include "fs/tree/owner.h"
#include "fs/tree/record.h"
#include "fs/tree/tree.h"
#include "fs/tree/xattr.h"

struct volume *spool_volume(struct fs *fs, const char *name)
{
	for (unsigned i = 0; i < fs->n_volumes; i++)
		if (strcmp(fs->volumes[i].name, name) == 0)
			return &fs->volumes[i];
	return NULL;
}

/* --- which records are needed: all but directories without a needed entry */

static void found_need(struct spool_restoring *restoring, struct spool_found *found)
{
	while (found && !found->needed) {
		found->needed = true;
		/* A directory has one name; a file may have several, each in another directory. */
		for (size_t i = 1; i < found->record.n_names; i++)
			found_need(restoring,
				   spool_found_at(restoring, found->record.names[i].dir));
		found = found->record.n_names
			    ? spool_found_at(restoring, found->record.names[0].dir)
			    : NULL;
	}
}

static int entry_by_place(const void *first, const void *second)
{
	const struct spool_entry *a = first, *b = second;
	int names = a->dir == b->dir ? strcmp(a->name, b->name) : 0;

	if (a->dir != b->dir)
		return a->dir < b->dir ? -1 : 1;
	if (names)
		return names;
	return a->sequence > b->sequence ? -1 : a->sequence < b->sequence;
}

int spool_list(struct spool_restoring *restoring)
{
	size_t count = 0;

	for (size_t i = 0; i < restoring->count; i++) {
		struct spool_found *found = &restoring->found[i];

		if (found->record.id &&
		    (!S_ISDIR(found->record.mode) || found->record.attrs.persist == PERSIST_DISK ||
		     !found->record.names[0].dir))
			found_need(restoring, found);
		count += found->record.n_names;
	}
	restoring->entries = calloc(count + 1, sizeof(*restoring->entries));
	if (!restoring->entries)
		return -ENOMEM;
	for (size_t i = 0; i < restoring->count; i++) {
		struct spool_found *found = &restoring->found[i];

		for (size_t n = 0; n < found->record.n_names; n++)
			restoring->entries[restoring->n_entries++] = (struct spool_entry){
			    .dir = found->record.names[n].dir,
			    .sequence = found->record.sequence,
			    .name = found->record.names[n].name,
			    .found = found,
			};
	}
	qsort(restoring->entries, restoring->n_entries, sizeof(*restoring->entries),
	      entry_by_place);
	return 0;
}

/* --- one inode */

static int inode_put_xattrs(struct fs *fs, struct inode *inode, const struct spool_record *record)
{
	const struct xattr *xattr = NULL;
	struct xattr_entry entry;
	int rc = 0;

	while (rc == 0 && (xattr = xattr_next(record->xattrs, xattr, &entry))) {
		if (xattr_get(inode->xattrs, entry.name, NULL, 0) < 0)
			rc = xattr_store(fs, inode, entry.name, entry.value, entry.size, 0,
					 OWNER_ALWAYS);
	}
	return rc;
}

/* Sets all but times and quotas: later steps would change the times and be limited by the quotas.
 */
static int inode_set_values(struct fs *fs, struct inode *inode, const struct spool_record *record)
{
	bool is_top = inode->ino == inode->volume->root_ino;

	scoped_lock(&inode->lock);
	int error = is_top ? 0 : owner_change(fs, inode, record->uid);

	if (error)
		return error;
	atomic_store(&inode->attrs, record->attrs);
	if (!is_top) {
		inode->mode = record->mode;
		inode->gid = record->gid;
	}
	inode->btime = record->btime;
	return inode_put_xattrs(fs, inode, record);
}

static int inode_set_size(struct fs *fs, struct inode *inode, uint64_t size)
{
	struct inode_call call;

	if (!S_ISREG(inode->mode) || !size)
		return 0;
	inode_call_init(&call, fs, inode, worker_copier(fs));
	call.overdraft = true;
	return file_truncate(inode->file, &call.call, size);
}

static int inode_set_record(struct spool_restoring *restoring, struct spool_found *found,
			    struct inode *inode)
{
	struct fs *fs = restoring->fs;
	bool away = S_ISREG(inode->mode) && found->record.n_blocks;
	int rc = inode_set_values(fs, inode, &found->record);

	if (rc == 0)
		rc = inode_set_size(fs, inode, found->record.size);
	/* The note comes last: a daemon that finds the note finds the rest in the journal, too. */
	if (rc == 0 && fs->journal)
		record_checkpoint(fs, inode);
	if (rc == 0)
		rc = spool_note(fs, inode, found->id, away ? INODE_AWAY : INODE_RESIDENT);
	if (rc == 0)
		rc = spool_attach(restoring, found, inode, away ? INODE_AWAY : INODE_RESIDENT);
	if (rc == 0)
		spool_links_put(restoring->spool, &inode_spool_file(inode)->saved);
	restoring->files += S_ISREG(inode->mode);
	return rc;
}

/* An inode that a killed daemon created from this record without a note. */
static int inode_take_half_made(struct spool_restoring *restoring, struct inode *dir,
				const char *name, const struct spool_found *found,
				struct inode **inode)
{
	int rc = tree_lookup(restoring->fs, dir, name, inode);

	if (rc)
		return rc;
	if (inode_spool_file(*inode) ||
	    ((*inode)->mode & S_IFMT) != (found->record.mode & S_IFMT)) {
		inode_put(restoring->fs, *inode, 1);
		return -EEXIST;
	}
	return 0;
}

static int inode_make(struct spool_restoring *restoring, struct inode *dir, const char *name,
		      struct spool_found *found)
{
	/* Root's for a moment: the owner may have had a higher limit before. */
	struct tree_new params = {.mode = found->record.mode,
				  .uid = 0,
				  .gid = found->record.gid,
				  .target = found->record.target,
				  .rdev = found->record.rdev};
	struct inode *inode;
	int rc = tree_create(restoring->fs, dir, name, &params, &inode);

	if (rc == -EEXIST)
		rc = inode_take_half_made(restoring, dir, name, found, &inode);
	if (rc)
		return rc;
	rc = inode_set_record(restoring, found, inode);
	inode_put(restoring->fs, inode, 1);
	return rc;
}

/* Adds a further name, unless a killed daemon added the name already. */
static int inode_add_name(struct spool_restoring *restoring, struct inode *dir, const char *name,
			  struct spool_found *found)
{
	struct fs *fs = restoring->fs;
	struct inode *existing_inode;

	if (tree_lookup(fs, dir, name, &existing_inode) == 0) {
		inode_put(fs, existing_inode, 1);
		return existing_inode == found->inode ? 0 : -EEXIST;
	}
	int rc = tree_link(fs, found->inode, dir, name);

	if (rc == 0)
		inode_put(fs, found->inode, 1);
	return rc;
}

static int found_put_at(struct spool_restoring *restoring, struct inode *dir, const char *name,
			struct spool_found *found)
{
	int rc = found->inode ? inode_add_name(restoring, dir, name, found)
			      : inode_make(restoring, dir, name, found);

	if (rc == 0 || rc == -ENOMEM || rc == -ENOSPC)
		return rc;
	log_warn("spool: record %" PRIu64 ": cannot have the name '%s': %s", found->id, name,
		 strerror(-rc));
	return 0;
}

/* --- the tree */

static size_t entry_first(const struct spool_restoring *restoring, uint64_t dir)
{
	return vector_search(i, restoring->n_entries, restoring->entries[i].dir < dir);
}

/* The top directory of a volume exists already; owner and mode are the mount's. */
static int entry_place_top(struct spool_restoring *restoring, struct spool_entry *entry)
{
	struct spool_found *found = entry->found;
	struct volume *volume = spool_volume(restoring->fs, entry->name);

	if (!S_ISDIR(found->record.mode))
		return 0;
	found->reached = true;
	if (!volume || found->inode)
		return 0;
	if (found->record.device && volume->device &&
	    strcmp(found->record.device, volume->device->uuid) != 0)
		log_warn("spool: %s was %s when its files were saved and is %s now: the files "
			 "are brought back to the new GPU",
			 volume->name, found->record.device, volume->device->uuid);
	return inode_set_record(restoring, found, inode_find(restoring->fs, volume->root_ino));
}

static int entry_place(struct spool_restoring *restoring, struct spool_entry *entry,
		       struct inode *dir)
{
	struct spool_found *found = entry->found;

	if (!found->needed)
		return 0;
	if (dir)
		return found_put_at(restoring, dir, entry->name, found);
	found->reached = true; /* the file's GPU is not in this mount */
	restoring->elsewhere += S_ISREG(found->record.mode);
	return 0;
}

/* Places the entries of one directory. If several records claim a name, the newest one wins. */
static int dir_place_entries(struct spool_restoring *restoring, const struct spool_found *dir,
			     struct spool_found **queue, size_t *queued)
{
	uint64_t id = dir ? dir->id : 0;
	const char *last = NULL;
	int rc = 0;

	for (size_t i = entry_first(restoring, id);
	     rc == 0 && i < restoring->n_entries && restoring->entries[i].dir == id; i++) {
		struct spool_entry *entry = &restoring->entries[i];
		bool is_taken = last && strcmp(last, entry->name) == 0;

		last = entry->name;
		if (is_taken)
			continue;
		/* The name may move with the record into the inode's saved record, but stays
		 * allocated. */
		rc = dir ? entry_place(restoring, entry, dir->inode)
			 : entry_place_top(restoring, entry);
		if (rc == 0 && entry->found->reached && S_ISDIR(entry->found->mode))
			queue[(*queued)++] = entry->found;
	}
	return rc;
}

static int tree_place(struct spool_restoring *restoring)
{
	AUTO_FREE struct spool_found **queue =
	    calloc(restoring->count + 1, sizeof(struct spool_found *));
	size_t queued = 0, at = 0;
	int rc = queue ? dir_place_entries(restoring, NULL, queue, &queued) : -ENOMEM;

	while (rc == 0 && at < queued) {
		rc = dir_place_entries(restoring, queue[at], queue, &queued);
		at++;
	}
	return rc;
}

/* A newer record has the name: the file was renamed or replaced when the last daemon was killed.
 * No saved file is dropped, so the older file gets the name "NAME~ID". */
static int entry_place_displaced(struct spool_restoring *restoring, struct spool_entry *entry)
{
	struct spool_found *found = entry->found, *dir = spool_found_at(restoring, entry->dir);
	char name[NAME_BYTES_MAX + 1], tail[32];

	if (found->reached || !found->needed || !dir || !dir->inode || S_ISDIR(found->record.mode))
		return 0;
	snprintf(tail, sizeof(tail), "~%" PRIu64, found->id);
	snprintf(name, sizeof(name), "%.*s%s", (int)(NAME_BYTES_MAX - strlen(tail)), entry->name,
		 tail);
	log_warn("spool: another file has the name '%s' now: the older file is brought back as "
		 "'%s'",
		 entry->name, name);
	return found_put_at(restoring, dir->inode, name, found);
}

/* --- records that are damaged, or lost their directory: placed by the readable tree */

/* The directory of the path, created if missing; with a reference. */
static int dir_of_path(struct spool_restoring *restoring, char *path, struct inode **dir,
		       const char **last)
{
	struct fs *fs = restoring->fs;
	struct tree_new params = {.mode = S_IFDIR | 0700, .uid = geteuid(), .gid = getegid()};
	struct inode *at = fs->root;
	char *part = path, *slash;
	int rc = 0;

	inode_ref(at);
	for (; rc == 0 && (slash = strchr(part, '/')); part = slash + 1) {
		struct inode *next;

		*slash = 0;
		rc = tree_lookup(fs, at, part, &next);
		if (rc == -ENOENT)
			rc = tree_create(fs, at, part, &params, &next);
		if (rc == 0) {
			inode_put(fs, at, 1);
			at = next;
		}
	}
	if (rc == 0 && at == fs->root)
		rc = -ENOENT;
	if (rc) {
		inode_put(fs, at, 1);
		return rc;
	}
	*dir = at;
	*last = part;
	return 0;
}

/* Creates a file whose every access fails, in place of a damaged record. */
static int inode_make_damaged(struct spool_restoring *restoring, struct inode *dir,
			      const char *name, struct spool_found *found)
{
	struct fs *fs = restoring->fs;
	struct tree_new params = {.mode = S_IFREG | 0600, .uid = geteuid(), .gid = getegid()};
	struct inode *inode;
	int rc = tree_create(fs, dir, name, &params, &inode);

	if (rc)
		return rc;
	pthread_mutex_lock(&inode->lock);
	atomic_store(&inode->attrs,
		     ((struct attr_values){.persist = PERSIST_DISK, .set = 1U << ATTR_PERSIST}));
	pthread_mutex_unlock(&inode->lock);
	rc = spool_attach(restoring, found, inode, INODE_DAMAGED);
	inode_put(fs, inode, 1);
	return rc;
}

static int found_place_by_path(struct spool_restoring *restoring, struct spool_found *found)
{
	const char *known_path = spool_paths_find(&restoring->paths, restoring->spool, found->id);
	AUTO_FREE char *path = known_path ? strdup(known_path) : NULL;
	struct inode *dir;
	const char *name;
	int rc = path ? dir_of_path(restoring, path, &dir, &name) : -ENOENT;

	if (rc == 0) {
		log_warn("spool: '%s': %s is damaged: found by its name in %s", known_path,
			 found->record.id ? "the record of a directory above it" : "its record",
			 restoring->spool->path);
		rc = found->record.id ? found_put_at(restoring, dir, name, found)
				      : inode_make_damaged(restoring, dir, name, found);
		inode_put(restoring->fs, dir, 1);
	}
	if (rc == -ENOMEM || rc == -ENOSPC || found->reached)
		return rc;
	log_error("spool: record %" PRIu64 "%s%s is not brought back: %s", found->id,
		  found->record.n_names ? " of " : "",
		  found->record.n_names ? found->record.names[0].name : "",
		  found->damage	     ? found->damage
		  : found->record.id ? "its directory is missing or damaged"
				     : "the record is damaged");
	atomic_fetch_add(&restoring->spool->damaged, 1);
	return 0;
}

static int rest_place(struct spool_restoring *restoring)
{
	bool looked = false;
	int rc = 0;

	for (size_t i = 0; rc == 0 && i < restoring->n_entries; i++)
		rc = entry_place_displaced(restoring, &restoring->entries[i]);
	for (size_t i = 0; rc == 0 && i < restoring->count; i++) {
		struct spool_found *found = &restoring->found[i];

		if (found->reached || (found->record.id && !found->needed))
			continue;
		if (!looked)
			rc = spool_links_paths(restoring->spool, &restoring->paths);
		looked = true;
		if (rc == 0)
			rc = found_place_by_path(restoring, found);
	}
	return rc;
}

/* --- at the end */

static void found_finish(struct fs *fs, struct spool_found *found)
{
	struct inode *inode = found->inode;
	const struct spool_record *record = &inode_spool_file(inode)->saved;

	pthread_mutex_lock(&inode->lock);
	if (S_ISDIR(inode->mode)) {
		atomic_store(&inode->dir->max_bytes, record->max_bytes);
		atomic_store(&inode->dir->max_files, record->max_files);
	}
	if (record->id) {
		inode_set_mtime(inode, found->mtime);
		inode->fields->atime = found->atime;
		inode->fields->ctime = found->ctime;
	}
	pthread_mutex_unlock(&inode->lock);
	if (fs->journal)
		record_checkpoint(fs, inode);
}

int spool_rebuild(struct spool_restoring *restoring)
{
	int rc = tree_place(restoring);

	if (rc == 0)
		rc = rest_place(restoring);
	for (size_t i = 0; rc == 0 && i < restoring->count; i++) {
		struct spool_found *found = &restoring->found[i];

		if (found->inode)
			found_finish(restoring->fs, found);
		else if (found->record.id && !found->needed)
			rc = spool_remove(restoring->spool, found->id);
	}
	return rc;
}
