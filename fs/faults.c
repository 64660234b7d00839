/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
#include "fs/faults.h"

#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <sys/stat.h>

#include "backend/mend.h"
#include "common/log.h"
#include "fs/fs.h"
#include "fs/tree.h"
#include "fs/worker.h"

/* Lines in the log about files at most; the rest is a number. */
#define NAMED_MAX 100

struct losses {
	uint64_t files, lost;
};

static void name_lost(struct fs *fs, struct inode *inode, uint64_t bytes)
{
	char path[PATH_MAX];

	if (tree_path(fs, inode, path, sizeof(path)) < 0)
		snprintf(path, sizeof(path), "/ a file without a name, inode %" PRIu64, inode->ino);
	log_error("%s%s: lost: %" PRIu64 " bytes of its memory cannot be read any more: EIO "
		  "until it is overwritten as a whole (truncated) or removed",
		  fs->options.mountpoint, path, bytes);
}

static struct losses look(struct fs *fs, const struct device *device)
{
	struct losses losses = {0};
	struct inode *inode;
	uint32_t slot = 0;

	while ((inode = inode_table_next(&fs->inodes, &slot))) {
		struct file *file = S_ISREG(inode->mode) ? inode->file : NULL;

		if (file && file_volume(file)->device == device) {
			uint64_t bytes = file_lost(file);

			losses.files++;
			losses.lost += bytes > 0;
			if (bytes && losses.lost <= NAMED_MAX)
				name_lost(fs, inode, bytes);
		}
		inode_put(fs, inode, 1);
	}
	return losses;
}

static void mended(void *of, struct device *device, int64_t ms)
{
	struct fs *fs = of;
	struct losses losses = look(fs, device);

	if (losses.lost > NAMED_MAX)
		log_error("gpu%u: and %" PRIu64 " more files", device->index,
			  losses.lost - NAMED_MAX);
	log_warn("gpu%u: back after %" PRId64 " ms: %" PRIu64 " files served again, %" PRIu64
		 " lost",
		 device->index, ms, losses.files - losses.lost, losses.lost);
	worker_end();
}

static void given_up(void *of, struct device *device)
{
	(void)of;
	(void)device;
}

void faults_start(struct fs *fs)
{
	const struct mend_watch watch = {.mended = mended, .given_up = given_up, .of = fs};

	mend_start(fs->backend, &watch);
}

void faults_end(struct fs *fs)
{
	mend_end(fs->backend);
}
