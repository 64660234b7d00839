/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
#include "fs/tree/inode_lease.h"

#include <errno.h>

#include "common/cleanup.h"
#include "fs/core/fs.h"
#include "fs/core/worker.h"
#include "fs/tree/inode_watch.h"
#include "fs/tree/record.h"

int inode_lease_get(struct fs *fs, struct inode *inode)
{
	scoped_lock(&inode->lock);
	if (inode->data_freed)
		return -ESTALE;
	inode->lease_refs++;
	record_open(fs, inode, 0);
	return 0;
}

void inode_lease_put(struct fs *fs, struct inode *inode, uint32_t lease_refs)
{
	struct inode_call call;

	inode_watch_mark_unknown(fs, inode);
	pthread_mutex_lock(&inode->lock);
	inode->lease_refs -= lease_refs;
	record_open(fs, inode, 0);
	bool idle = inode->lease_refs == 0 && inode->opens == 0;
	bool drop = inode_may_drop(fs, inode);

	pthread_mutex_unlock(&inode->lock);
	if (drop) {
		inode_drop_data(fs, inode);
	} else if (idle) {
		inode_call_init(&call, fs, inode, worker_copier(fs));
		file_trim(inode->file, &call.call);
	}
}
