/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* Restores files whose memory is not found as files with missing memory (fs/file/core/missing.h);
 * every other file is restored in full. */
#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>

#include "common/log.h"
#include "fs/file/core/missing.h"
#include "fs/recovery/internal.h"
#include "fs/tree/tree.h"

/* The log names at most this many files and counts the others. */
#define NAMED_MAX 1000

bool restore_is_missing(int error)
{
	switch (error) {
	case 0:
	case -ENOMEM:
	case -EMFILE:
	case -ENFILE:
	case -EPIPE: /* the keeper does not answer: the memory may exist */
		return false;
	default:
		return error < 0;
	}
}

static void log_missing(struct restore *restore, struct inode *inode, int error)
{
	char path[TREE_ABSOLUTE_MAX];

	if (restore->n_missing++ >= NAMED_MAX)
		return;
	tree_path_absolute(restore->fs, inode, path);
	if (error == -EUCLEAN)
		log_error("%s: lost: the journal's record of its memory is inconsistent. The "
			  "file gives EIO until it is emptied or removed",
			  path);
	else
		log_error(
		    "%s: the memory cannot be restored: %s. The file gives EIO until it is emptied "
		    "or removed, or a later daemon finds its memory",
		    path, strerror(-error));
}

void restore_missing(struct restore *restore, struct inode *inode, int error)
{
	file_missing_mark(inode->file, error);
	log_missing(restore, inode, error);
}

void restore_missing_end(const struct restore *restore)
{
	if (restore->n_missing > NAMED_MAX)
		log_error("%s: and %" PRIu64 " more files", restore->fs->options.mountpoint,
			  restore->n_missing - NAMED_MAX);
}
