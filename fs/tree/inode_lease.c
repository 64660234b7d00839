/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
#include "fs/tree/inode_lease.h"

#include <errno.h>

#include "common/cleanup.h"
#include "fs/core/fs.h"
#include "fs/core/worker.h"
#include "fs/spool/spool.h"
#include "fs/tree/log.h"

int inode_hold(struct fs *fs, struct inode *inode)
{
	LOCKED(&inode->lock);
	if (inode->dropped)
		return -ESTALE;
	inode->holds++;
	record_open(fs, inode, 0);
	return 0;
}

void inode_unhold(struct fs *fs, struct inode *inode, uint32_t holds)
{
	struct inode_call call;

	spool_suspect(inode);
	pthread_mutex_lock(&inode->lock);
	inode->holds -= holds;
	record_open(fs, inode, 0);
	bool idle = inode->holds == 0 && inode->opens == 0;
	bool drop = inode_may_drop(fs, inode);

	pthread_mutex_unlock(&inode->lock);
	if (drop) {
		inode_drop_data(fs, inode);
	} else if (idle) {
		inode_call_init(&call, fs, inode, worker_copier(fs));
		file_trim(inode->file, &call.call);
	}
}
