/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* Moving a file's extents between the device, system memory and the disk: one at a time under
 * layout_lock, and as many as the caller wants. docs/tiers.md has the steps and what a crash leaves
 * after each. */
#include <errno.h>

#include "fs/core/worker.h"
#include "fs/file/device/place.h"
#include "fs/file/internal.h"
#include "fs/journal/journal.h"

/* A request that was interrupted ends after about so many bytes. */
#define PIECE_BYTES (64ULL << 20)

static bool layout_lock(struct file *file, enum file_wait wait)
{
	if (wait == FILE_NO_WAIT && !brlock_write_trylock(&file->layout_lock))
		return false;
	if (wait == FILE_MAY_WAIT)
		brlock_write_lock(&file->layout_lock);
	file_drop_ahead(file);
	return true;
}

static int extents_place(struct file *file, const struct file_call *call,
			 struct device_placing *placing, enum file_wait wait, uint64_t max_bytes,
			 uint64_t *moved)
{
	int64_t n;

	*moved = 0;
	do {
		if (journal_room(call->journal))
			return -ENOSPC;
		if (!layout_lock(file, wait))
			return -EAGAIN;
		n = device_place_next(file, call, placing);
		brlock_write_unlock(&file->layout_lock);
		if (n > 0)
			*moved += (uint64_t)n;
	} while (n > 0 && *moved < max_bytes);
	return n < 0 ? (int)n : 0;
}

int file_place(struct file *file, const struct file_call *call, enum memory_place place,
	       uint64_t max_bytes, uint64_t *moved)
{
	struct device_placing placing = placing_all_to(place);

	return extents_place(file, call, &placing, FILE_MAY_WAIT, max_bytes, moved);
}

int file_evict(struct file *file, const struct file_call *call, enum memory_place from,
	       enum memory_place to, enum file_wait wait, uint64_t max_bytes, uint64_t *moved)
{
	struct device_placing placing = {.from = 1U << from, .to = to};

	return extents_place(file, call, &placing, wait, max_bytes, moved);
}

int file_compact(struct file *file, const struct file_call *call, uint64_t *moved)
{
	struct device_placing placing = {.renews = chunk_is_drained};

	return extents_place(file, call, &placing, FILE_NO_WAIT, UINT64_MAX, moved);
}

static bool chunk_is_out(const struct chunk *chunk)
{
	return atomic_load(&chunk->handed_out) != CHUNK_KEPT;
}

int file_renew(struct file *file, const struct file_call *call)
{
	struct device_placing placing = {.renews = chunk_is_out};
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

/* Moves all, and ends after a piece if nothing waits for the rest any more. */
static int pieces_place(struct file *file, const struct file_call *call,
			struct device_placing *placing)
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
			     struct device_placing *placing)
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
	struct device_placing placing = placing_all_to(place);
	struct volume *volume = file_volume(file);

	if (!volume_is_tiered(volume))
		return 0;
	if (place == PLACE_GPU)
		file_note_use(file, volume);
	return place_making_room(file, call, &placing);
}

int file_place_out(struct file *file, const struct file_call *call)
{
	struct device_placing placing = {.from = 1U << PLACE_GPU, .to = PLACE_GPU};
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
