/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* The operations on the spool as a whole: saving one inode or a whole tree, and opening, starting
 * and closing the spool of a mount. */
#include "fs/spool/spool.h"

#include <errno.h>
#include <inttypes.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>

#include "common/background.h"
#include "common/cleanup.h"
#include "common/log.h"
#include "common/system/sd_notify.h"
#include "common/vector.h"
#include "fs/core/worker.h"
#include "fs/spool/internal.h"
#include "fs/spool/note.h"
#include "fs/tree/dir.h"
#include "fs/tree/inode_hooks.h"
#include "fs/tree/inode_table.h"
#include "fs/tree/tree.h"

/* Milliseconds between two requests to the service manager for more time (NOTIFY_EXTEND). */
#define EXTEND_MS 10000

int spool_failed(struct fs *fs, struct inode *inode, int error)
{
	char path[PATH_MAX];

	if (error == -EINTR)
		return error; /* a signal came: nothing is wrong */
	tree_path_text(fs, inode, path, PATH_MAX);
	/* Every fsync tries again, so the log line is limited. */
	log_caller_error("%s: cannot be saved to the spool: %s: the file stays in memory, and its "
			 "previous copy in %s",
			 path, strerror(-error), spool_of(fs)->path);
	atomic_fetch_add(&spool_of(fs)->errors, 1);
	atomic_store(&spool_of(fs)->last_error, -error);
	return error;
}

/* --- saving on request */

static int dir_save_names(struct fs *fs, struct inode *dir)
{
	struct spool_saved saved = {0};
	uint64_t cookie = DIR_COOKIE_END;
	int rc = 0;

	for (;;) {
		pthread_rwlock_rdlock(&dir->dir->lock);
		struct dentry *entry = dir_before(dir->dir, cookie);
		struct inode *inode = entry ? entry->inode : NULL;

		if (inode)
			inode_ref(inode);
		cookie = entry ? entry->cookie : 0;
		pthread_rwlock_unlock(&dir->dir->lock);
		if (!inode)
			return rc;
		if (spool_wanted(inode) && rc == 0)
			rc = spool_save_one(fs, inode, SPOOL_NAMES_ALONE, &saved);
		inode_put(fs, inode, 1);
	}
}

int spool_save(struct fs *fs, struct inode *inode)
{
	struct spool_saved saved = {0};

	if (!spool_of(fs))
		return 0;
	spool_drain(fs);
	int rc = S_ISDIR(inode->mode) ? dir_save_names(fs, inode) : 0;

	if (rc == 0 && spool_wanted(inode))
		rc = spool_save_one(fs, inode, SPOOL_WITH_BYTES, &saved);
	return rc ? spool_failed(fs, inode, rc) : 0;
}

struct saving {
	struct fs *fs;
	uid_t owner; /* collect this user's files; SPOOL_ALL_USERS: all */
	struct inode **at;
	size_t count;
	bool large; /* collect large files; else small ones */
	pthread_mutex_t lock;
	struct spool_saved saved; /* lock */
	int error;		  /* lock: of the first failure */
};

static int saving_save_number(void *context, uint64_t number)
{
	struct saving *saving = context;
	struct spool_saved saved = {0};
	int rc = spool_save_one(saving->fs, saving->at[number], SPOOL_WITH_BYTES, &saved);

	if (rc)
		spool_failed(saving->fs, saving->at[number], rc);
	if (rc == -EINTR)
		return rc;
	scoped_lock(&saving->lock);
	saving->saved.files += saved.files;
	saving->saved.bytes += saved.bytes;
	saving->saved.failed += rc != 0;
	if (rc && !saving->error) {
		saving->error = rc;
		saving->saved.first_failed = saving->at[number]->ino;
	}
	return 0; /* the other inodes are saved all the same */
}

static bool inode_lies_below(struct fs *fs, struct inode *inode, const struct inode *dir)
{
	if (!dir || inode == dir)
		return true;
	brlock_token token = brlock_read_lock(&fs->topology);
	bool found = false;

	pthread_mutex_lock(&inode->lock);
	for (struct dentry *entry = inode->links; entry && !found; entry = entry->next_link)
		for (struct inode *at = entry->parent; at && !found; at = at->dir->parent)
			found = at == dir;
	pthread_mutex_unlock(&inode->lock);
	brlock_read_unlock(&fs->topology, token);
	return found;
}

static bool inode_is_of(struct inode *inode, uid_t owner)
{
	scoped_lock(&inode->lock);
	return owner == SPOOL_ALL_USERS || inode->uid == owner;
}

static bool inode_is_to_be_saved(struct inode *inode)
{
	return spool_wanted(inode) || (spool_has_record(inode) && inode->nlink);
}

static int saving_add(struct saving *saving, struct inode *inode)
{
	struct inode **inodes = vector_grow(saving->at, saving->count, sizeof(struct inode *));

	if (!inodes)
		return -ENOMEM;
	saving->at = inodes;
	saving->at[saving->count++] = inode;
	return 0;
}

/* Small files are saved first, one thread each, then large files. */
static int saving_collect(struct saving *saving, const struct inode *dir)
{
	struct fs *fs = saving->fs;
	struct inode *inode;
	uint32_t slot = 0;
	int rc = 0;

	while (rc == 0 && (inode = inode_table_next(fs->inodes, &slot))) {
		bool is_large = S_ISREG(inode->mode) && file_size(inode->file) >= SPOOL_LARGE;

		if (is_large == saving->large && inode_is_of(inode, saving->owner) &&
		    inode_is_to_be_saved(inode) && inode_lies_below(fs, inode, dir))
			rc = saving_add(saving, inode);
		else
			inode_put(fs, inode, 1);
		if (rc)
			inode_put(fs, inode, 1);
	}
	return rc;
}

static int saving_run(struct saving *saving, const struct inode *dir)
{
	int rc = saving_collect(saving, dir);

	if (rc == 0)
		rc = spool_parallel(saving->count,
				    saving->large ? SPOOL_LARGE_AT_ONCE : SPOOL_THREADS,
				    saving_save_number, saving);
	for (size_t i = 0; i < saving->count; i++)
		inode_put(saving->fs, saving->at[i], 1);
	free(saving->at);
	saving->at = NULL;
	saving->count = 0;
	return rc;
}

int spool_save_below(struct fs *fs, struct inode *dir, uid_t owner, struct spool_saved *saved)
{
	struct saving saving = {.fs = fs, .owner = owner};

	*saved = (struct spool_saved){0};
	if (!spool_of(fs))
		return -ENOTSUP;
	spool_drain(fs);
	pthread_mutex_init(&saving.lock, NULL);
	int rc = saving_run(&saving, dir);

	saving.large = true;
	if (rc == 0)
		rc = saving_run(&saving, dir);
	pthread_mutex_destroy(&saving.lock);
	*saved = saving.saved;
	return rc ? rc : saving.error;
}

/* --- the mount */

/* If the spool cannot be opened, a daemon that replaces a killed daemon goes on without a spool, as
 * the files in memory matter more. Files that are in the spool alone cannot be read meanwhile. */
static int open_without_spool(struct fs *fs, int error)
{
	enum inode_residency residency;
	struct inode *inode;
	uint32_t slot = 0;
	uint64_t id;

	if (!spool_is_done(fs))
		return error;
	while ((inode = inode_table_next(fs->inodes, &slot))) {
		if (inode != fs->root && spool_noted(inode, &id, &residency) == 0)
			atomic_store(&inode->residency, (uint8_t)residency);
		inode_put(fs, inode, 1);
	}
	if (error)
		log_error("spool=%s: this daemon continues without the spool: no file is saved",
			  fs->options.spool);
	return 0;
}

/* Inodes keep a struct spool_file after spool_close, until the tree is freed. */
const struct inode_hooks spool_hooks = {
    .changed = spool_changed,
    .replaced = spool_replaced,
    .unseen_stores = spool_mark_unknown,
    .recall = spool_recall,
    .freed = spool_free,
};

int spool_open(struct fs *fs)
{
	if (!fs->options.spool)
		return open_without_spool(fs, 0);
	struct spool *spool = NULL;
	int rc = spool_check(&fs->options);

	if (rc == 0)
		rc = spool_dir_open(fs->options.spool,
				    spool_is_done(fs) ? SPOOL_OURS : SPOOL_FOREIGN, &spool);
	if (rc)
		return open_without_spool(fs, rc);
	fs->states[FS_SPOOL] = spool;
	/* A file size limit (RLIMIT_FSIZE) must fail the write, not end the daemon. */
	signal(SIGXFSZ, SIG_IGN);
	rc = spool_restore(fs);
	worker_end();
	if (rc) {
		log_error("spool=%s: %s: no file is brought back, and the spool is unchanged",
			  fs->options.spool, strerror(-rc));
		spool_close(fs);
		rc = open_without_spool(fs, rc);
	}
	return rc;
}

static int saving_recall_number(void *context, uint64_t number)
{
	struct saving *saving = context;
	bool large = file_size(saving->at[number]->file) >= SPOOL_LARGE;

	if (large == saving->large && !atomic_load(&spool_of(saving->fs)->recaller.stopping))
		inode_require_bytes(saving->fs, saving->at[number]);
	return 0;
}

static void recaller_work(struct background *background)
{
	struct saving saving = {.fs = background->context};
	struct inode *inode;
	uint32_t slot = 0;

	while ((inode = inode_table_next(saving.fs->inodes, &slot)))
		if (atomic_load(&inode->residency) != INODE_AWAY || saving_add(&saving, inode))
			inode_put(saving.fs, inode, 1);
	spool_parallel(saving.count, SPOOL_THREADS, saving_recall_number, &saving);
	saving.large = true;
	spool_parallel(saving.count, SPOOL_LARGE_AT_ONCE, saving_recall_number, &saving);
	for (size_t i = 0; i < saving.count; i++)
		inode_put(saving.fs, saving.at[i], 1);
	free(saving.at);
	worker_end();
}

void spool_start(struct fs *fs)
{
	struct spool *spool = spool_of(fs);

	if (!spool)
		return;
	spool_rename_queue_start(fs);
	if (fs->options.restore == RESTORE_NOW)
		background_start(&spool->recaller, recaller_work, fs);
}

/* Requests more time until the last save is over. */
static void extender_work(struct background *extender)
{
	do
		notify_send(NOTIFY_EXTEND);
	while (background_wait(extender, EXTEND_MS));
}

static void save_at_end(struct fs *fs, struct spool_saved *saved)
{
	struct background extender = {0};

	background_start(&extender, extender_work, NULL);
	spool_save_below(fs, NULL, SPOOL_ALL_USERS, saved);
	background_stop(&extender);
}

void spool_end(struct fs *fs)
{
	struct spool_saved saved;

	if (!spool_of(fs))
		return;
	spool_rename_queue_end(spool_of(fs));
	spool_announce_ending(spool_of(fs));
	save_at_end(fs, &saved);
	log_info("spool: %" PRIu64 " files saved, %" PRIu64 " bytes; %" PRIu64 " failed",
		 saved.files, saved.bytes, saved.failed);
	worker_end();
}

void spool_close(struct fs *fs)
{
	struct spool *spool = spool_of(fs);

	if (!spool)
		return;
	spool_rename_queue_end(spool);
	spool_rename_queue_free(fs);
	fs->states[FS_SPOOL] = NULL;
	spool_links_free(spool);
	spool_dir_close(spool);
}

struct spool_counters spool_counters(struct fs *fs)
{
	struct spool *spool = spool_of(fs);

	if (!spool)
		return (struct spool_counters){0};
	return (struct spool_counters){
	    .saves = spool->saves,
	    .saved_bytes = spool->saved_bytes,
	    .errors = spool->errors,
	    .fetched_bytes = spool->fetched_bytes,
	    .damaged = spool->damaged,
	    .last_error = spool->last_error,
	};
}
