/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* Files in host/: the operations as a table. */
#include <errno.h>

#include "fs/file/core/record.h"
#include "fs/file/host/host.h"
#include "fs/object/host_pin.h"

static uint64_t host_size(const struct file *file)
{
	return object_size(atomic_load(&file->object.fd));
}

static struct object_stat host_stat(const struct file *file)
{
	return object_stat(atomic_load(&file->object.fd));
}

static void host_describe(struct file *file, FILE *out)
{
	int fd = atomic_load(&file->object.fd);
	uint64_t end = fd < 0 ? 0 : object_size(fd);
	struct data_run run;

	for (uint64_t at = 0; object_next_run(fd, at, end, &run); at = run.to) {
		if (run.data)
			fprintf(out, "%lu %lu %lu object\n", run.from, run.to - run.from, run.from);
	}
}

/* The object allocates pages as they are written, each with its charge. */
static int host_check_room(const struct file *file, const struct file_call *call, uint64_t from,
			   uint64_t to)
{
	(void)file;
	(void)call;
	(void)from;
	(void)to;
	return 0;
}

static int host_make_room(struct file *file, const struct file_call *call, uint64_t from,
			  uint64_t to)
{
	(void)from;
	(void)to;
	return host_make_object(file, file_volume(file), call);
}

static bool host_has_ahead(struct file *file, const struct file_call *call)
{
	(void)file;
	(void)call;
	return false;
}

static void host_trim(struct file *file, const struct file_call *call)
{
	(void)file;
	(void)call;
}

static void host_settle_charge(struct file *file, const struct file_call *call)
{
	if (atomic_load(&file->object.fd) >= 0)
		host_update_accounting(file, call, 0);
}

static int host_make_exportable(struct file *file, const struct file_call *call)
{
	return host_make_object(file, file_volume(file), call);
}

static bool host_is_exportable(struct file *file, const struct file_call *call)
{
	(void)call;
	return atomic_load(&file->object.fd) >= 0;
}

/* The lease is counted: a quota that comes above the file from here on finds the file leased. */
static int host_promise_lease(struct file *file, const struct file_call *call,
			      enum file_share_access access)
{
	if (access == FILE_SHARE_WRITE && host_is_unbounded(file) &&
	    host_tmpfs_wanted(call) == SYSTEM_TMPFS_OWN)
		return host_is_shared(file) ? -EBUSY : -EXDEV;
	return host_promise(file, call, NULL);
}

static int host_promise_mapping(struct file *file, const struct file_call *call)
{
	return host_promise(file, call, &file->object.mapped);
}

static void host_record_empty(struct file *file, const struct file_call *call)
{
	if (atomic_load(&file->object.fd) >= 0)
		return;
	file_set_object_id(file, 0);
	file_record_object(call, file);
}

static void host_free_memory(struct file *file, const struct file_call *call)
{
	host_windows_forget(file_volume(file)->windows, file);
	host_charge(file, call, -(int64_t)atomic_load(&file->allocated));
}

const struct file_kind host_kind = {
    .size = host_size,
    .stat = host_stat,
    .read = host_read,
    .write = host_write,
    .seek = host_seek,
    .next_run = host_file_next_run,
    .describe = host_describe,
    .check_room = host_check_room,
    .make_room = host_make_room,
    .truncate = host_truncate,
    .allocate = host_allocate,
    .has_ahead = host_has_ahead,
    .trim = host_trim,
    .update_accounting = host_settle_charge,
    .leases_read_only = true,
    .make_exportable = host_make_exportable,
    .is_exportable = host_is_exportable,
    .promise_lease = host_promise_lease,
    .promise_mapping = host_promise_mapping,
    .export = host_export,
    .record_empty = host_record_empty,
    .free_memory = host_free_memory,
};
