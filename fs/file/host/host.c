/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
#include "fs/file/host/host.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/cleanup.h"
#include "common/io.h"
#include "fs/file/core/record.h"
#include "fs/object/host_pin.h"

ssize_t host_read(struct file *file, const struct file_call *call, void *to, size_t bytes,
		  uint64_t offset)
{
	int fd = atomic_load(&file->object.fd);
	uint64_t n_read = 0;
	int rc = fd < 0 ? 0 : io_read_at(fd, to, bytes, offset, &n_read);

	(void)call;
	return io_count(rc, n_read);
}

int host_zero_end(struct file *file, uint64_t to)
{
	int fd = atomic_load(&file->object.fd);
	uint64_t size = object_size(fd);
	/* The other pages of a huge page may be memory that fallocate reserved. */
	bool reserved = atomic_load(&file->fields->reserved) > size;
	uint8_t shift =
	    reserved ? (uint8_t)__builtin_ctzll(POOL_BLOCK_MIN) : atomic_load(&file->object.shift);

	return to > size && file_zeroes_end(file) ? object_zero_end(fd, shift) : 0;
}

ssize_t host_write(struct file *file, const struct file_call *call, const void *from, size_t bytes,
		   uint64_t offset, int refused)
{
	int fd = atomic_load(&file->object.fd);

	if (fd < 0)
		return refused;

	int64_t precharged = host_precharge(file, call, offset, offset + bytes);

	if (precharged < 0)
		return precharged;

	uint64_t n_written = 0;
	int rc = io_write_at(fd, from, bytes, offset, &n_written);

	host_update_accounting(file, call, precharged);
	return io_count(rc, n_written);
}

int64_t host_seek(struct file *file, uint64_t offset, int whence)
{
	int fd = atomic_load(&file->object.fd);
	off_t found = fd < 0 ? -1 : lseek(fd, (off_t)offset, whence);

	if (fd < 0)
		return -ENXIO;
	return found < 0 ? -errno : found;
}

bool host_file_next_run(struct file *file, uint64_t offset, uint64_t end, struct data_run *run)
{
	int fd = atomic_load(&file->object.fd);
	struct stat st;

	if (offset >= end || fd < 0 || fstat(fd, &st) < 0 || offset >= (uint64_t)st.st_size ||
	    !host_has_no_holes(file, &st))
		return object_next_run(fd, offset, end, run);
	*run = (struct data_run){
	    .from = offset,
	    .to = end < (uint64_t)st.st_size ? end : (uint64_t)st.st_size,
	    .data = true,
	};
	return true;
}

enum system_tmpfs host_tmpfs_wanted(const struct file_call *call)
{
	enum file_limits limits = call->limits;

	if (limits == FILE_LIMITS_ASK && call->find_limits)
		limits = call->find_limits(call->quota_owner);
	return limits == FILE_LIMITS_QUOTA ? SYSTEM_TMPFS_OWN : SYSTEM_TMPFS_SHARED;
}

int host_new_object(struct volume *volume, const struct file_call *call, enum system_tmpfs tmpfs,
		    struct host_object *object)
{
	bool huge = call->attrs.page_size == PAGE_SIZE_2M || call->attrs.page_size == PAGE_SIZE_1G;
	struct host_object new_object = {.tmpfs = SYSTEM_TMPFS_SHARED};
	int rc = file_count_object(call, 1, tmpfs);

	if (rc < 0)
		return rc;
	rc = system_object_new(volume->system, huge ? SYSTEM_PAGES_HUGE : SYSTEM_PAGES_SMALL, tmpfs,
			       &new_object.fd);
	if (rc >= 0) {
		new_object.id =
		    call->journal ? journal_hold(call->journal, FDSTORE_HOST, new_object.fd) : 0;
		if (call->journal && !new_object.id) {
			close(new_object.fd);
			rc = -ENOSPC;
		}
	}
	if (rc < 0) {
		file_count_object(call, -1, tmpfs);
		return rc;
	}
	if (tmpfs == SYSTEM_TMPFS_OWN)
		new_object.tmpfs = system_object_tmpfs(new_object.fd);
	if (new_object.tmpfs != tmpfs)
		file_count_object(call, 0, tmpfs);
	new_object.shift = (uint8_t)__builtin_ctzll(huge ? CHUNK_ALIGN : POOL_BLOCK_MIN);
	*object = new_object;
	return 0;
}

/* Locks for creating objects; several files share a lock. */
#define LOCKS 16

static pthread_mutex_t *object_lock(const struct file *file)
{
	static pthread_mutex_t host_locks[LOCKS] = {[0 ... LOCKS - 1] = PTHREAD_MUTEX_INITIALIZER};

	return &host_locks[(uintptr_t)file / sizeof(*file) % LOCKS];
}

/* Also called without layout_lock (file_object). The journal has the object before any thread can
 * write to the object. */
int host_make_object(struct file *file, struct volume *volume, const struct file_call *call)
{
	struct host_object object;

	if (atomic_load(&file->object.fd) >= 0)
		return 0;
	/* Before the lock, which another thread may take under an inode's lock. */
	enum system_tmpfs tmpfs = host_tmpfs_wanted(call);

	scoped_lock(object_lock(file));
	if (atomic_load(&file->object.fd) >= 0)
		return 0;

	int rc = host_new_object(volume, call, tmpfs, &object);

	if (rc < 0)
		return rc;
	atomic_store(&file->object.shift, object.shift);
	atomic_store(&file->object.bounded, object.tmpfs == SYSTEM_TMPFS_OWN);
	file_set_object_id(file, object.id);
	file_record_object(call, file);
	atomic_store(&file->object.fd, object.fd);
	return 0;
}

int host_truncate(struct file *file, const struct file_call *call, uint64_t size)
{
	int rc = size || atomic_load(&file->object.fd) >= 0
		     ? host_make_object(file, atomic_load(&file->volume), call)
		     : 0;
	int fd = atomic_load(&file->object.fd);

	if (rc < 0 || fd < 0)
		return rc;
	if (size < object_size(fd)) {
		atomic_store(&file->fields->reserved, 0);
		host_windows_forget(atomic_load(&file->volume)->windows, file);
	}

	uint64_t old_size = object_size(fd);
	int64_t precharged = size > old_size && host_is_out(file, fd)
				 ? host_precharge(file, call, old_size, size)
				 : 0;

	if (precharged < 0)
		return (int)precharged;
	rc = host_zero_end(file, size);
	if (rc == 0)
		rc = ftruncate(fd, (off_t)size) < 0 ? -errno : 0;
	if (rc == 0 && size < old_size)
		host_lower_limit(file, size);
	host_update_accounting(file, call, precharged);
	return rc;
}

int host_allocate(struct file *file, const struct file_call *call, int mode, uint64_t from,
		  uint64_t to)
{
	bool punch = mode & FALLOC_FL_PUNCH_HOLE;

	if (punch && atomic_load(&file->object.fd) < 0)
		return 0;

	int rc = host_make_object(file, atomic_load(&file->volume), call),
	    fd = atomic_load(&file->object.fd);

	if (rc < 0)
		return rc;

	int64_t precharged = punch ? 0 : host_precharge(file, call, from, to);

	if (precharged < 0)
		return (int)precharged;
	if (punch)
		host_windows_forget(atomic_load(&file->volume)->windows, file);
	rc = mode & FALLOC_FL_KEEP_SIZE ? 0 : host_zero_end(file, to);
	if (rc == 0)
		rc = object_allocate(fd, mode & ~FALLOC_FL_ZERO_RANGE, from, to);
	if (!punch && (mode & FALLOC_FL_KEEP_SIZE) && to > atomic_load(&file->fields->reserved))
		atomic_store(&file->fields->reserved, to);
	if (rc == 0 && (mode & FALLOC_FL_ZERO_RANGE)) {
		uint64_t size = object_size(fd);

		rc = object_zero(fd, from, to < size ? to : size);
	}
	host_update_accounting(file, call, precharged);
	return rc;
}
