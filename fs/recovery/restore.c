/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
#include "fs/recovery/restore.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/cleanup.h"
#include "common/log.h"
#include "fs/core/worker.h"
#include "fs/ledger/ledger.h"
#include "fs/recovery/internal.h"
#include "fs/tree/dir.h"
#include "fs/tree/inode_table.h"
#include "fs/tree/quota.h"
#include "fs/tree/tree.h"

static const char *identity_of(const struct volume *volume)
{
	return volume->device ? volume->device->uuid : "host";
}

/* Maps the journal's volumes to the volumes of this daemon; all must be present, in the same
 * order. */
static int volumes_match(struct restore *restore)
{
	struct fs *fs = restore->fs;
	struct journal_header *header = restore->journal->header;

	restore->n_volumes = header->n_volumes;
	for (unsigned i = 0; i < header->n_volumes; i++) {
		const char *identity = header->volumes[i];

		for (unsigned k = 0; k < fs->n_volumes; k++)
			if (strncmp(identity, identity_of(&fs->volumes[k]),
				    sizeof(header->volumes[i])) == 0)
				restore->volumes[i] = &fs->volumes[k];
		if (!restore->volumes[i] || restore->volumes[i]->index != i) {
			log_error("%.*s: the GPU of saved files is missing or has another number: "
				  "start with "
				  "the GPUs of the last daemon",
				  (int)sizeof(header->volumes[i]), identity);
			return -ENODEV;
		}
	}
	return 0;
}

/* Whenever the daemon is killed, the journal has all of the name or none: half a name would be that
 * of a GPU that no later daemon finds. So a name that is there is not written again, and the first
 * byte of a new name is written last. */
static void name_put(char *name, size_t bytes, const char *text)
{
	if (*name)
		return;
	memset(name, 0, bytes);
	memcpy(name + 1, text + 1, strnlen(text + 1, bytes - 2));
	atomic_thread_fence(memory_order_release);
	*name = *text;
}

static void volumes_name(struct fs *fs)
{
	struct journal_header *header = fs->journal->header;

	name_put(header->backend, sizeof(header->backend), fs->backend->ops->name);
	for (unsigned i = 0; i < fs->n_volumes; i++)
		name_put(header->volumes[i], sizeof(header->volumes[i]),
			 identity_of(&fs->volumes[i]));
	atomic_thread_fence(memory_order_release);
	header->n_volumes = fs->n_volumes;
}

static int chunk_made(void *journal, struct chunk *chunk)
{
	int fd, rc = chunk_export(chunk, &fd);

	if (rc < 0)
		return rc;
	chunk->id = journal_hold(journal, FDSTORE_CHUNK, fd);
	close(fd);
	return chunk->id ? 0 : -ENOSPC;
}

static void chunk_gone(void *journal, struct chunk *chunk)
{
	journal_drop(journal, FDSTORE_CHUNK, chunk->id);
}

static void pools_watch(struct fs *fs)
{
	struct pool_watch watch = {
	    .on_create = chunk_made, .on_free = chunk_gone, .context = fs->journal};

	for (unsigned i = 0; i < fs->n_volumes; i++) {
		for (enum memory_place place = PLACE_GPU; place < PLACES; place++)
			if (volume_pool(&fs->volumes[i], place))
				pool_set_watch(volume_pool(&fs->volumes[i], place), &watch);
	}
}

/* Ids of the mounts that bound the memory of host/, one per kind of page; ids from journal_hold
 * are higher. */
static uint64_t mount_id(unsigned kind)
{
	return fdstore_id(FDSTORE_HOST, 1 + kind);
}

static struct system_memory *system_of(struct fs *fs)
{
	for (unsigned i = 0; i < fs->n_volumes; i++)
		if (fs->volumes[i].system)
			return fs->volumes[i].system;
	return NULL;
}

/* The files of this daemon and of the next daemon share one bound. */
static int mounts_hold(struct fs *fs)
{
	const struct fdstore_ops *fdstore = fs->fdstore_ops;
	int rc = 0;

	for (unsigned kind = 0; rc == 0 && kind < SYSTEM_KINDS; kind++) {
		int fd = system_memory_mount(system_of(fs), (enum system_pages)kind);

		if (fd >= 0)
			rc = fdstore->hold(fdstore->context, mount_id(kind), fd);
	}
	return rc;
}

static int mounts_adopt(struct fs *fs)
{
	const struct fdstore_ops *fdstore = fs->fdstore_ops;

	for (unsigned kind = 0; kind < SYSTEM_KINDS; kind++) {
		int fd = fdstore->take(fdstore->context, mount_id(kind));

		if (fd < 0 && fd != -ENOENT)
			return fd;
		if (fd >= 0)
			system_memory_adopt(system_of(fs), (enum system_pages)kind, fd);
	}
	return 0;
}

static void mounts_drop(struct fs *fs)
{
	const struct fdstore_ops *fdstore = fs->fdstore_ops;

	for (unsigned kind = 0; kind < SYSTEM_KINDS; kind++) {
		int fd = fdstore->take(fdstore->context, mount_id(kind));

		if (fd >= 0)
			fdstore->drop(fdstore->context, mount_id(kind));
		if (fd >= 0)
			close(fd);
	}
}

static int by_request(const void *a, const void *b)
{
	const struct journal_request *first = a, *second = b;

	return (first->request > second->request) - (first->request < second->request);
}

/* Merges the records of one request. */
static void drc_merge(struct journal *journal)
{
	size_t n_kept = 0;

	qsort(journal->drc, journal->n_drc, sizeof(*journal->drc), by_request);
	for (size_t i = 0; i < journal->n_drc; i++) {
		const struct journal_request *next = &journal->drc[i];
		struct journal_request *last = n_kept ? &journal->drc[n_kept - 1] : NULL;

		if (last && last->request == next->request) {
			last->completed |= next->completed;
			last->ino = next->ino ? next->ino : last->ino;
			last->writer = next->writer > last->writer ? next->writer : last->writer;
		} else {
			journal->drc[n_kept++] = *next;
		}
	}
	journal->n_drc = n_kept;
}

static int drc_keep(struct restore *restore)
{
	struct journal *journal = restore->journal;
	size_t n = restore->n_earlier;

	if (restore->fs->mount == FS_MOUNT_NEW)
		return 0;
	journal->drc = calloc((size_t)JOURNAL_WRITERS * JOURNAL_RECENT + n, sizeof(*journal->drc));
	if (!journal->drc)
		return -ENOMEM;
	if (n)
		memcpy(journal->drc, restore->earlier, n * sizeof(*journal->drc));
	for (unsigned i = 0; i < JOURNAL_WRITERS; i++)
		for (unsigned k = 0; k < JOURNAL_RECENT && k < restore->recent[i].n; k++)
			journal->drc[n++] = restore->recent[i].requests[k];
	journal->n_drc = n;
	if (n)
		drc_merge(journal);
	return 0;
}

static int journal_replay(struct restore *restore)
{
	struct journal_list list;
	int rc = journal_read(restore->journal, &list);

	for (size_t i = 0; rc == 0 && i < list.count; i++)
		rc = restore_record(restore, list.at[i]);
	if (rc == 0 && list.count)
		atomic_store(&restore->journal->sequence, list.at[list.count - 1]->sequence + 1);
	free(list.at);
	return rc;
}

static int inode_forget_restored(struct restore *restore, struct inode *inode)
{
	if (S_ISDIR(inode->mode)) {
		for (uint32_t i = 0; i < inode->dir->n_buckets; i++) {
			while (inode->dir->buckets[i]) {
				struct dentry *entry = inode->dir->buckets[i];

				dir_restore_remove(inode->dir, entry);
				free(entry);
			}
		}
	}
	inode_table_restore_remove(restore->fs->inodes, inode);
	inode_restore_free(inode);
	return 0;
}

static void tree_abandon(struct restore *restore)
{
	restore_each(restore, restore_abandon);
	restore_each(restore, inode_forget_restored);
	restore->fs->root = NULL;
}

static int tree_rebuild(struct restore *restore)
{
	int rc = volumes_match(restore);

	if (rc == 0)
		rc = journal_replay(restore);
	restore_handed_out_sort(restore);
	if (rc == 0)
		rc = restore_tree(restore);
	timeline_mark(&restore->fs->timeline, TIMELINE_JOURNAL);
	if (rc == 0)
		rc = restore_each(restore, restore_memory);
	timeline_mark(&restore->fs->timeline, TIMELINE_MEMORY);
	restore_missing_end(restore);
	if (rc == 0)
		rc = restore_charges(restore);
	if (rc == 0)
		rc = restore_given_up(restore);
	if (rc == 0)
		rc = drc_keep(restore);
	if (rc == 0)
		rc = mounts_adopt(restore->fs);
	if (rc == 0)
		rc = inode_table_restore_end(restore->fs->inodes);
	/* A record that is lost would cost all files; so far the next daemon can try again. */
	if (rc == 0)
		rc = journal_room(restore->journal);
	if (rc == 0)
		rc = restore_unclaimed(restore);
	if (rc == -EUCLEAN)
		log_error("journal: inconsistent: the files of the last daemon cannot be brought "
			  "back");
	return rc;
}

/* The restoring thread copies and frees with a worker's buffers, before the session has set the
 * size of requests. A restore needs only small buffers. */
#define REPLY_BYTES 4096U

static int journal_restore(struct fs *fs)
{
	struct restore restore = {.fs = fs,
				  .journal = fs->journal,
				  .all_handed_out = journal_all_handed_out(fs->journal)};
	unsigned max_write = fs->can.max_write;
	int rc = -ENOMEM;

	fs->can.max_write = REPLY_BYTES;

	restore.recent = calloc(JOURNAL_WRITERS, sizeof(*restore.recent));
	if (restore.recent)
		rc = tree_rebuild(&restore);
	if (rc == 0) {
		volumes_name(fs);
		uint64_t last = atomic_load(&fs->journal->last_id);

		atomic_store(&fs->journal->last_id,
			     restore.last_id > last ? restore.last_id : last);
		pools_watch(fs);
		if (fs->mount == FS_MOUNT_NEW)
			journal_drc_forget(fs->journal);
		journal_drc_carry(fs->journal);
		restore_prune(&restore);
	} else if (restore.recent) {
		tree_abandon(&restore);
	}
	restore_held_free(&restore);
	free(restore.recent);
	free(restore.earlier);
	free(restore.handed_out);
	worker_end();
	fs->can.max_write = max_write;
	return rc;
}

static int journal_start(struct fs *fs)
{
	int rc = mounts_hold(fs);

	if (rc < 0)
		return rc;
	volumes_name(fs);
	pools_watch(fs);
	rc = journal_room(fs->journal);
	return rc < 0 ? rc : tree_init(fs);
}

/* Takes the journal of an earlier daemon. -ENOENT: this is the first daemon. */
static int journal_take(const struct fs *fs)
{
	const struct fdstore_ops *fdstore = fs->fdstore_ops;
	int fd = fdstore->take(fdstore->context, fdstore_id(FDSTORE_JOURNAL, 0));

	if (fd != -ENOENT || fdstore_generation(fs->fdstore) == 1)
		return fd;
	log_error("journal: the journal of the last daemon is not held: its files cannot be "
		  "brought back");
	return -EUCLEAN;
}

int fs_restore(struct fs *fs)
{
	const struct fdstore_ops *fdstore = fs->fdstore_ops;
	int fd = journal_take(fs);
	int rc = fd == -ENOENT || fd >= 0 ? 0 : fd;

	if (rc < 0)
		return rc;
	if (fd >= 0)
		rc = journal_adopt(fdstore, fd, &fs->journal);
	else
		rc = journal_new(fdstore, (uint64_t)ledger_of(fs)->metadata_max / METADATA_INODE,
				 &fs->journal);
	if (rc < 0) {
		if (fd >= 0)
			close(fd);
		return rc;
	}
	fs->inodes->journal = fs->journal;
	rc = fd >= 0 ? journal_restore(fs) : journal_start(fs);
	if (rc < 0) {
		/* The journal of an earlier daemon stays for the next try. */
		if (fd < 0) {
			mounts_drop(fs);
			fdstore->drop(fdstore->context, fdstore_id(FDSTORE_JOURNAL, 0));
		}
		fs->inodes->journal = NULL;
		journal_close(fs->journal);
		fs->journal = NULL;
	}
	return rc;
}

void fs_restore_leave(struct fs *fs)
{
	struct restore restore = {.fs = fs, .journal = fs->journal};

	tree_abandon(&restore);
}

/* -ENOENT: there is no journal; -EUCLEAN: its header cannot be read. */
static int header_take(const struct fdstore_ops *fdstore, struct journal_header *header)
{
	AUTO_CLOSE int fd = fdstore->take(fdstore->context, fdstore_id(FDSTORE_JOURNAL, 0));

	if (fd < 0)
		return fd;
	return pread(fd, header, sizeof(*header), 0) == sizeof(*header) &&
		       header->magic == JOURNAL_MAGIC &&
		       journal_version_is_known(atomic_load(&header->version)) &&
		       header->n_volumes <= JOURNAL_VOLUMES
		   ? 0
		   : -EUCLEAN;
}

int fs_restore_check(const struct fdstore_ops *fdstore)
{
	struct journal_header header;
	int rc = header_take(fdstore, &header);

	if (rc == -EUCLEAN)
		log_error("journal: of another version: this program reads the versions %d to %d",
			  JOURNAL_VERSION_MIN, JOURNAL_VERSION);
	return rc == -ENOENT ? 0 : rc;
}

void fs_restore_devices(const struct fdstore_ops *fdstore, struct restore_devices *devices)
{
	struct journal_header header;
	size_t at = 0;

	*devices = (struct restore_devices){0};
	if (header_take(fdstore, &header) < 0)
		return;
	snprintf(devices->backend, sizeof(devices->backend), "%.*s", (int)sizeof(header.backend),
		 header.backend);
	for (unsigned i = 0; i < header.n_volumes; i++) {
		char uuid[sizeof(header.volumes[i]) + 1];

		snprintf(uuid, sizeof(uuid), "%.*s", (int)sizeof(header.volumes[i]),
			 header.volumes[i]);
		/* Any other name is left to volumes_match, which refuses it. */
		if (strncmp(uuid, "GPU-", 4) == 0 || strncmp(uuid, "MIG-", 4) == 0)
			at += (size_t)snprintf(devices->gpus + at, sizeof(devices->gpus) - at,
					       "%s%s", at ? "," : "", uuid);
	}
}

void fs_forget_held(struct fs *fs)
{
	if (!fs->journal)
		return;
	if (!journal_is_left(fs->journal)) {
		mounts_drop(fs);
		fs->journal->fdstore.drop(fs->journal->fdstore.context,
					  fdstore_id(FDSTORE_JOURNAL, 0));
	}
	journal_close(fs->journal);
	fs->journal = NULL;
}
