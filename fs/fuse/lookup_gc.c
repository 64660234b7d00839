/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
#define FUSE_USE_VERSION 318
#include "fs/fuse/lookup_gc.h"

#include <errno.h>
#include <fuse_lowlevel.h>
#include <poll.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "common/cleanup.h"
#include "common/log.h"
#include "fs/core/fs.h"
#include "fs/core/worker.h"
#include "fs/tree/inode.h"
#include "fs/tree/inode_table.h"

/* The first walk through the inodes begins at once, for inodes that the last daemon left; the waits
 * between walks double from FIRST_MS to LAST_MS. Later walks are for inodes that were unlinked
 * since: their count of lookups is greater than the number that the kernel will forget. */
#define FIRST_MS 1000
#define LAST_MS	 60000

struct lookup_gc {
	struct fs *fs;
	struct fuse_session *fuse;
	int stop_fd;
	pthread_t thread;
};

/* Whether no name, handle or lease refers to the inode: no new lookup is possible, and only the
 * kernel may still know the inode. */
static bool inode_has_only_lookups(struct inode *inode)
{
	scoped_lock(&inode->lock);
	return !inode->links && !inode->opens && !inode->lease_refs &&
	       atomic_load(&inode->fields->lookups) > 0;
}

static bool kernel_knows_inode(struct lookup_gc *lookup_gc, uint64_t ino)
{
	/* Only attributes are invalidated, so the kernel sends no request in return. */
	return fuse_lowlevel_notify_inval_inode(lookup_gc->fuse, ino, -1, 0) != -ENOENT;
}

/* op_forget finds no inode if a forget arrives after the inode was freed here. */
static void lookup_gc_walk(struct lookup_gc *lookup_gc)
{
	struct fs *fs = lookup_gc->fs;
	uint32_t slot = 0;
	struct inode *inode;

	while ((inode = inode_table_next(fs->inodes, &slot))) {
		if (inode != fs->root && inode_has_only_lookups(inode) &&
		    !kernel_knows_inode(lookup_gc, inode->ino))
			inode_forget(fs, inode, UINT64_MAX);
		inode_put(fs, inode, 1);
	}
}

static void *lookup_gc_thread_main(void *pointer)
{
	struct lookup_gc *lookup_gc = pointer;
	struct pollfd stop = {.fd = lookup_gc->stop_fd, .events = POLLIN};
	int ms = FIRST_MS / 2;

	do {
		lookup_gc_walk(lookup_gc);
		ms = ms * 2 < LAST_MS ? ms * 2 : LAST_MS;
	} while (poll(&stop, 1, ms) <= 0);
	worker_end();
	return NULL;
}

static void lookup_gc_free(struct lookup_gc *lookup_gc)
{
	if (lookup_gc->stop_fd >= 0)
		close(lookup_gc->stop_fd);
	free(lookup_gc);
}

struct lookup_gc *lookup_gc_start(struct fs *fs, struct fuse_session *fuse)
{
	struct lookup_gc *lookup_gc = calloc(1, sizeof(*lookup_gc));

	if (!lookup_gc)
		return NULL;
	lookup_gc->fs = fs;
	lookup_gc->fuse = fuse;
	lookup_gc->stop_fd = eventfd(0, EFD_CLOEXEC);
	if (lookup_gc->stop_fd >= 0 &&
	    pthread_create(&lookup_gc->thread, NULL, lookup_gc_thread_main, lookup_gc) == 0)
		return lookup_gc;
	log_warn(
	    "cannot start the thread that frees files forgotten by the kernel: their memory stays");
	lookup_gc_free(lookup_gc);
	return NULL;
}

void lookup_gc_stop(struct lookup_gc *lookup_gc)
{
	if (!lookup_gc)
		return;
	eventfd_write(lookup_gc->stop_fd, 1);
	pthread_join(lookup_gc->thread, NULL);
	lookup_gc_free(lookup_gc);
}
