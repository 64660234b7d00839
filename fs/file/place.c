/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* Files in gpuN/: moving extents between the device, system memory and the disk. docs/tiers.md has
 * the steps and what a crash leaves after each. */
#include <errno.h>

#include "fs/core/worker.h"
#include "fs/file/core/missing.h"
#include "fs/file/core/record.h"
#include "fs/file/internal.h"

/* A request that was interrupted ends after about so many bytes. */
#define PIECE_BYTES (64ULL << 20)

/* A move of extents from any place of a set (bits 1 << place) to another place. */
struct placing {
	unsigned from;
	enum memory_place to;
	bool over_quota; /* what processes keep of the extents has no room in a quota */
	/* Not NULL: extents in chunks that pass this test move within their place instead. */
	bool (*renews)(const struct chunk *chunk);
	uint64_t renewed_end; /* the end of the last such extent */
};

static struct placing placing_all_to(enum memory_place place)
{
	return (struct placing){.from = ~(1U << place), .to = place};
}

static bool span_is_placed(const struct placing *placing, const struct span *span)
{
	return !(placing->from >> span->chunk->place & 1);
}

/* The first extent to move. On the way back to the device also the chunks behind the extent, up to
 * max_bytes together, which make a single chunk there. */
static bool run_find(const struct file *file, const struct placing *placing, uint64_t max_bytes,
		     struct device_range *run)
{
	const struct extents *extents = &file->extents;
	uint32_t i = 0;

	while (i < extents->count && span_is_placed(placing, &extents->at[i].span))
		i++;
	if (i == extents->count)
		return false;
	*run = (struct device_range){extents->at[i].offset, extent_end(&extents->at[i])};
	if (placing->to != PLACE_GPU || !span_owns_chunk(&extents->at[i].span))
		return true;
	for (i++; i < extents->count; i++) {
		const struct extent *next = &extents->at[i];

		if (next->offset != run->to || span_is_placed(placing, &next->span) ||
		    !span_owns_chunk(&next->span) || extent_end(next) - run->from > max_bytes)
			break;
		run->to = extent_end(next);
	}
	return true;
}

static int run_alloc(struct volume *volume, const struct file_call *call, enum memory_place place,
		     const struct device_range *run, struct extents *new_extents)
{
	uint64_t max_chunk = volume_max_chunk(volume, place);
	struct extent extent;

	for (uint64_t at = run->from; at < run->to; at = extent_end(&extent)) {
		uint64_t bytes = run->to - at < max_chunk ? run->to - at : max_chunk;
		int rc = extents_reserve(new_extents, 1);

		bytes = pool_tight_bytes(bytes);
		extent.offset = at;
		if (rc == 0)
			rc = span_take(volume, call, place, bytes, POOL_UNDEFINED, &extent.span);
		if (rc == -ENOSPC && bytes > CHUNK_ALIGN) {
			max_chunk = align_up(bytes / 2, CHUNK_ALIGN);
			extent.span.bytes = 0;
			continue;
		}
		if (rc < 0)
			return rc;
		extents_insert(new_extents, &extent);
	}
	return 0;
}

/* What leaves a GPU must be free for other programs too. With size= a chunk that processes may
 * still have counts whether the driver has it or not, and the owner's next file may have it. */
static bool shelves_moved(const struct volume *volume, enum memory_place to)
{
	return to == PLACE_GPU || pool_limits(volume->pool).size < volume->device->total;
}

/* A copy of the run in the place. */
static int run_copy(struct file *file, const struct file_call *call, enum memory_place place,
		    const struct device_range *run, struct extents *new_extents)
{
	struct file_call own_call = *call;

	own_call.replaces = true;
	int rc = run_alloc(file_volume(file), &own_call, place, run, new_extents);

	if (rc == 0)
		rc = device_fill(call, new_extents, &file->extents);
	if (rc == 0)
		rc = extents_reserve(&file->extents, new_extents->count);
	return rc;
}

/* The extents of the run leave the file. */
static int run_cut(struct file *file, const struct file_call *call, const struct device_range *run,
		   struct extents *old, bool *over_quota)
{
	struct extents run_extents = extents_range(&file->extents, run->from, run->to);
	int rc = device_hold_replaced(call, file_volume(file), &run_extents);

	*over_quota = rc == -EDQUOT;
	if (rc < 0)
		return rc;
	rc = extents_cut(&file->extents, run->from, run->to, old);
	if (rc < 0)
		device_unhold(call, &run_extents);
	return rc;
}

static int run_move(struct file *file, const struct file_call *call, enum memory_place place,
		    const struct device_range *run, bool *over_quota)
{
	struct volume *volume = file_volume(file);
	struct extents new_extents = {0}, old = {0};

	*over_quota = false;
	int rc = run_copy(file, call, place, run, &new_extents);

	if (rc == 0)
		rc = run_cut(file, call, run, &old, over_quota);
	if (rc < 0) {
		device_release_unused(volume, call, &new_extents);
		return rc;
	}
	EXTENTS_FOREACH (extent, &new_extents)
		extents_insert(&file->extents, extent);
	file_record_replaced(call, file, run->from, run->to, &new_extents);
	device_apply_mapping(&new_extents, call);
	extents_free(&new_extents);
	device_uncharge_places(call, &old);
	if (shelves_moved(volume, place))
		device_shelve(file, call, volume, &old);
	device_release(volume, &old);
	device_update_accounting(file, 0);
	return 0;
}

/* The bytes that moved, 0 if all are in place, or -errno. layout_lock is held, exclusive. */
static int64_t place_locked(struct file *file, const struct file_call *call,
			    struct placing *placing)
{
	struct volume *volume = file_volume(file);
	struct device_range run;

	if (file_is_missing(file))
		return -EIO;
	if (!file_is_device(file) || !volume_pool(volume, placing->to))
		return 0;
	if (!run_find(file, placing, volume_max_chunk(volume, placing->to), &run)) {
		if (placing->to == PLACE_GPU)
			atomic_store(&file->away, FILE_HERE);
		return 0;
	}
	/* Sharers use the chunks themselves. */
	if (file_is_held(file))
		return -EBUSY;
	int rc = run_move(file, call, placing->to, &run, &placing->over_quota);

	if (rc == -ENOSPC && run_find(file, placing, 0, &run))
		rc = run_move(file, call, placing->to, &run, &placing->over_quota);
	if (rc < 0)
		return rc;
	if (placing->to != PLACE_GPU)
		file_note_left(file);
	atomic_fetch_add(&volume->moved[placing->to], run.to - run.from);
	return (int64_t)(run.to - run.from);
}

/* Moves, within its place, an extent from placing->renewed_end on in a chunk that is to be renewed.
 * Returns the bytes, or -errno. */
static int64_t renew_locked(struct file *file, const struct file_call *call,
			    struct placing *placing)
{
	const struct extents *extents = &file->extents;
	uint32_t i = extents_find_where(extents, placing->renewed_end, placing->renews);
	struct file_call own_call = *call;

	if (i == extents->count)
		return 0;
	const struct span *span = &extents->at[i].span;

	/* Sharers use whole chunks; blocks are nobody else's. */
	if ((file_is_held(file) && span_owns_chunk(span)) || file_is_missing(file))
		return -EBUSY;
	/* Blocks cost the same elsewhere, whatever the limits are; a chunk may become several. */
	if (!span_owns_chunk(span))
		own_call.charge_place = NULL;
	struct device_range run = {extents->at[i].offset, extent_end(&extents->at[i])};

	placing->renewed_end = run.to;
	placing->to = span->chunk->place;
	int rc = run_move(file, &own_call, placing->to, &run, &placing->over_quota);

	return rc < 0 ? rc : (int64_t)(run.to - run.from);
}

static bool layout_lock(struct file *file, enum file_wait wait)
{
	if (wait == FILE_NO_WAIT && !brlock_write_trylock(&file->layout_lock))
		return false;
	if (wait == FILE_MAY_WAIT)
		brlock_write_lock(&file->layout_lock);
	file_drop_ahead(file);
	return true;
}

static int extents_place(struct file *file, const struct file_call *call, struct placing *placing,
			 enum file_wait wait, uint64_t max_bytes, uint64_t *moved)
{
	int64_t n;

	*moved = 0;
	do {
		if (journal_room(call->journal))
			return -ENOSPC;
		if (!layout_lock(file, wait))
			return -EAGAIN;
		n = placing->renews ? renew_locked(file, call, placing)
				    : place_locked(file, call, placing);
		brlock_write_unlock(&file->layout_lock);
		if (n > 0)
			*moved += (uint64_t)n;
	} while (n > 0 && *moved < max_bytes);
	return n < 0 ? (int)n : 0;
}

int file_place(struct file *file, const struct file_call *call, enum memory_place place,
	       uint64_t max_bytes, uint64_t *moved)
{
	struct placing placing = placing_all_to(place);

	return extents_place(file, call, &placing, FILE_MAY_WAIT, max_bytes, moved);
}

int file_evict(struct file *file, const struct file_call *call, enum memory_place from,
	       enum memory_place to, enum file_wait wait, uint64_t max_bytes, uint64_t *moved)
{
	struct placing placing = {.from = 1U << from, .to = to};

	return extents_place(file, call, &placing, wait, max_bytes, moved);
}

int file_compact(struct file *file, const struct file_call *call, uint64_t *moved)
{
	struct placing placing = {.renews = chunk_is_drained};

	return extents_place(file, call, &placing, FILE_NO_WAIT, UINT64_MAX, moved);
}

static bool chunk_is_out(const struct chunk *chunk)
{
	return atomic_load(&chunk->handed_out) != CHUNK_KEPT;
}

int file_renew(struct file *file, const struct file_call *call)
{
	struct placing placing = {.renews = chunk_is_out};
	uint64_t moved;
	int rc;

	file_set_unclean(file);
	do {
		placing.renewed_end = 0;
		if (worker_is_interrupted())
			return -EINTR;
		rc = extents_place(file, call, &placing, FILE_MAY_WAIT, PIECE_BYTES, &moved);
	} while ((rc == 0 && moved) ||
		 (rc == -ENOSPC && call->make_room &&
		  call->make_room(call->quota_owner, file_volume(file), placing.to, PLACE_IS_FULL,
				  CHUNK_ALIGN, NULL)));
	return rc == -EBUSY ? 0 : rc;
}

bool file_is_placed(const struct file *file, const struct file_call *call)
{
	struct placing placing = placing_all_to(device_place_wanted(file_volume(file), call));
	struct device_range run;

	return file_is_held(file) || !run_find(file, &placing, 0, &run);
}

/* Moves all, and ends after a piece if nothing waits for the rest any more. */
static int pieces_place(struct file *file, const struct file_call *call, struct placing *placing)
{
	uint64_t moved;
	int rc;

	do {
		if (worker_is_interrupted())
			return -EINTR;
		rc = extents_place(file, call, placing, FILE_MAY_WAIT, PIECE_BYTES, &moved);
	} while (rc == 0 && moved >= PIECE_BYTES);
	return rc;
}

static int place_making_room(struct file *file, const struct file_call *call,
			     struct placing *placing)
{
	struct volume *volume = file_volume(file);
	int rc;

	do {
		rc = pieces_place(file, call, placing);
	} while ((rc == -ENOSPC || rc == -EDQUOT) && !placing->over_quota && call->make_room &&
		 call->make_room(call->quota_owner, volume, placing->to,
				 rc == -EDQUOT ? PLACE_OWNER_LIMIT : PLACE_IS_FULL,
				 file_bytes_in_places(file, placing->from), file));
	return rc;
}

int file_place_all(struct file *file, const struct file_call *call, enum memory_place place)
{
	struct placing placing = placing_all_to(place);
	struct volume *volume = file_volume(file);

	if (!volume_is_tiered(volume))
		return 0;
	if (place == PLACE_GPU)
		file_note_use(file, volume);
	return place_making_room(file, call, &placing);
}

int file_place_out(struct file *file, const struct file_call *call)
{
	struct placing placing = {.from = 1U << PLACE_GPU, .to = PLACE_GPU};
	const struct volume *volume = file_volume(file);
	int rc = 0;

	while ((placing.to = volume_place_below(volume, placing.to)) < PLACES) {
		rc = place_making_room(file, call, &placing);
		if (rc != -ENOSPC && rc != -EDQUOT)
			break;
	}
	return rc;
}

bool file_find_room(const struct volume *volume, struct file_call *call, uint64_t bytes)
{
	enum memory_place place = device_place_wanted(volume, call);

	if (!volume_is_tiered(volume) || !call->make_room)
		return false;
	if (call->make_room(call->quota_owner, volume, place, PLACE_IS_FULL, bytes, NULL))
		return true;
	place = volume_place_below(volume, place);
	if (place == PLACES)
		return false;
	call->place = place;
	return true;
}
