/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
#include "fs/file/export.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "fs/file/core/missing.h"
#include "fs/file/core/record.h"
#include "fs/file/device/place.h"
#include "fs/file/host/old_memory.h"
#include "fs/file/internal.h"

/* Replaces the small pieces of a granule by a chunk: other files' bytes share the memory around
 * small pieces, and must not be exported. */
static int granule_to_chunk(struct file *file, const struct file_call *call, uint64_t granule)
{
	struct volume *volume = atomic_load(&file->volume);
	struct extent extent = {.offset = granule};
	struct extents new_extents = {.at = &extent, .count = 1}, old = {0};
	uint64_t end = granule + CHUNK_ALIGN;
	int64_t growth = (int64_t)extents_missing(&file->extents, granule, end);
	int rc = file_charge(call, growth);

	if (rc < 0)
		return rc;
	rc = span_take(volume, call, device_place_wanted(volume, call), CHUNK_ALIGN, POOL_UNDEFINED,
		       &extent.span);
	if (rc < 0)
		goto uncharge;
	rc = device_fill(call, &new_extents, &file->extents);
	if (rc == 0)
		rc = extents_reserve(&file->extents, 1);
	if (rc == 0)
		rc = extents_cut(&file->extents, granule, end, &old);
	if (rc < 0)
		goto give;
	extents_insert(&file->extents, &extent);
	file_record_replaced(call, file, granule, end, &new_extents);
	device_apply_mapping(&new_extents, call);
	device_uncharge_places(call, &old);
	device_release(volume, &old);
	device_update_accounting(file, growth);
	return 0;

give:
	span_release_unused(volume, call, &extent.span);
uncharge:
	file_charge(call, -growth);
	return rc;
}

static int file_own_chunks(struct file *file, const struct file_call *call)
{
	struct volume *volume = atomic_load(&file->volume);
	uint64_t size = atomic_load(&file->fields->size), end = align_up(size, CHUNK_ALIGN);
	struct file_call ordinary = *call;
	struct allocation allocation = allocation_for(volume, &ordinary, end);
	int rc = 0;

	/* An exchange made room for small pieces, not for what the file lacks. */
	ordinary.exchanges = false;
	for (uint64_t at = 0; rc == 0 && at < end;) {
		uint32_t index = extents_find(&file->extents, at);

		if (index == file->extents.count)
			break;

		struct extent *extent = &file->extents.at[index];

		at = extent_end(extent);
		if (!span_owns_chunk(&extent->span) && extent->offset < end) {
			uint64_t granule = align_down(extent->offset, CHUNK_ALIGN);

			rc = granule_to_chunk(file, call, granule);
			at = granule + CHUNK_ALIGN;
		}
	}
	if (rc < 0)
		return rc;
	allocation.layout.unit = CHUNK_ALIGN;
	allocation.target = &file->extents;
	allocation.recorded = file;
	rc = alloc_run(&allocation, 0, end, end);
	device_update_accounting(file, (int64_t)allocation.bytes);
	return rc;
}

/* layout_lock is held. */
static int lease_check_access(const struct file *file, enum file_share_access access)
{
	return access == FILE_SHARE_READ && file_is_device(file) ? -EPERM : 0;
}

static int file_make_exportable(struct file *file, const struct file_call *call)
{
	if (file_is_missing(file))
		return -EIO;
	if (file_is_device(file))
		return file_own_chunks(file, call);
	return host_make_object(file, atomic_load(&file->volume), call);
}

/* layout_lock is held: whether chunks of this file alone back all bytes of the file. */
static bool chunks_are_exportable(const struct file *file)
{
	uint64_t end = align_up(atomic_load(&file->fields->size), CHUNK_ALIGN), at = 0;

	if (file->extents.count > FILE_QUICK_CHUNKS)
		return false;
	EXTENTS_FOREACH (extent, &file->extents) {
		if (at >= end)
			break;
		if (extent->offset != at || !span_owns_chunk(&extent->span))
			return false;
		at = extent_end(extent);
	}
	return at >= end;
}

/* layout_lock is held: whether a lease needs no trimming, allocation or copying first. */
static bool lease_is_immediate(struct file *file, const struct file_call *call)
{
	if (file_is_missing(file))
		return true;
	if (!file_is_device(file))
		return atomic_load(&file->fd) >= 0;
	return (file_is_held(file) || !device_has_ahead(file, call)) &&
	       chunks_are_exportable(file) && device_is_placed(file, call);
}

/* Takes layout_lock, exclusive, if the lease is allowed. With FILE_NO_WAIT also -EINPROGRESS if the
 * file needs work first. */
static int lease_lock(struct file *file, const struct file_call *call,
		      enum file_share_access access, enum file_wait wait)
{
	if (wait == FILE_NO_WAIT &&
	    (journal_room_now(call->journal) || !brlock_write_trylock(&file->layout_lock)))
		return -EINPROGRESS;
	if (wait == FILE_MAY_WAIT) {
		if (journal_room(call->journal))
			return -ENOSPC;
		brlock_write_lock(&file->layout_lock);
	}
	file_drop_ahead(file);
	int rc = lease_check_access(file, access);

	if (rc == 0 && wait == FILE_NO_WAIT && !lease_is_immediate(file, call))
		rc = -EINPROGRESS;
	if (rc < 0)
		brlock_write_unlock(&file->layout_lock);
	return rc;
}

/* layout_lock is held, exclusive. A lease for reading an object gives the same as a mapping in
 * POSIX: the reader keeps the object even after the file has left the object. */
static enum file_lease_kind lease_count(struct file *file, enum file_share_access access)
{
	bool loose = !file_is_device(file) && access != FILE_SHARE_WRITE;

	file_note_use(file, file_volume(file));
	atomic_fetch_or(&file->leased, FILE_LEASED);
	atomic_fetch_add(&file->leases, 1);
	atomic_fetch_add(loose ? &file->loose : &file->held, 1);
	return loose ? FILE_LEASE_LOOSE : FILE_LEASE_HOLDS;
}

/* layout_lock has been held exclusive since lease_count. */
static void lease_uncount(struct file *file, enum file_lease_kind kind)
{
	atomic_fetch_sub(kind == FILE_LEASE_LOOSE ? &file->loose : &file->held, 1);
	atomic_fetch_sub(&file->leases, 1);
}

/* The lease is counted: a quota that comes above the file from here on finds the file leased. */
static int lease_promise(struct file *file, const struct file_call *call,
			 enum file_share_access access)
{
	if (file_is_device(file))
		return 0;
	if (access == FILE_SHARE_WRITE && file_is_unbounded(file) &&
	    host_tmpfs_wanted(call) == SYSTEM_TMPFS_OWN)
		return host_is_shared(file) ? -EBUSY : -EXDEV;
	return host_promise(file, call, NULL);
}

/* -EAGAIN: extents are not where they should be. */
static int lease_once(struct file *file, const struct file_call *call,
		      enum file_share_access access, enum file_wait wait)
{
	enum file_lease_kind kind = FILE_LEASE_HOLDS;
	int rc = lease_lock(file, call, access, wait);

	if (rc < 0)
		return rc;
	if (!device_is_placed(file, call)) {
		brlock_write_unlock(&file->layout_lock);
		return -EAGAIN;
	}
	/* Memory ahead of the end cannot be freed while sharers have the memory. */
	if (file_is_device(file) && !file_is_held(file) && !file_is_missing(file))
		device_trim(file, call);
	rc = file_make_exportable(file, call);
	if (rc == 0) {
		kind = lease_count(file, access);
		rc = lease_promise(file, call, access);
		if (rc < 0)
			lease_uncount(file, kind);
	}
	brlock_write_unlock(&file->layout_lock);
	return rc < 0 ? rc : (int)kind;
}

static bool lease_find_room(struct file *file, const struct file_call *call)
{
	const struct volume *volume = file_volume(file);

	return call->make_room && volume_is_tiered(volume) &&
	       call->make_room(call->quota_owner, volume, device_place_wanted(volume, call),
			       PLACE_IS_FULL, CHUNK_ALIGN, file);
}

int file_lease(struct file *file, const struct file_call *call, enum file_share_access access,
	       enum file_wait wait)
{
	struct file_call own_call = *call;

	for (;;) {
		int rc = lease_once(file, &own_call, access, wait);

		if (rc == -EAGAIN) {
			rc = file_place_all(file, call,
					    device_place_wanted(file_volume(file), call));
			/* -EBUSY: another lease began, and the extents stay where they are. */
			if (rc < 0 && rc != -EBUSY)
				return rc;
		} else if (rc != -ENOSPC || wait == FILE_NO_WAIT || !lease_find_room(file, call)) {
			return rc;
		} else {
			own_call.exchanges =
			    device_place_wanted(file_volume(file), call) == PLACE_GPU;
		}
	}
}

void file_lease_end(struct file *file, enum file_lease_kind kind)
{
	if (kind == FILE_LEASE_HOLDS) {
		file_unlease(file, 1);
		return;
	}
	file_lease_drop(file, kind);
	file_old_memory_end(file);
}

bool file_may_outgrow_quota(const struct file *file)
{
	return file_is_unbounded(file) &&
	       (file_is_held(file) || (file_was_leased(file) && host_has_descriptors(file)));
}

int file_lease_more(struct file *file, const struct file_call *call, enum file_share_access access,
		    enum file_wait wait)
{
	int rc;

	do {
		rc = lease_lock(file, call, access, wait);
		if (rc < 0)
			return rc;
		rc = file_make_exportable(file, call);
		brlock_write_unlock(&file->layout_lock);
	} while (rc == -ENOSPC && wait == FILE_MAY_WAIT && lease_find_room(file, call));
	return rc;
}

void file_chunks_close(struct file_chunk *chunks, uint32_t count)
{
	for (uint32_t i = 0; i < count; i++)
		close(chunks[i].fd);
}

static int extent_export(const struct extent *extent, struct file_chunk *chunk)
{
	*chunk = (struct file_chunk){.offset = extent->offset, .bytes = extent->span.bytes};
	return chunk_export(extent->span.chunk, &chunk->fd);
}

/* The number of extents from number first on that back bytes below end, up to the first extent that
 * is not exportable. The file may have grown, or been emptied and rewritten, since file_lease made
 * the file exportable; and other files' bytes share the memory around its small pieces. */
static uint32_t extents_exportable(const struct extents *extents, uint64_t end, uint32_t first,
				   uint32_t max)
{
	uint64_t at = first && first <= extents->count ? extent_end(&extents->at[first - 1]) : 0;
	uint32_t count = 0;

	for (uint32_t i = first; i < extents->count && count < max; i++) {
		const struct extent *extent = &extents->at[i];

		if (extent->offset >= end || extent->offset != at ||
		    !span_owns_chunk(&extent->span))
			break;
		at = extent_end(extent);
		count++;
	}
	return count;
}

/* One record names at most this many chunks. */
#define HAND_OUT_MAX 32

/* Stores that other processes have the chunks, for the next daemon too, which must give the memory
 * to no other file. A checkpoint that writes the file's extents meanwhile reads the state, so the
 * state is set before the record; and a concurrent export relies on the record only once the record
 * is complete. */
static void chunks_hand_out(struct journal *journal, const struct extent *extents, uint32_t count)
{
	uint64_t ids[HAND_OUT_MAX];
	uint32_t n = 0;

	for (uint32_t i = 0; i < count; i++) {
		struct chunk *chunk = extents[i].span.chunk;

		if (atomic_load(&chunk->handed_out) == CHUNK_HANDED_OUT)
			continue;
		atomic_store(&chunk->handed_out, CHUNK_HANDING_OUT);
		ids[n++] = chunk->id;
	}
	if (!n)
		return;
	file_record_handed_out(journal, ids, n);
	for (uint32_t i = 0; i < count; i++)
		atomic_store(&extents[i].span.chunk->handed_out, CHUNK_HANDED_OUT);
}

static int extents_export(const struct extents *extents, struct journal *journal, uint64_t end,
			  uint32_t first, struct file_chunk *chunks, uint32_t max)
{
	uint32_t count = extents_exportable(extents, end, first, max);

	for (uint32_t at = 0; at < count; at += HAND_OUT_MAX)
		chunks_hand_out(journal, &extents->at[first + at],
				count - at < HAND_OUT_MAX ? count - at : HAND_OUT_MAX);
	for (uint32_t i = 0; i < count; i++) {
		int rc = extent_export(&extents->at[first + i], &chunks[i]);

		if (rc < 0) {
			file_chunks_close(chunks, i);
			return rc;
		}
	}
	return (int)count;
}

/* Opens the object anew, because a duplicated descriptor would share access mode and flags:
 * O_APPEND set by a sharer would send the daemon's own writes to the end. The object has mode 0600,
 * so only root can reopen a read-only descriptor for writing. */
static int object_export(int object, uint64_t size, enum file_share_access access,
			 struct file_chunk *chunk)
{
	char path[32];

	snprintf(path, sizeof(path), "/proc/self/fd/%d", object);
	*chunk = (struct file_chunk){.bytes = size};
	chunk->fd = open(path, O_CLOEXEC | (access == FILE_SHARE_WRITE ? O_RDWR : O_RDONLY));
	return chunk->fd < 0 ? -errno : 1;
}

/* layout_lock is held. */
static struct file_place file_place_read(const struct file *file)
{
	return (struct file_place){.volume = file_volume(file), .size = file_size(file)};
}

int file_export(struct file *file, struct journal *journal, enum file_share_access access,
		enum file_wait wait, uint32_t first, struct file_chunk *chunks, uint32_t max,
		struct file_place *place)
{
	brlock_token token = NULL;

	if (wait == FILE_MAY_WAIT)
		token = brlock_read_lock(&file->layout_lock);
	else if (!brlock_read_trylock(&file->layout_lock, &token))
		return -EINPROGRESS;
	int object = atomic_load(&file->fd);
	struct file_place at = file_place_read(file);
	int rc = lease_check_access(file, access);

	if (rc == 0 && wait == FILE_NO_WAIT && file->extents.count > FILE_QUICK_CHUNKS)
		rc = -EINPROGRESS;

	if (rc == 0 && file_is_device(file))
		rc = extents_export(&file->extents, journal, at.size, first, chunks, max);
	else if (rc == 0 && object >= 0 && first == 0 && max > 0)
		rc = object_export(object, at.size, access, chunks);
	brlock_read_unlock(&file->layout_lock, token);
	if (rc >= 0)
		*place = at;
	return rc;
}
