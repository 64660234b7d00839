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
#include "fs/tree/inode.h"
#include "fs/tree/inode_lease.h"

struct unclaimed_leases {
	pthread_mutex_t lock;
	struct unclaimed_lease *by_inode;
};

struct unclaimed_lease {
	UT_hash_handle hh;
	struct inode *inode;
	uint32_t leases;
};

int unclaimed_leases_open(struct fs *fs)
{
	fs->unclaimed_leases = calloc(1, sizeof(*fs->unclaimed_leases));
	if (!fs->unclaimed_leases)
		return -ENOMEM;
	pthread_mutex_init(&fs->unclaimed_leases->lock, NULL);
	return 0;
}

void unclaimed_leases_close(struct fs *fs)
{
	pthread_mutex_destroy(&fs->unclaimed_leases->lock);
	free(fs->unclaimed_leases);
}

int unclaimed_leases_add(struct fs *fs, struct inode *inode)
{
	struct unclaimed_lease *unclaimed_lease =
	    inode->lease_refs ? malloc(sizeof(*unclaimed_lease)) : NULL;

	if (!inode->lease_refs)
		return 0;
	if (!unclaimed_lease)
		return -ENOMEM;
	*unclaimed_lease = (struct unclaimed_lease){.inode = inode, .leases = inode->lease_refs};
	if (HASH_ADD_NEW(hh, fs->unclaimed_leases->by_inode, inode, sizeof(void *),
			 unclaimed_lease))
		return 0;
	free(unclaimed_lease);
	return -ENOMEM;
}

bool unclaimed_lease_adopt(struct fs *fs, struct inode *inode)
{
	struct unclaimed_lease *unclaimed_lease = NULL;

	scoped_lock(&fs->unclaimed_leases->lock);
	HASH_FIND_PTR(fs->unclaimed_leases->by_inode, &inode, unclaimed_lease);
	if (!unclaimed_lease || !unclaimed_lease->leases)
		return false;
	unclaimed_lease->leases--;
	return true;
}

static void unclaimed_lease_release(struct fs *fs, struct unclaimed_lease *unclaimed_lease)
{
	if (unclaimed_lease->leases) {
		file_unlease(unclaimed_lease->inode->file, unclaimed_lease->leases);
		host_out_update_accounting(fs, unclaimed_lease->inode);
		inode_lease_put(fs, unclaimed_lease->inode, unclaimed_lease->leases);
		inode_put(fs, unclaimed_lease->inode, unclaimed_lease->leases);
	}
	free(unclaimed_lease);
}

void unclaimed_leases_end(struct fs *fs)
{
	struct unclaimed_lease *unclaimed_lease, *next;

	pthread_mutex_lock(&fs->unclaimed_leases->lock);
	struct unclaimed_lease *all = fs->unclaimed_leases->by_inode;

	fs->unclaimed_leases->by_inode = NULL;
	pthread_mutex_unlock(&fs->unclaimed_leases->lock);
	HASH_ITER (hh, all, unclaimed_lease, next) {
		HASH_DEL(all, unclaimed_lease);
		unclaimed_lease_release(fs, unclaimed_lease);
	}
}
