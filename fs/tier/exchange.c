/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* Exchanges: where a device and the places that its files leave for are full, a file whose memory
 * is needed on the device changes places with others. A file of the device leaves first, for which
 * these places keep a spare that nothing else takes. What leaves may be larger than what comes; the
 * rest of the spare then stays free on the device (pool_owe), so the next exchange begins there. */
#include <errno.h>

#include "backend/pool.h"
#include "common/cleanup.h"
#include "fs/core/fs.h"
#include "fs/file/file.h"
#include "fs/tier/internal.h"

/* At most this part of a place is kept as a spare. */
#define SPARE_PART 8

/* For small pieces of files that must have chunks of their own: exchange_chunk. */
#define SPARE_FOR_CHUNKS (16 * CHUNK_ALIGN)

/* A whole chunk of a device finds room while two chunks of the place are in exchange. */
static uint64_t spare_wanted(const struct volume *volume)
{
	return volume->max_chunk + 2 * volume->spill_chunk + SPARE_FOR_CHUNKS;
}

static void budget_set_spare(struct pool_budget *budget, uint64_t bytes)
{
	uint64_t max = budget->size / SPARE_PART / CHUNK_ALIGN * CHUNK_ALIGN;

	bytes = bytes < max ? bytes : max;
	if (bytes > budget->spare)
		budget->spare = bytes;
}

void exchange_open(struct fs *fs)
{
	for (unsigned i = 0; i < fs->n_volumes; i++) {
		struct volume *volume = &fs->volumes[i];

		if (!volume_is_tiered(volume))
			continue;
		budget_set_spare(&fs->budgets[PLACE_HOST], spare_wanted(volume));
		budget_set_spare(&fs->budgets[PLACE_DISK], spare_wanted(volume));
		pool_set_lenders(volume->pool, &fs->budgets[PLACE_HOST], &fs->budgets[PLACE_DISK]);
	}
}

void exchange_restored(struct fs *fs)
{
	for (unsigned i = 0; i < fs->n_volumes; i++)
		if (volume_is_tiered(&fs->volumes[i]))
			pool_owe(fs->volumes[i].pool, pool_lent(fs->volumes[i].pool));
}

/* The fastest of the places where the file has memory off the device; PLACES: none. */
static enum memory_place place_of(struct file *file, const struct volume *volume)
{
	enum memory_place place = PLACE_GPU;

	do
		place = volume_place_below(volume, place);
	while (place < PLACES && !file_bytes_in(file, place));
	return place;
}

/* A file leaves for the place of the requester's file, which has bytes there. */
static bool victim_exchange(struct tiers *tiers, const struct eviction *eviction,
			    enum memory_place place, uint64_t bytes)
{
	struct eviction exchange = *eviction;

	if (bytes > eviction->volume->spill_chunk)
		bytes = eviction->volume->spill_chunk;
	exchange.only_to = place;
	exchange.exchanges = true;
	exchange.may_overdraw = bytes;
	exchange.bytes_wanted = bytes > CHUNK_ALIGN ? bytes : CHUNK_ALIGN;
	exchange.bytes_freed = 0;
	exchange.departures_seen = atomic_load(&exchange.tier->departures);
	exchange.may_block = exchange.found_busy = exchange.is_served = false;
	return room_make(tiers, &exchange);
}

/* The file is on the device, but a piece of it needs a chunk of its own, because other files have
 * blocks in the same chunk. The blocks that become free are no chunk yet, so a part of the spare is
 * set aside for that. */
static bool exchange_chunk(struct tiers *tiers, const struct eviction *eviction)
{
	const struct volume *volume = eviction->volume;
	enum memory_place place = volume_place_below(volume, PLACE_GPU);
	const struct pool_budget *budget = &eviction->fs->budgets[place];
	uint64_t in_use = volume->max_chunk + 2 * volume->spill_chunk;

	return budget_overdraft(budget) + in_use < budget->spare &&
	       victim_exchange(tiers, eviction, place, 0);
}

static bool pieces_exchange(struct tiers *tiers, const struct eviction *eviction)
{
	struct inode *inode = eviction->requester->inode;
	enum memory_place place = place_of(inode->file, eviction->volume);
	struct inode_call call;
	uint64_t moved, total = 0;

	if (place == PLACES)
		return exchange_chunk(tiers, eviction);
	inode_call_init(&call, eviction->fs, inode, eviction->copier);
	call.call.exchanges = true;
	call.unasked = true;
	for (; place < PLACES; place = place_of(inode->file, eviction->volume)) {
		int rc = file_place(inode->file, &call.call, PLACE_GPU, UINT64_MAX, &moved);

		total += moved;
		if (rc != -ENOSPC ||
		    !victim_exchange(tiers, eviction, place, file_bytes_in(inode->file, place)))
			break;
	}
	return total;
}

bool exchange_file(struct tiers *tiers, const struct eviction *eviction)
{
	struct pool *pool = eviction->volume->pool;

	scoped_lock(&tiers->exchange_lock);
	uint64_t other_bytes = pool_lent(pool) - pool_owed(pool);

	pool_owe(pool, UINT64_MAX);
	bool moved = pieces_exchange(tiers, eviction);
	uint64_t lent = pool_lent(pool);

	pool_owe(pool, lent > other_bytes ? lent - other_bytes : 0);
	return moved;
}
