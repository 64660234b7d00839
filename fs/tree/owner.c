/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
#include "fs/tree/owner.h"

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

static int kind_take(struct fs *fs, uid_t uid, enum ledger_kind kind, uint64_t amount,
		     enum owner_charge charge)
{
	return charge == OWNER_ALWAYS ? ledger_restore(fs, uid, kind, amount)
				      : ledger_take(fs, uid, kind, amount);
}

/* The owner's lock is held. */
static int metadata_take(struct fs *fs, struct inode *inode, uint32_t bytes,
			 enum owner_charge charge)
{
	int error = kind_take(fs, inode->uid, LEDGER_METADATA, bytes, charge);

	if (!error)
		inode->metadata += bytes;
	return error;
}

/* The owner's lock is held. */
static void metadata_give(struct fs *fs, struct inode *inode, uint32_t bytes)
{
	inode->metadata -= bytes;
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
	return (enum ledger_kind)(LEDGER_SPILL_HOST + (place - PLACE_HOST));
}

_Static_assert(LEDGER_SPILL_DISK - LEDGER_SPILL_HOST == PLACE_DISK - PLACE_HOST &&
		   PLACES == PLACE_DISK + 1,
	       "the kinds are in the order of the places");

int owner_take_span(struct fs *fs, struct inode *inode, enum memory_place place, uint64_t bytes,
		    enum owner_charge bytes_charge, enum owner_charge descriptors_charge)
{
	uint64_t descriptors = ledger_span_descriptors(bytes);

	scoped_lock(owner_lock(inode));
	uid_t uid = inode->uid;
	int error = kind_take(fs, uid, LEDGER_DESCRIPTORS, descriptors, descriptors_charge);

	if (!error && place != PLACE_GPU) {
		error = kind_take(fs, uid, owner_place_kind(place), bytes, bytes_charge);
		if (error)
			ledger_give(fs, uid, LEDGER_DESCRIPTORS, descriptors);
	}
	if (error)
		return error;
	inode->descriptors += (uint32_t)descriptors;
	if (place != PLACE_GPU)
		inode->spilled[place - PLACE_HOST] += (uint32_t)(bytes / POOL_BLOCK_MIN);
	return 0;
}

void owner_give_span(struct fs *fs, struct inode *inode, enum memory_place place, uint64_t bytes)
{
	uint64_t descriptors = ledger_span_descriptors(bytes);

	scoped_lock(owner_lock(inode));
	inode->descriptors -= (uint32_t)descriptors;
	ledger_give(fs, inode->uid, LEDGER_DESCRIPTORS, descriptors);
	if (place == PLACE_GPU)
		return;
	inode->spilled[place - PLACE_HOST] -= (uint32_t)(bytes / POOL_BLOCK_MIN);
	ledger_give(fs, inode->uid, owner_place_kind(place), bytes);
}

/* The owner's lock is held. */
static uint64_t place_bytes(const struct inode *inode, enum memory_place place)
{
	return inode->spilled[place - PLACE_HOST] * POOL_BLOCK_MIN;
}

/* The owner's lock is held. Gives back what the inode is charged for in the places before end. */
static void charges_give(struct fs *fs, const struct inode *inode, uid_t uid, enum memory_place end)
{
	ledger_give(fs, uid, LEDGER_METADATA, inode->metadata);
	ledger_give(fs, uid, LEDGER_DESCRIPTORS, inode->descriptors);
	for (enum memory_place place = PLACE_HOST; place < end; place++)
		ledger_give(fs, uid, owner_place_kind(place), place_bytes(inode, place));
}

/* The owner's lock is held. Charges a user for all that the inode is charged for: 0 or -ENOMEM. */
static int charges_copy(struct fs *fs, const struct inode *inode, uid_t uid)
{
	int error = ledger_restore(fs, uid, LEDGER_METADATA, inode->metadata);

	if (error)
		return error;
	error = ledger_restore(fs, uid, LEDGER_DESCRIPTORS, inode->descriptors);
	if (error) {
		ledger_give(fs, uid, LEDGER_METADATA, inode->metadata);
		return error;
	}
	for (enum memory_place place = PLACE_HOST; !error && place < PLACES; place++) {
		error = ledger_restore(fs, uid, owner_place_kind(place), place_bytes(inode, place));
		if (error)
			charges_give(fs, inode, uid, place);
	}
	return error;
}

int owner_change(struct fs *fs, struct inode *inode, uid_t uid)
{
	scoped_lock(owner_lock(inode));
	if (uid == inode->uid)
		return 0;
	int error = charges_copy(fs, inode, uid);

	if (error)
		return error;
	charges_give(fs, inode, inode->uid, PLACES);
	inode->uid = uid;
	return 0;
}
