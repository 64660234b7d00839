/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* Files in gpuN/: the next extent that moves between the device, system memory and the disk.
 * docs/tiers.md has the steps and what a crash leaves after each. */
#include "fs/file/device/place.h"

#include <errno.h>

#include "fs/file/core/missing.h"
#include "fs/file/core/record.h"

static bool span_is_placed(const struct device_placing *placing, const struct span *span)
{
	return !(placing->from >> span->chunk->place & 1);
}

/* The first extent to move. On the way back to the device also the chunks behind the extent, up to
 * max_bytes together, which make a single chunk there. */
static bool run_find(const struct file *file, const struct device_placing *placing,
		     uint64_t max_bytes, struct device_range *run)
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

static int64_t extents_place_next(struct file *file, const struct file_call *call,
				  struct device_placing *placing)
{
	struct volume *volume = file_volume(file);
	struct device_range run;

	if (file_is_missing(file))
		return -EIO;
	if (!volume_pool(volume, placing->to))
		return 0;
	if (!run_find(file, placing, volume_max_chunk(volume, placing->to), &run)) {
		if (placing->to == PLACE_GPU)
			atomic_store(&file->memory.away, FILE_HERE);
		return 0;
	}
	/* Sharers use the chunks themselves. */
	if (file_is_held(file) || file_is_foreign(file))
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
static int64_t extents_renew_next(struct file *file, const struct file_call *call,
				  struct device_placing *placing)
{
	const struct extents *extents = &file->extents;
	uint32_t i = extents_find_where(extents, placing->renewed_end, placing->renews);
	struct file_call own_call = *call;

	if (i == extents->count)
		return 0;
	const struct span *span = &extents->at[i].span;

	/* Sharers use whole chunks; blocks are nobody else's. */
	if ((file_is_held(file) && span_owns_chunk(span)) || file_is_missing(file) ||
	    file_is_foreign(file))
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

int64_t device_place_next(struct file *file, const struct file_call *call,
			  struct device_placing *placing)
{
	return placing->renews ? extents_renew_next(file, call, placing)
			       : extents_place_next(file, call, placing);
}

bool device_is_placed(const struct file *file, const struct file_call *call)
{
	struct device_placing placing =
	    placing_all_to(device_place_wanted(file_volume(file), call));
	struct device_range run;

	return file_is_held(file) || file_is_foreign(file) || !run_find(file, &placing, 0, &run);
}
