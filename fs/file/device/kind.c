/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* Files in gpuN/: the operations as a table. */
#include <errno.h>
#include <linux/limits.h>

#include "fs/file/core/record.h"
#include "fs/file/device/device.h"
#include "fs/file/device/foreign.h"

static void device_describe(struct file *file, FILE *out)
{
	static const char *const prefixes[PLACES] = {"", "host-", "disk-"};

	EXTENTS_FOREACH (extent, &file->extents) {
		/* An attribute cannot be longer, so do not use more memory for the text. */
		if (ftell(out) > XATTR_SIZE_MAX)
			break;
		const struct chunk *chunk = extent->span.chunk;

		fprintf(out, "%lu %lu %lu %s%s\n", extent->offset, extent->span.bytes,
			extent->span.offset, chunk->foreign ? "foreign-" : prefixes[chunk->place],
			span_owns_chunk(&extent->span) ? "chunk" : "block");
	}
}

/* The charge is current after each request. */
static void device_charge_is_current(struct file *file, const struct file_call *call)
{
	(void)file;
	(void)call;
}

/* The memory is charged when it is exported. */
static int device_promise_lease(struct file *file, const struct file_call *call,
				enum file_share_access access)
{
	(void)file;
	(void)call;
	(void)access;
	return 0;
}

static int device_promise_mapping(struct file *file, const struct file_call *call)
{
	(void)file;
	(void)call;
	return -ENOTSUP;
}

static void device_record_empty(struct file *file, const struct file_call *call)
{
	(void)file;
	file_record_cut(call, 0, UINT64_MAX);
}

static void device_free_memory(struct file *file, const struct file_call *call)
{
	struct volume *volume = file_volume(file);

	device_hold(call, volume, &file->extents);
	device_uncharge_places(call, &file->extents);
	device_shelve(file, call, volume, &file->extents);
	device_release(volume, &file->extents);
	file_charge(call, -(int64_t)atomic_load(&file->allocated));
}

const struct file_kind device_kind = {
    .size = device_size,
    .stat = device_stat,
    .read = device_read,
    .write = device_write,
    .seek = device_seek,
    .next_run = device_next_run,
    .copy_ahead = device_copy_ahead,
    .describe = device_describe,
    .check_room = device_check_room,
    .make_room = device_make_room,
    .truncate = device_truncate,
    .allocate = device_fallocate,
    .has_ahead = device_has_ahead,
    .trim = device_trim,
    .update_accounting = device_charge_is_current,
    .make_exportable = device_make_exportable,
    .is_exportable = device_is_exportable,
    .promise_lease = device_promise_lease,
    .promise_mapping = device_promise_mapping,
    .export = device_export,
    .record_empty = device_record_empty,
    .free_memory = device_free_memory,
};

const struct file_kind foreign_kind = {
    .size = device_size,
    .stat = device_stat,
    .read = device_read,
    .write = device_write,
    .seek = device_seek,
    .next_run = device_next_run,
    .describe = device_describe,
    .check_room = foreign_check_room,
    .make_room = foreign_make_room,
    .truncate = foreign_truncate,
    .allocate = foreign_allocate,
    .has_ahead = foreign_has_ahead,
    .trim = foreign_trim,
    .update_accounting = device_charge_is_current,
    .make_exportable = foreign_make_exportable,
    .is_exportable = foreign_is_exportable,
    .promise_lease = device_promise_lease,
    .promise_mapping = device_promise_mapping,
    .export = device_export,
    .record_empty = device_record_empty,
    .free_memory = device_free_memory,
};
