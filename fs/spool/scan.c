/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* Finds records and data at mount, checks them, and attaches records to the inodes that a journal
 * restored. */
#include "fs/spool/scan.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/cleanup.h"
#include "common/log.h"
#include "common/number.h"
#include "common/vector.h"
#include "fs/spool/note.h"
#include "fs/tree/inode_table.h"
#include "fs/tree/tree.h"

static int found_by_id(const void *first, const void *second)
{
	const struct spool_found *a = first, *b = second;

	return a->id < b->id ? -1 : a->id > b->id;
}

struct spool_found *spool_found_at(const struct spool_restoring *restoring, uint64_t id)
{
	struct spool_found key = {.id = id};

	if (!restoring->sorted)
		return NULL;
	return bsearch(&key, restoring->found, restoring->sorted, sizeof(key), found_by_id);
}

static void found_sort(struct spool_restoring *restoring)
{
	if (restoring->count)
		qsort(restoring->found, restoring->count, sizeof(*restoring->found), found_by_id);
	restoring->sorted = restoring->count;
}

static struct spool_found *found_add(struct spool_restoring *restoring, uint64_t id)
{
	struct spool_found *entries =
	    vector_grow(restoring->found, restoring->count, sizeof(*entries));

	if (!entries)
		return NULL;
	restoring->found = entries;
	struct spool_found *found = &restoring->found[restoring->count++];

	*found = (struct spool_found){.id = id};
	return found;
}

/* --- records/ */

static int record_scan(struct spool_restoring *restoring, const char *name, uint64_t id)
{
	struct spool_found *found = found_add(restoring, id);
	AUTO_FREE char *text = NULL;
	ssize_t length = found ? spool_record_get(restoring->spool, name, &text) : -ENOMEM;
	const char *reason = "the file cannot be read";
	int rc = length < 0 ? (int)length
			    : spool_record_read(text, (size_t)length, &found->record, &reason);

	if (rc == -ENOMEM)
		return rc;
	if (rc == 0 && found->record.id != id) {
		spool_record_free(&found->record);
		reason = "its id";
		rc = -EUCLEAN;
	}
	if (rc) {
		found->damage = reason;
		log_error("spool: %s/.spool/records/%s: not used: %s", restoring->spool->path, name,
			  reason);
		return 0;
	}
	found->atime = found->record.atime;
	found->mtime = found->record.mtime;
	found->ctime = found->record.ctime;
	found->mode = found->record.mode;
	found->first = found->record.names[0];
	return 0;
}

/* Accepts "17" and "17.3" only as spool_file_name writes them. */
static bool file_name_parse(const char *text, uint64_t *id, uint64_t *version)
{
	char canonical_name[SPOOL_FILE_NAME], first[SPOOL_FILE_NAME];
	const char *dot = strchr(text, '.');

	*version = 0;
	if (strlen(text) >= sizeof(first))
		return false;
	strcpy(first, text);
	if (dot)
		first[dot - text] = 0;
	if (parse_u64(first, 1, UINT64_MAX, id) ||
	    (dot && parse_u64(dot + 1, 1, UINT64_MAX, version)))
		return false;
	spool_file_name(canonical_name, *id, *version);
	return strcmp(canonical_name, text) == 0;
}

static bool ends_with(const char *text, const char *end)
{
	size_t length = strlen(text), tail = strlen(end);

	return length > tail && strcmp(text + length - tail, end) == 0;
}

static int records_entry(struct spool_restoring *restoring, const char *name)
{
	struct spool *spool = restoring->spool;
	uint64_t id, version;

	if (ends_with(name, ".tmp")) {
		unlinkat(spool->records, name, 0);
		return 0;
	}
	if (ends_with(name, ".gone")) {
		char stem[SPOOL_FILE_NAME];

		snprintf(stem, sizeof(stem), "%.*s", (int)(strlen(name) - strlen(".gone")), name);
		return file_name_parse(stem, &id, &version) && !version ? spool_remove(spool, id)
									: 0;
	}
	if (file_name_parse(name, &id, &version) && !version)
		return record_scan(restoring, name, id);
	log_warn("spool: records/%s: not a file of the spool", name);
	return 0;
}

/* --- data/ */

static int data_entry(struct spool_restoring *restoring, const char *name)
{
	uint64_t id, version;

	if (!file_name_parse(name, &id, &version)) {
		log_warn("spool: data/%s: not a file of the spool", name);
		return 0;
	}
	struct spool_found *found = spool_found_at(restoring, id);

	if (version) {
		/* Staged by a save that did not finish, or for a record that cannot be read. */
		if (found && found->record.version == version)
			found->staged = true;
		else if (!found || found->record.id)
			unlinkat(restoring->spool->data, name, 0);
		return 0;
	}
	if (found) {
		found->data = true;
		return 0;
	}
	found = found_add(restoring, id);
	if (!found)
		return -ENOMEM;
	found->data = true;
	found->damage = "its record is missing";
	return 0;
}

static int dir_each_name(struct spool_restoring *restoring, int dir,
			 int (*visit)(struct spool_restoring *restoring, const char *name))
{
	int fd = openat(dir, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC), rc = 0;
	DIR *list = fd < 0 ? NULL : fdopendir(fd);
	const struct dirent *entry;

	if (!list)
		return -errno;
	/* Entries are removed while the list is read: readdir may or may not return new or removed
	 * entries. */
	while (rc == 0 && (entry = readdir(list)))
		if (strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0)
			rc = visit(restoring, entry->d_name);
	closedir(list);
	return rc;
}

/* Finishes a save that a crash interrupted between the record and the data. */
static void found_finish_staged(struct spool_restoring *restoring, struct spool_found *found)
{
	int rc = spool_commit(restoring->spool, &found->record);

	if (rc) {
		found->damage = "the staged data cannot be put in place";
		log_error("spool: data/%" PRIu64 ".%" PRIu64 ": %s", found->id,
			  found->record.version, strerror(-rc));
		return;
	}
	found->data = true;
	for (size_t i = 0; i < found->record.n_blocks; i++)
		found->record.blocks[i].is_fresh = false;
}

static void found_check_data(struct spool_restoring *restoring, struct spool_found *found)
{
	if (!S_ISREG(found->record.mode) || !found->record.id)
		return;
	if (found->staged)
		found_finish_staged(restoring, found);
	AUTO_CLOSE int fd = spool_data_open(restoring->spool, found->id, 0, O_RDONLY);
	struct stat st;

	if (found->damage)
		return;
	if (fd < 0)
		found->damage = fd == -ENOENT ? "the data file is missing"
					      : "the data file is not a regular file";
	else if (fstat(fd, &st) || (uint64_t)st.st_size != found->record.size)
		found->damage = "the length differs from the saved length";
	for (size_t i = 0; i < found->record.n_blocks; i++)
		found->record.blocks[i].is_fresh = false;
}

static int spool_scan(struct spool_restoring *restoring)
{
	struct spool *spool = restoring->spool;
	int rc = dir_each_name(restoring, spool->records, records_entry);

	if (rc)
		return rc;
	found_sort(restoring);
	rc = dir_each_name(restoring, spool->data, data_entry);
	found_sort(restoring);
	for (size_t i = 0; rc == 0 && i < restoring->count; i++) {
		struct spool_found *found = &restoring->found[i];

		found_check_data(restoring, found);
		if (found->id > spool->last_id)
			spool->last_id = found->id;
		if (found->record.sequence > spool->sequence)
			spool->sequence = found->record.sequence;
	}
	/* A data file without a record may have any number as its name. */
	return spool->last_id > SPOOL_NUMBER_MAX ? -EUCLEAN : rc;
}

/* --- the inode of a record */

int spool_attach(struct spool_restoring *restoring, struct spool_found *found, struct inode *inode,
		 enum inode_residency residency)
{
	struct spool_file *file = spool_file_of(inode);
	struct spool_dirty_map old_map = {0};
	int rc = file ? spool_dirty_map_renew(file, found->record.size, &old_map) : -ENOMEM;

	if (rc)
		return rc;
	free(old_map.words);
	if (found->record.id)
		spool_file_set(file, &found->record);
	atomic_store(&file->id, found->id);
	atomic_store(&inode->residency, (uint8_t)residency);
	if (found->damage)
		spool_damaged(restoring->fs, inode, found->id, found->damage);
	if (!found->inode) {
		inode_ref(inode);
		found->inode = inode;
	}
	found->reached = true;
	return 0;
}

/* Attaches the record of an inode that a journal restored. The last daemon may have changed bytes
 * that were not saved. */
static int inode_attach_noted(struct spool_restoring *restoring, struct inode *inode)
{
	enum inode_residency residency;
	uint64_t id;

	if (spool_noted(inode, &id, &residency))
		return 0;
	struct spool_found *found = spool_found_at(restoring, id);

	if (id > restoring->spool->last_id)
		restoring->spool->last_id = id;
	if (!found && residency == INODE_RESIDENT)
		return 0;
	if (!found) {
		struct spool_file *file = spool_file_of(inode);

		if (!file)
			return -ENOMEM;
		atomic_store(&file->id, id);
		spool_damaged(restoring->fs, inode, id, "record and data are missing");
		return 0;
	}
	if (residency == INODE_RESIDENT && found->damage) {
		/* Memory has the bytes: the next save writes all of them. */
		found->record.version = 0;
		found->damage = NULL;
	}
	int rc = spool_attach(restoring, found, inode, residency);

	if (rc == 0 && found->mode)
		spool_links_put(restoring->spool, &inode_spool_file(inode)->saved);
	spool_mark_unknown(inode);
	return rc;
}

static int inodes_attach(struct spool_restoring *restoring)
{
	struct fs *fs = restoring->fs;
	struct inode *inode;
	uint32_t slot = 0;
	int rc = 0;

	while (rc == 0 && (inode = inode_table_next(fs->inodes, &slot))) {
		if (inode != fs->root)
			rc = inode_attach_noted(restoring, inode);
		inode_put(fs, inode, 1);
	}
	return rc;
}

/* Whether the record's names lead to a volume of this mount. */
static bool found_is_here(const struct spool_restoring *restoring, const struct spool_found *found)
{
	for (size_t steps = 0; found && found->first.name && steps <= restoring->count; steps++) {
		if (found->first.dir == 0)
			return spool_volume(restoring->fs, found->first.name) != NULL;
		found = spool_found_at(restoring, found->first.dir);
	}
	return false;
}

/* Removes records of inodes that the last daemon had removed from the tree but not from the spool.
 */
static int found_remove_unowned(struct spool_restoring *restoring)
{
	int rc = 0;

	for (size_t i = 0; rc == 0 && i < restoring->count; i++) {
		struct spool_found *found = &restoring->found[i];

		if (!found->inode && !found->damage && found_is_here(restoring, found))
			rc = spool_remove(restoring->spool, found->id);
	}
	return rc;
}

static void restoring_free(struct spool_restoring *restoring)
{
	for (size_t i = 0; i < restoring->count; i++) {
		spool_record_free(&restoring->found[i].record);
		if (restoring->found[i].inode)
			inode_put(restoring->fs, restoring->found[i].inode, 1);
	}
	free(restoring->found);
	free(restoring->entries);
	spool_paths_free(&restoring->paths);
}

static void restoring_log(const struct spool_restoring *restoring)
{
	const char *path = restoring->spool->path;

	if (restoring->files)
		log_info("spool=%s: %" PRIu64 " files are in the tree again", path,
			 restoring->files);
	if (restoring->elsewhere)
		log_warn("spool=%s: %" PRIu64 " files belong to GPUs that this mount does not "
			 "have: the files stay in the spool",
			 path, restoring->elsewhere);
}

int spool_restore(struct fs *fs)
{
	struct spool_restoring restoring = {.fs = fs, .spool = spool_of(fs)};
	bool is_done = spool_is_done(fs);
	int rc = spool_scan(&restoring);

	if (rc == 0)
		rc = spool_list(&restoring);
	if (rc == 0 && fs->journal)
		rc = inodes_attach(&restoring);
	if (rc == 0)
		rc = is_done ? found_remove_unowned(&restoring) : spool_rebuild(&restoring);
	if (rc == 0)
		rc = spool_note_done(fs);
	if (rc == 0)
		restoring_log(&restoring);
	restoring_free(&restoring);
	return rc;
}
