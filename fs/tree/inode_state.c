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
	bool in_use = inode->uses.opens || inode->uses.leases;

	if (!GPUMEMFS_DEBUG)
		return;
	assert(inode->uses.writers <= inode->uses.opens);
	assert(unlinked || (!inode->uses.data_freed && !inode->uses.unlinked_open));
	assert(!unlinked || inode->uses.data_freed != inode->uses.unlinked_open);
	assert(!unlinked || inode->uses.data_freed != (in_use || inode->uses.keep_data));
}
