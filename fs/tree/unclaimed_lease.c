/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
#include "fs/tree/unclaimed_lease.h"

#include <errno.h>
#include <stdlib.h>

#include "common/cleanup.h"
#include "common/hash.h"
#include "fs/core/fs.h"
#include "fs/file/export.h"
#include "fs/tree/host_out.h"
#include "fs/tree/inode_lease.h"

struct orphan {
	UT_hash_handle hh;
	struct inode *inode;
	uint32_t leases;
};

int orphans_add(struct fs *fs, struct inode *inode)
{
	struct orphan *orphan = inode->holds ? malloc(sizeof(*orphan)) : NULL;

	if (!inode->holds)
		return 0;
	if (!orphan)
		return -ENOMEM;
	*orphan = (struct orphan){.inode = inode, .leases = inode->holds};
	if (HASH_ADD_NEW(hh, fs->orphans.by_inode, inode, sizeof(void *), orphan))
		return 0;
	free(orphan);
	return -ENOMEM;
}

bool orphan_adopt(struct fs *fs, struct inode *inode)
{
	struct orphan *orphan = NULL;

	LOCKED(&fs->orphans.lock);
	HASH_FIND_PTR(fs->orphans.by_inode, &inode, orphan);
	if (!orphan || !orphan->leases)
		return false;
	orphan->leases--;
	return true;
}

static void let_go(struct fs *fs, struct orphan *orphan)
{
	if (orphan->leases) {
		file_unlease(orphan->inode->file, orphan->leases);
		host_out_settle(fs, orphan->inode);
		inode_unhold(fs, orphan->inode, orphan->leases);
		inode_put(fs, orphan->inode, orphan->leases);
	}
	free(orphan);
}

void orphans_end(struct fs *fs)
{
	struct orphan *orphan, *next;

	pthread_mutex_lock(&fs->orphans.lock);
	struct orphan *all = fs->orphans.by_inode;

	fs->orphans.by_inode = NULL;
	pthread_mutex_unlock(&fs->orphans.lock);
	HASH_ITER (hh, all, orphan, next) {
		HASH_DEL(all, orphan);
		let_go(fs, orphan);
	}
}
