/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
#include "fs/fuse/page_drop.h"

#include <unistd.h>

#include "common/cleanup.h"
#include "common/log.h"
#include "fs/core/fs.h"
#include "fs/core/worker.h"
#include "fs/fuse/internal.h"
#include "fs/tree/inode_unseen.h"

/* The lock of an inode is held for so many bytes: 1.3 ms. */
#define PART (16 << 20)
/* The time in which a waiting thread wakes up. */
#define PAUSE_US 100

static struct inode *page_drop_take(struct page_drop *drop)
{
	scoped_lock(&drop->lock);
	return drop->n_inodes ? drop->inodes[--drop->n_inodes] : NULL;
}

/* The kernel waits for pages that are being read. Nobody reads pages of a file that is not open,
 * and with the lock nobody opens the file. So this thread never waits for a thread that serves
 * requests; if the daemon were killed during such a wait, the process could not end, and the keeper
 * would start no other daemon. */
static bool pages_drop_part(const struct session *session, struct inode *inode, uint64_t offset)
{
	scoped_lock(&inode->lock);
	return !inode->uses.opens && fuse_lowlevel_notify_inval_inode(session->fuse, inode->ino,
								      (off_t)offset, PART) == 0;
}

static void pages_drop(const struct session *session, struct inode *inode)
{
	uint64_t bytes = file_size(inode->file), offset = 0;

	while (offset < bytes && pages_drop_part(session, inode, offset)) {
		offset += PART;
		/* A mutex is not fair: a thread that waits would get the lock after the last part.
		 */
		usleep(PAUSE_US);
	}
	scoped_lock(&inode->lock);
	if (!inode->uses.opens)
		inode_pages_clear(inode);
}

static void page_drop_work(struct background *background)
{
	struct session *session = background->context;
	struct inode *inode;

	while (background_wait(background, -1))
		while ((inode = page_drop_take(&session->page_drop))) {
			pages_drop(session, inode);
			inode_put(session->fs, inode, 1);
		}
	worker_end();
}

void page_drop_start(struct session *session)
{
	struct page_drop *drop = &session->page_drop;

	pthread_mutex_init(&drop->lock, NULL);
	if (session->fs->options.cache == CACHE_NONE &&
	    background_start(&drop->background, page_drop_work, session))
		log_warn("cannot start the thread that frees pages of mapped files");
}

void page_drop_stop(struct session *session)
{
	struct page_drop *drop = &session->page_drop;
	struct inode *inode;

	pthread_mutex_lock(&drop->lock);
	drop->stopping = true;
	pthread_mutex_unlock(&drop->lock);
	background_stop(&drop->background);
	while ((inode = page_drop_take(drop)))
		inode_put(session->fs, inode, 1);
}

void session_drop_pages(struct session *session, struct inode *inode)
{
	struct page_drop *drop = &session->page_drop;

	if (!atomic_load(&inode->unseen.pages))
		return;
	scoped_lock(&drop->lock);
	if (drop->stopping || !atomic_load(&drop->background.running) ||
	    drop->n_inodes == PAGE_DROP_FILES)
		return;
	inode_ref(inode);
	drop->inodes[drop->n_inodes++] = inode;
	background_wake(&drop->background);
}
