/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
#include "fs/fuse/lookup_gc.h"

#include <errno.h>

#include "common/cleanup.h"
#include "common/log.h"
#include "fs/core/fs.h"
#include "fs/core/worker.h"
#include "fs/fuse/internal.h"
#include "fs/tree/inode.h"
#include "fs/tree/inode_table.h"

/* The first walk through the inodes begins at once, for inodes that the last daemon left; the waits
 * between walks double from FIRST_MS to LAST_MS. Later walks are for inodes that were unlinked
 * since: their count of lookups is greater than the number that the kernel will forget. */
#define FIRST_MS 1000
#define LAST_MS	 60000

/* Whether no name, handle or lease refers to the inode: no new lookup is possible, and only the
 * kernel may still know the inode. */
static bool inode_has_only_lookups(struct inode *inode)
{
	scoped_lock(&inode->lock);
	return !inode->links && !inode->uses.opens && !inode->uses.leases &&
	       atomic_load(&inode->fields->lookups) > 0;
}

static bool kernel_knows_inode(const struct session *session, uint64_t ino)
{
	/* Only attributes are invalidated, so the kernel sends no request in return. */
	return fuse_lowlevel_notify_inval_inode(session->fuse, ino, -1, 0) != -ENOENT;
}

/* op_forget finds no inode if a forget arrives after the inode was freed here. */
static void lookup_gc_walk(const struct session *session)
{
	struct fs *fs = session->fs;
	uint32_t slot = 0;
	struct inode *inode;

	while ((inode = inode_table_next(fs->inodes, &slot))) {
		if (inode != fs->root && inode_has_only_lookups(inode) &&
		    !kernel_knows_inode(session, inode->ino))
			inode_forget(fs, inode, UINT64_MAX);
		inode_put(fs, inode, 1);
	}
}

static void lookup_gc_work(struct background *background)
{
	int ms = FIRST_MS / 2;

	do {
		lookup_gc_walk(background->context);
		ms = ms * 2 < LAST_MS ? ms * 2 : LAST_MS;
	} while (background_wait(background, ms));
	worker_end();
}

void lookup_gc_start(struct session *session)
{
	if (background_start(&session->lookup_gc, lookup_gc_work, session))
		log_warn("cannot start the thread that frees files forgotten by the kernel: their "
			 "memory stays");
}
