/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
#include "fs/tree/owner.h"

#include <errno.h>
#include <pthread.h>

#include "common/cacheline.h"
#include "common/cleanup.h"
#include "fs/core/fs.h"
#include "fs/ledger/ledger.h"
#include "fs/tree/inode.h"

#define OWNER_LOCKS 64

/* inode->lock cannot guard the charges, because some charges are made under inode->lock and others
 * are not. */
static pthread_mutex_t *owner_lock(const struct inode *inode)
{
	static pthread_mutex_t owner_locks[OWNER_LOCKS] = {[0 ... OWNER_LOCKS - 1] =
							       PTHREAD_MUTEX_INITIALIZER};

	return &owner_locks[(uintptr_t)inode / CACHELINE_ALIGN % OWNER_LOCKS];
}

/* The owner's lock is held. */
static int metadata_take(struct fs *fs, struct inode *inode, uint32_t bytes,
			 enum owner_charge charge)
{
	struct ledger_charge metadata = {LEDGER_METADATA, bytes, charge == OWNER_ALWAYS};
	int error = ledger_take_all(fs, inode->uid, &metadata, 1);

	if (!error)
		inode->charges.metadata += bytes;
	return error;
}

/* The owner's lock is held. */
static void metadata_give(struct fs *fs, struct inode *inode, uint32_t bytes)
{
	inode->charges.metadata -= bytes;
	ledger_give(fs, inode->uid, LEDGER_METADATA, bytes);
}

int owner_take_metadata(struct fs *fs, struct inode *inode, uint32_t bytes,
			enum owner_charge charge)
{
	scoped_lock(owner_lock(inode));
	return bytes ? metadata_take(fs, inode, bytes, charge) : 0;
}

void owner_give_metadata(struct fs *fs, struct inode *inode, uint32_t bytes)
{
	scoped_lock(owner_lock(inode));
	metadata_give(fs, inode, bytes);
}

enum ledger_kind owner_place_kind(enum memory_place place)
{
	return (enum ledger_kind)(LEDGER_GPU + place);
}

_Static_assert(PLACE_GPU == 0 && LEDGER_SPILL_HOST - LEDGER_GPU == PLACE_HOST &&
		   LEDGER_SPILL_DISK - LEDGER_GPU == PLACE_DISK && PLACES == PLACE_DISK + 1,
	       "the kinds are in the order of the places");

int owner_take_span(struct fs *fs, struct inode *inode, enum memory_place place, uint64_t bytes,
		    enum owner_charge bytes_charge, enum owner_charge descriptors_charge)
{
	uint64_t descriptors = ledger_span_descriptors(bytes);
	const struct ledger_charge charges[] = {
	    {LEDGER_DESCRIPTORS, descriptors, descriptors_charge == OWNER_ALWAYS},
	    {owner_place_kind(place), bytes, bytes_charge == OWNER_ALWAYS},
	};

	scoped_lock(owner_lock(inode));
	if (bytes / POOL_BLOCK_MIN > UINT32_MAX - inode->charges.placed[place] ||
	    descriptors > UINT32_MAX - inode->charges.descriptors)
		return -EFBIG;
	int error = ledger_take_all(fs, inode->uid, charges, 2);

	if (error)
		return error;
	inode->charges.descriptors += (uint32_t)descriptors;
	inode->charges.placed[place] += (uint32_t)(bytes / POOL_BLOCK_MIN);
	return 0;
}

void owner_give_span(struct fs *fs, struct inode *inode, enum memory_place place, uint64_t bytes)
{
	uint64_t descriptors = ledger_span_descriptors(bytes);

	scoped_lock(owner_lock(inode));
	inode->charges.descriptors -= (uint32_t)descriptors;
	ledger_give(fs, inode->uid, LEDGER_DESCRIPTORS, descriptors);
	inode->charges.placed[place] -= (uint32_t)(bytes / POOL_BLOCK_MIN);
	ledger_give(fs, inode->uid, owner_place_kind(place), bytes);
}

int owner_take_object(struct fs *fs, struct inode *inode, enum system_tmpfs tmpfs,
		      enum owner_charge charge)
{
	bool always = charge == OWNER_ALWAYS, own_tmpfs = tmpfs == SYSTEM_TMPFS_OWN;
	const struct ledger_charge charges[] = {{LEDGER_HOST_FILES, 1, always},
						{LEDGER_HOST_TMPFS, own_tmpfs, always},
						{LEDGER_DESCRIPTORS, LEDGER_DESCRIPTOR, always}};

	scoped_lock(owner_lock(inode));
	int error = ledger_take_all(fs, inode->uid, charges, 3);

	if (error)
		return error;
	inode->charges.objects++;
	inode->charges.tmpfs += own_tmpfs;
	inode->charges.descriptors += LEDGER_DESCRIPTOR;
	return 0;
}

/* The owner's lock is held. */
static void tmpfs_give(struct fs *fs, struct inode *inode)
{
	inode->charges.tmpfs--;
	ledger_give(fs, inode->uid, LEDGER_HOST_TMPFS, 1);
}

void owner_give_tmpfs(struct fs *fs, struct inode *inode)
{
	scoped_lock(owner_lock(inode));
	tmpfs_give(fs, inode);
}

void owner_give_object(struct fs *fs, struct inode *inode, enum system_tmpfs tmpfs)
{
	scoped_lock(owner_lock(inode));
	if (tmpfs == SYSTEM_TMPFS_OWN)
		tmpfs_give(fs, inode);
	inode->charges.objects--;
	inode->charges.descriptors -= LEDGER_DESCRIPTOR;
	ledger_give(fs, inode->uid, LEDGER_HOST_FILES, 1);
	ledger_give(fs, inode->uid, LEDGER_DESCRIPTORS, LEDGER_DESCRIPTOR);
}

int owner_charge_bytes(struct fs *fs, struct inode *inode, int64_t bytes)
{
	scoped_lock(owner_lock(inode));
	int error = bytes > 0 ? ledger_restore(fs, inode->uid, LEDGER_BYTES, (uint64_t)bytes) : 0;

	if (error)
		return error;
	if (bytes < 0)
		ledger_give(fs, inode->uid, LEDGER_BYTES, (uint64_t)-bytes);
	atomic_fetch_add(&inode->charges.bytes, (uint64_t)bytes);
	return 0;
}

#define CHARGES (5 + PLACES)

/* The owner's lock is held. All that the owner of an inode is charged for. */
static void charges_of(const struct inode *inode, struct ledger_charge charges[CHARGES])
{
	charges[0] = (struct ledger_charge){LEDGER_METADATA, inode->charges.metadata, true};
	charges[1] = (struct ledger_charge){LEDGER_DESCRIPTORS, inode->charges.descriptors, true};
	charges[2] = (struct ledger_charge){LEDGER_BYTES, atomic_load(&inode->charges.bytes), true};
	charges[3] = (struct ledger_charge){LEDGER_HOST_FILES, inode->charges.objects, true};
	charges[4] = (struct ledger_charge){LEDGER_HOST_TMPFS, inode->charges.tmpfs, true};
	for (enum memory_place place = PLACE_GPU; place < PLACES; place++)
		charges[5 + place] = (struct ledger_charge){
		    owner_place_kind(place), inode->charges.placed[place] * POOL_BLOCK_MIN, true};
}

int owner_change(struct fs *fs, struct inode *inode, uid_t uid)
{
	struct ledger_charge charges[CHARGES];

	scoped_lock(owner_lock(inode));
	if (uid == inode->uid)
		return 0;
	charges_of(inode, charges);
	int error = ledger_take_all(fs, uid, charges, CHARGES);

	if (error)
		return error;
	ledger_give_all(fs, inode->uid, charges, CHARGES);
	inode->uid = uid;
	return 0;
}
