/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
#include "fs/file/export.h"

#include <errno.h>

#include "fs/file/core/missing.h"
#include "fs/file/core/record.h"
#include "fs/file/device/place.h"
#include "fs/file/host/old_memory.h"
#include "fs/file/internal.h"

/* layout_lock is held. */
static int lease_check_access(const struct file *file, enum file_share_access access)
{
	return access == FILE_SHARE_READ && !file_kind(file)->leases_read_only ? -EPERM : 0;
}

static int file_make_exportable(struct file *file, const struct file_call *call)
{
	return file_is_missing(file) ? -EIO : file_kind(file)->make_exportable(file, call);
}

/* layout_lock is held: whether a lease needs no trimming, allocation or copying first. */
static bool lease_is_immediate(struct file *file, const struct file_call *call)
{
	return file_is_missing(file) || file_kind(file)->is_exportable(file, call);
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
	bool loose = file_kind(file)->leases_read_only && access != FILE_SHARE_WRITE;

	file_note_use(file, file_volume(file));
	atomic_fetch_or(&file->memory.leased, FILE_LEASED);
	atomic_fetch_add(&file->leases.count, 1);
	atomic_fetch_add(loose ? &file->leases.loose : &file->leases.held, 1);
	return loose ? FILE_LEASE_LOOSE : FILE_LEASE_HOLDS;
}

/* layout_lock has been held exclusive since lease_count. */
static void lease_uncount(struct file *file, enum file_lease_kind kind)
{
	atomic_fetch_sub(kind == FILE_LEASE_LOOSE ? &file->leases.loose : &file->leases.held, 1);
	atomic_fetch_sub(&file->leases.count, 1);
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
	if (!file_is_held(file) && !file_is_missing(file))
		file_kind(file)->trim(file, call);
	rc = file_make_exportable(file, call);
	if (rc == 0) {
		kind = lease_count(file, access);
		rc = file_kind(file)->promise_lease(file, call, access);
		if (rc < 0)
			lease_uncount(file, kind);
	}
	brlock_write_unlock(&file->layout_lock);
	return rc < 0 ? rc : (int)kind;
}

int file_adopt(struct file *file, const struct file_call *call, const struct file_adoption *from)
{
	if (journal_room(call->journal))
		return -ENOSPC;
	brlock_write_lock(&file->layout_lock);
	int rc = file_is_device(file) ? foreign_adopt(file, call, from) : -ENOTSUP;

	brlock_write_unlock(&file->layout_lock);
	return rc;
}

bool file_has_foreign_memory(const struct file *file)
{
	return file_is_foreign(file);
}

bool file_ends_with_process(const struct file *file)
{
	return file_is_foreign(file) && foreign_ends(file);
}

bool file_adopted_end(struct file *file)
{
	if (!file_ends_with_process(file))
		return false;
	atomic_store(&file->fields->missing, MISSING_ENDED);
	return true;
}

bool file_adopted_has_ended(const struct file *file)
{
	return atomic_load(&file->fields->missing) == MISSING_ENDED;
}

void file_adopted_free(struct file *file, const struct file_call *call)
{
	file_lock_layout(file);
	device_free_range(file, call, 0, UINT64_MAX);
	brlock_write_unlock(&file->layout_lock);
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
	struct file_place at = file_place_read(file);
	int rc = lease_check_access(file, access);

	if (rc == 0 && wait == FILE_NO_WAIT && file->extents.count > FILE_QUICK_CHUNKS)
		rc = -EINPROGRESS;

	if (rc == 0)
		rc = file_kind(file)->export(file, journal, access, at.size, first, chunks, max);
	brlock_read_unlock(&file->layout_lock, token);
	if (rc >= 0)
		*place = at;
	return rc;
}
