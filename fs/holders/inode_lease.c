/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
#include "fs/holders/inode_lease.h"

#include <errno.h>
#include <stdlib.h>

#include "common/cleanup.h"
#include "common/hash.h"
#include "fs/core/fs.h"
#include "fs/core/worker.h"
#include "fs/file/export.h"
#include "fs/holders/host_out.h"
#include "fs/tree/inode.h"
#include "fs/tree/inode_hooks.h"
#include "fs/tree/inode_unseen.h"
#include "fs/tree/record.h"

int inode_lease_get(struct fs *fs, struct inode *inode)
{
	scoped_lock(&inode->lock);
	if (inode->uses.data_freed)
		return -ESTALE;
	inode->uses.leases++;
	record_open(fs, inode, 0);
	return 0;
}

void inode_lease_put(struct fs *fs, struct inode *inode, uint32_t leases)
{
	struct inode_call call;

	inode_notify_unseen_stores(fs, inode);
	pthread_mutex_lock(&inode->lock);
	inode->uses.leases -= leases;
	record_open(fs, inode, 0);
	bool idle = inode->uses.leases == 0 && inode->uses.opens == 0;
	bool drop = inode_may_drop(fs, inode);

	pthread_mutex_unlock(&inode->lock);
	if (drop) {
		inode_drop_data(fs, inode);
	} else if (idle) {
		inode_call_init(&call, fs, inode, worker_copier(fs));
		file_trim(inode->file, &call.call);
	}
}

/* A count that has reached UINT16_MAX stays there: how many leases are left is not known. */
static void unseen_leases_add(struct inode *inode, int change)
{
	uint16_t count = atomic_load(&inode->unseen.leases);

	while (count < UINT16_MAX)
		if (atomic_compare_exchange_weak(&inode->unseen.leases, &count,
						 (uint16_t)(count + change)))
			return;
}

void inode_unseen_begin(struct inode *inode)
{
	unseen_leases_add(inode, 1);
}

/* mtime first: a reply that the kernel may cache has the new mtime. */
void inode_unseen_end(struct inode *inode)
{
	pthread_mutex_lock(&inode->lock);
	inode_unseen_touch(inode);
	pthread_mutex_unlock(&inode->lock);
	unseen_leases_add(inode, -1);
}

struct unclaimed_leases {
	pthread_mutex_t lock;
	struct unclaimed_lease *by_inode;
};

struct unclaimed_lease {
	UT_hash_handle hh;
	struct inode *inode;
	uint32_t leases;
};

static FS_STATE(struct unclaimed_leases, unclaimed_leases_of, FS_UNCLAIMED_LEASES)

    int unclaimed_leases_open(struct fs *fs)
{
	struct unclaimed_leases *unclaimed = calloc(1, sizeof(*unclaimed));

	if (!unclaimed)
		return -ENOMEM;
	pthread_mutex_init(&unclaimed->lock, NULL);
	fs->states[FS_UNCLAIMED_LEASES] = unclaimed;
	return 0;
}

void unclaimed_leases_close(struct fs *fs)
{
	struct unclaimed_leases *unclaimed = unclaimed_leases_of(fs);
	struct unclaimed_lease *lease, *next;

	HASH_ITER (hh, unclaimed->by_inode, lease, next) {
		HASH_DEL(unclaimed->by_inode, lease);
		free(lease);
	}
	pthread_mutex_destroy(&unclaimed->lock);
	free(unclaimed);
}

int unclaimed_leases_add(struct fs *fs, struct inode *inode)
{
	struct unclaimed_lease *lease = inode->uses.leases ? malloc(sizeof(*lease)) : NULL;

	if (!inode->uses.leases)
		return 0;
	if (!lease)
		return -ENOMEM;
	*lease = (struct unclaimed_lease){.inode = inode, .leases = inode->uses.leases};
	if (HASH_ADD_NEW(hh, unclaimed_leases_of(fs)->by_inode, inode, sizeof(void *), lease))
		return 0;
	free(lease);
	return -ENOMEM;
}

bool unclaimed_lease_adopt(struct fs *fs, struct inode *inode)
{
	struct unclaimed_leases *unclaimed = unclaimed_leases_of(fs);
	struct unclaimed_lease *lease = NULL;

	scoped_lock(&unclaimed->lock);
	HASH_FIND_PTR(unclaimed->by_inode, &inode, lease);
	if (!lease || !lease->leases)
		return false;
	lease->leases--;
	return true;
}

static void unclaimed_lease_release(struct fs *fs, struct unclaimed_lease *lease)
{
	if (lease->leases) {
		file_unlease(lease->inode->file, lease->leases);
		host_out_update_accounting(fs, lease->inode);
		inode_lease_put(fs, lease->inode, lease->leases);
		if (!lease->inode->uses.leases)
			inode_notify_producer_ended(fs, lease->inode);
		inode_put(fs, lease->inode, lease->leases);
	}
	free(lease);
}

void unclaimed_leases_end(struct fs *fs)
{
	struct unclaimed_leases *unclaimed = unclaimed_leases_of(fs);
	struct unclaimed_lease *lease, *next;

	pthread_mutex_lock(&unclaimed->lock);
	struct unclaimed_lease *all = unclaimed->by_inode;

	unclaimed->by_inode = NULL;
	pthread_mutex_unlock(&unclaimed->lock);
	HASH_ITER (hh, all, lease, next) {
		HASH_DEL(all, lease);
		unclaimed_lease_release(fs, lease);
	}
}
