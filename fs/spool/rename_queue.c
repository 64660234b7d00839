/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* Saves changed names in the order of the changes: by a thread, or by the next save. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "common/cleanup.h"
#include "common/log.h"
#include "fs/core/worker.h"
#include "fs/spool/internal.h"
#include "fs/tree/tree.h"

/* How often a name is looked up again while other threads keep replacing the file. */
#define TRIES 8

bool spool_has_record(struct inode *inode)
{
	struct spool_file *file = inode_spool_file(inode);

	return file && atomic_load(&file->id);
}

/* The caller holds spool->lock. */
static void inode_set_queued(const struct spool_queued *entry, bool queued)
{
	struct spool_file *file = inode_spool_file(entry->inode);

	if (file)
		file->queued = queued;
}

/* The caller holds spool->lock. */
static void queue_put(struct spool *spool, struct spool_queued *queued)
{
	inode_set_queued(queued, true);
	queued->next = NULL;
	*spool->last = queued;
	spool->last = &queued->next;
	spool->n_queued++;
}

static struct spool_queued *queue_take(struct spool *spool)
{
	scoped_lock(&spool->lock);
	struct spool_queued *first = spool->first;

	if (!first)
		return NULL;
	spool->n_queued--;
	spool->first = first->next;
	if (!spool->first)
		spool->last = &spool->first;
	inode_set_queued(first, false);
	return first;
}

static void queue_put_later(struct spool *spool, struct spool_queued *queued)
{
	scoped_lock(&spool->lock);
	inode_set_queued(queued, true);
	queued->next = spool->later;
	spool->later = queued;
}

static void queue_put_back(struct spool *spool)
{
	struct spool_queued *next;

	scoped_lock(&spool->lock);
	while ((next = spool->later)) {
		spool->later = next->next;
		queue_put(spool, next);
	}
}

static void queued_free(struct fs *fs, struct spool_queued *queued)
{
	inode_put(fs, queued->inode, 1);
	if (queued->replaced) {
		inode_put(fs, queued->replaced, 1);
		inode_put(fs, queued->dir, 1);
	}
	free(queued);
}

/* Whether the record of a replaced inode must stay until the new owner of the name is saved. */
static bool inode_is_held(struct spool *spool, struct inode *inode)
{
	struct spool_file *file = inode_spool_file(inode);

	scoped_lock(&spool->lock);
	return file && file->held;
}

static int inode_follow(struct fs *fs, struct inode *inode, enum spool_extent extent)
{
	struct attr_values attrs = atomic_load(&inode->attrs);
	bool stays = inode->nlink && (S_ISDIR(inode->mode) || attrs.persist == PERSIST_DISK);
	struct spool_saved saved = {0};

	if (!inode->nlink && inode_is_held(spool_of(fs), inode))
		return 0; /* the entry that holds the inode looks at the inode again */
	int rc = stays ? spool_save_one(fs, inode, extent, &saved) : spool_drop(fs, inode);

	return rc ? spool_failed(fs, inode, rc) : 0;
}

/* Saves the inode that took the name and the inode that has the name now: the inode that took the
 * name may have been replaced or renamed since. */
static int queued_follow_replacing(struct fs *fs, const struct spool_queued *queued)
{
	struct inode *saved = queued->inode, *now;
	int rc = inode_follow(fs, saved, SPOOL_BYTES_ONCE);

	inode_ref(saved);
	for (int attempt = 0; rc == 0 && !tree_lookup(fs, queued->dir, queued->name, &now);
	     attempt++) {
		bool is_same = now == saved;

		inode_put(fs, saved, 1);
		saved = now;
		if (is_same)
			break;
		rc = attempt < TRIES ? inode_follow(fs, saved, SPOOL_BYTES_ONCE) : -EAGAIN;
	}
	inode_put(fs, saved, 1);
	return rc;
}

/* From here on the entry stands for the replaced inode. */
static void queued_release_replaced(struct fs *fs, struct spool_queued *queued)
{
	struct inode *inode = queued->inode;

	inode_put(fs, queued->dir, 1);
	pthread_mutex_lock(&spool_of(fs)->lock);
	inode_spool_file(queued->replaced)->held--;
	queued->inode = queued->replaced;
	queued->replaced = NULL;
	pthread_mutex_unlock(&spool_of(fs)->lock);
	inode_put(fs, inode, 1);
}

static int queued_follow(struct fs *fs, struct spool_queued *queued)
{
	int rc = queued->replaced ? queued_follow_replacing(fs, queued) : 0;

	if (rc)
		return rc;
	if (queued->replaced)
		queued_release_replaced(fs, queued);
	return inode_follow(fs, queued->inode, SPOOL_NAMES_ALONE);
}

static size_t queue_count(struct spool *spool)
{
	scoped_lock(&spool->lock);
	return spool->n_queued;
}

/* Handles only the entries that are queued at the start: a program that renames without end does
 * not delay the caller for ever. */
static void queue_drain(struct fs *fs)
{
	struct spool_queued *next;

	scoped_lock(&spool_of(fs)->draining);
	for (size_t remaining = queue_count(spool_of(fs));
	     remaining && (next = queue_take(spool_of(fs))); remaining--) {
		if (queued_follow(fs, next))
			queue_put_later(spool_of(fs), next);
		else
			queued_free(fs, next);
	}
}

void spool_drain(struct fs *fs)
{
	queue_put_back(spool_of(fs));
	queue_drain(fs);
}

/* `replaced`, if not NULL, is held by the entry. */
static void queue_add(struct fs *fs, struct inode *inode, struct inode *replaced, struct inode *dir,
		      const char *name)
{
	size_t bytes = strlen(name) + 1;
	struct spool_queued *queued = malloc(sizeof(*queued) + bytes);
	struct spool *spool = spool_of(fs);

	/* Without memory for the entry, the next save of the whole tree saves the names. */
	if (!queued)
		return;
	*queued = (struct spool_queued){.inode = inode, .replaced = replaced, .dir = dir};
	memcpy(queued->name, name, bytes);
	inode_ref(inode);
	if (replaced) {
		inode_ref(replaced);
		inode_ref(dir);
	}
	scoped_lock(&spool->lock);
	if (replaced)
		inode_spool_file(replaced)->held++;
	queue_put(spool, queued);
	background_wake(&spool->follower);
}

static bool inode_is_queued(struct spool *spool, struct inode *inode)
{
	scoped_lock(&spool->lock);
	const struct spool_file *file = inode_spool_file(inode);

	return file->queued || file->held;
}

void spool_changed(struct fs *fs, struct inode *inode)
{
	if (spool_of(fs) && spool_has_record(inode) && !inode_is_queued(spool_of(fs), inode))
		queue_add(fs, inode, NULL, NULL, "");
}

void spool_replaced(struct fs *fs, struct inode *inode, struct inode *replaced, struct inode *dir,
		    const char *name)
{
	if (!spool_of(fs) || !spool_has_record(replaced) || !spool_wanted(inode))
		spool_changed(fs, inode);
	else
		queue_add(fs, inode, replaced, dir, name);
}

static void rename_queue_work(struct background *background)
{
	/* Names may have changed before the thread was started. */
	do
		queue_drain(background->context);
	while (background_wait(background, -1));
	worker_end();
}

void spool_rename_queue_start(struct fs *fs)
{
	if (background_start(&spool_of(fs)->follower, rename_queue_work, fs) < 0)
		log_warn("spool: no thread for changed names: names are saved with the next file");
}

void spool_rename_queue_end(struct spool *spool)
{
	background_stop(&spool->follower);
	background_stop(&spool->recaller);
}

void spool_rename_queue_free(struct fs *fs)
{
	struct spool_queued *next;

	queue_put_back(spool_of(fs));
	while ((next = queue_take(spool_of(fs))))
		queued_free(fs, next);
}
