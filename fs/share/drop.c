/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* Drops leases before their holders end them, so that the files can be changed again. */
#include <stddef.h>

#include "common/clock.h"
#include "fs/holders/host_out.h"
#include "fs/share/internal.h"
#include "fs/share/lease_list.h"
#include "fs/tree/inode.h"

/* Under the list's lock. A private copy is not the file's memory. */
static bool lease_drop(void *pointer, struct lease_entry *entry)
{
	struct share_lease *lease =
	    (struct share_lease *)((char *)entry - offsetof(struct share_lease, listed));
	struct share *share = pointer;

	if (lease->private)
		return false;
	file_lease_drop(lease->inode->file, atomic_load(&lease->kind));
	atomic_store(&lease->kind, FILE_LEASE_DROPPED);
	persist_lease_set_kind(share->persist, lease->slot, FILE_LEASE_DROPPED);
	return true;
}

uint64_t share_drop(struct share *share, struct inode *inode, int64_t cutoff)
{
	uint64_t dropped =
	    lease_list_drop(lease_list_of(share->fs), inode, cutoff, lease_drop, share);

	if (dropped) {
		host_out_update_accounting(share->fs, inode);
		delegations_drop(share, inode->ino);
	}
	return dropped;
}

bool share_drop_expired(struct fs *fs, struct inode *inode)
{
	struct share *share = share_of(fs);

	return share && fs->options.lease_timeout &&
	       share_drop(share, inode, clock_ns() - fs->options.lease_timeout * CLOCK_SECOND + 1) >
		   0;
}
