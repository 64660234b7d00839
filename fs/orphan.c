/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
#include "fs/orphan.h"

#include <errno.h>
#include <stdlib.h>

#include "common/defer.h"
#include "fs/file_share.h"
#include "fs/fs.h"
#include "fs/hold.h"

struct orphan {
	struct orphan *next;
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
	*orphan =
	    (struct orphan){.next = fs->orphans.first, .inode = inode, .leases = inode->holds};
	fs->orphans.first = orphan;
	return 0;
}

bool orphan_adopt(struct fs *fs, struct inode *inode)
{
	LOCKED(&fs->orphans.lock);
	for (struct orphan *orphan = fs->orphans.first; orphan; orphan = orphan->next) {
		if (orphan->inode == inode && orphan->leases) {
			orphan->leases--;
			return true;
		}
	}
	return false;
}

static void let_go(struct fs *fs, struct orphan *orphan)
{
	if (orphan->leases) {
		file_unlease(orphan->inode->file, orphan->leases);
		inode_unhold(fs, orphan->inode, orphan->leases);
		inode_put(fs, orphan->inode, orphan->leases);
	}
	free(orphan);
}

void orphans_end(struct fs *fs)
{
	pthread_mutex_lock(&fs->orphans.lock);
	struct orphan *first = fs->orphans.first;

	fs->orphans.first = NULL;
	pthread_mutex_unlock(&fs->orphans.lock);
	while (first) {
		struct orphan *next = first->next;

		let_go(fs, first);
		first = next;
	}
}
