/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
#include "fs/tree/inode_state.h"

#include <assert.h>
#include <sys/stat.h>

#include "fs/tree/inode.h"

/* Set by the Makefile for builds with a sanitizer. */
#ifndef GPUMEMFS_DEBUG
#define GPUMEMFS_DEBUG 0
#endif

void inode_state_check(const struct inode *inode)
{
	bool unlinked = S_ISREG(inode->mode) && inode->nlink == 0;
	bool in_use = inode->opens || inode->lease_refs;

	if (!GPUMEMFS_DEBUG)
		return;
	assert(inode->writers <= inode->opens);
	assert(unlinked || (!inode->data_freed && !inode->unlinked_open));
	assert(!unlinked || inode->data_freed != inode->unlinked_open);
	assert(!unlinked || inode->data_freed != (in_use || inode->keep_data));
}
