/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
#include "fs/file/device/foreign.h"

#include <errno.h>

#include "fs/file/core/record.h"
#include "fs/file/device/device.h"

/* The pieces hold the bytes, and each piece holds some of the bytes. */
static bool adoption_is_possible(const struct file_adoption *from)
{
	uint64_t end = from->skip + from->size, sum = 0;

	if (!from->n_pieces || !from->size || from->size > FILE_SIZE_MAX ||
	    from->skip >= from->pieces[0].bytes || from->pieces[0].bytes > FILE_SIZE_MAX)
		return false;
	for (uint32_t i = 0; i < from->n_pieces; i++) {
		uint64_t bytes = from->pieces[i].bytes;

		if (sum >= end || bytes > FILE_SIZE_MAX - sum)
			return false;
		sum += bytes;
	}
	return sum >= end;
}

/* Imports a piece, with its charges. */
static int piece_take(const struct file_call *call, const struct volume *volume,
		      struct file_piece *piece, enum chunk_origin origin, struct span *span)
{
	int rc = file_charge(call, (int64_t)piece->bytes);

	if (rc < 0)
		return rc;
	rc = file_charge_place(call, PLACE_GPU, (int64_t)piece->bytes);
	if (rc == 0) {
		rc = pool_import_foreign(volume->pool, piece->bytes, &piece->fd, origin, span);
		if (rc == 0)
			return 0;
		file_charge_place(call, PLACE_GPU, -(int64_t)piece->bytes);
	}
	file_charge(call, -(int64_t)piece->bytes);
	return rc;
}

/* The part of the piece that the file has from offset on. */
static struct extent piece_extent(const struct file_adoption *from, const struct span *piece,
				  uint64_t offset)
{
	uint64_t into = offset ? 0 : from->skip, bytes = piece->bytes - into;

	if (bytes > from->size - offset)
		bytes = from->size - offset;
	return (struct extent){.offset = offset, .span = {piece->chunk, into, bytes}};
}

static int pieces_take(const struct file_call *call, const struct volume *volume,
		       const struct file_adoption *from, struct extents *extents, uint64_t *taken)
{
	uint64_t offset = 0;
	int rc = extents_reserve(extents, from->n_pieces);

	for (uint32_t i = 0; rc == 0 && i < from->n_pieces; i++) {
		struct span span;

		rc = piece_take(call, volume, &from->pieces[i],
				from->later ? CHUNK_FOREIGN_LATER : CHUNK_FOREIGN, &span);
		if (rc < 0)
			break;
		struct extent extent = piece_extent(from, &span, offset);

		/* The program that made the descriptor has the memory, too. */
		atomic_store(&span.chunk->handed_out, CHUNK_HANDED_OUT);
		extents_insert(extents, &extent);
		offset = extent_end(&extent);
		*taken += span.bytes;
	}
	return rc;
}

static bool file_is_untouched(const struct file *file)
{
	return !atomic_load(&file->fields->size) && !file->extents.count &&
	       !atomic_load(&file->leases.count) && !atomic_load(&file->leases.loose);
}

int foreign_adopt(struct file *file, const struct file_call *call, const struct file_adoption *from)
{
	struct volume *volume = atomic_load(&file->volume);
	struct extents extents = {0};
	uint64_t taken = 0;

	if (!file_is_untouched(file))
		return -EBUSY;
	if (!adoption_is_possible(from))
		return -EINVAL;
	int rc = pieces_take(call, volume, from, &extents, &taken);

	if (rc < 0) {
		device_uncharge_places(call, &extents);
		device_release(volume, &extents);
		file_charge(call, -(int64_t)taken);
		return rc;
	}
	extents_free(&file->extents);
	file->extents = extents;
	/* First: whatever finds the memory must know that it is another program's. */
	atomic_fetch_or(&file->memory.leased, FILE_OF_FOREIGN);
	atomic_store(&file->fields->reserved, from->ends ? FOREIGN_ENDS : 0);
	device_update_accounting(file, (int64_t)taken);
	file_record_added(call, file, &file->extents);
	device_apply_mapping(&file->extents, call);
	device_raise_size(file, from->size);
	return 0;
}

int foreign_check_room(const struct file *file, const struct file_call *call, uint64_t from,
		       uint64_t to)
{
	(void)call, (void)from;
	return to > device_size(file) ? -EFBIG : 0;
}

int foreign_make_room(struct file *file, const struct file_call *call, uint64_t from, uint64_t to)
{
	return foreign_check_room(file, call, from, to);
}

int foreign_truncate(struct file *file, const struct file_call *call, uint64_t size)
{
	(void)call;
	return size == device_size(file) ? 0 : -EPERM;
}

int foreign_allocate(struct file *file, const struct file_call *call, int mode, uint64_t from,
		     uint64_t to)
{
	return mode ? -EOPNOTSUPP : foreign_check_room(file, call, from, to);
}

bool foreign_has_ahead(struct file *file, const struct file_call *call)
{
	(void)file, (void)call;
	return false;
}

void foreign_trim(struct file *file, const struct file_call *call)
{
	(void)file, (void)call;
}

int foreign_make_exportable(struct file *file, const struct file_call *call)
{
	(void)file, (void)call;
	return 0;
}

bool foreign_is_exportable(struct file *file, const struct file_call *call)
{
	(void)call;
	return file->extents.count <= FILE_QUICK_CHUNKS;
}
