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

/* At once, for what the last daemon left; later for what is unlinked since, of which we count more
 * lookups than the kernel will forget. */
#define FIRST_MS 1000
#define LAST_MS	 60000

struct sweep {
	struct fs *fs;
	struct fuse_session *fuse;
	int stop_fd;
	pthread_t thread;
};

/* Nobody can come by it any more but who has it already. */
static bool is_left(struct inode *inode)
{
	LOCKED(&inode->lock);
	return !inode->links && !inode->opens && !inode->holds &&
	       atomic_load(&inode->figures->lookups) > 0;
}

static bool is_known(struct sweep *sweep, uint64_t ino)
{
	/* Nothing is invalidated but attributes: no request comes of it. */
	return fuse_lowlevel_notify_inval_inode(sweep->fuse, ino, -1, 0) != -ENOENT;
}

/* What is on its way about one of these, which op_forget looks for, finds nothing to take. */
static void look(struct sweep *sweep)
{
	struct fs *fs = sweep->fs;
	uint32_t slot = 0;
	struct inode *inode;

	while ((inode = inode_table_next(&fs->inodes, &slot))) {
		if (inode != fs->root && is_left(inode) && !is_known(sweep, inode->ino))
			inode_forget(fs, inode, UINT64_MAX);
		inode_put(fs, inode, 1);
	}
}

static void *run(void *pointer)
{
	struct sweep *sweep = pointer;
	struct pollfd stop = {.fd = sweep->stop_fd, .events = POLLIN};
	int ms = FIRST_MS / 2;

	do {
		look(sweep);
		ms = ms * 2 < LAST_MS ? ms * 2 : LAST_MS;
	} while (poll(&stop, 1, ms) <= 0);
	worker_end();
	return NULL;
}

static void sweep_free(struct sweep *sweep)
{
	if (sweep->stop_fd >= 0)
		close(sweep->stop_fd);
	free(sweep);
}

struct sweep *sweep_start(struct fs *fs, struct fuse_session *fuse)
{
	struct sweep *sweep = calloc(1, sizeof(*sweep));

	if (!sweep)
		return NULL;
	sweep->fs = fs;
	sweep->fuse = fuse;
	sweep->stop_fd = eventfd(0, EFD_CLOEXEC);
	if (sweep->stop_fd >= 0 && pthread_create(&sweep->thread, NULL, run, sweep) == 0)
		return sweep;
	log_warn("no thread to look for files that the kernel has forgotten: their memory stays");
	sweep_free(sweep);
	return NULL;
}

void sweep_stop(struct sweep *sweep)
{
	if (!sweep)
		return;
	eventfd_write(sweep->stop_fd, 1);
	pthread_join(sweep->thread, NULL);
	sweep_free(sweep);
}
